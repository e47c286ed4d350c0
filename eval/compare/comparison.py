"""The whole comparison: calibrate, tune on calibration prompts, score on others."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.compare.bench import Bench, Sample
from galaxydit.eval.compare.equal_compute import AtSpeedup, Row, compare_at, summarize
from galaxydit.eval.compare.method import Method, Setting
from galaxydit.eval.compare.plan import TUNING_SEED, Case, ComparisonPlan
from galaxydit.eval.compare.tune import Candidate, bracket, candidate, screen
from galaxydit.files import write_json
from galaxydit.pipelines.runs import Executor, Record, Unit, progress_of
from galaxydit.pipelines.settings import GenerationSettings

logger = logging.getLogger(__name__)

SCREENING_PROMPTS = 1

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Contender:
    """A method with the id of its calibration's unit, if it has one, and the settings that are scored."""

    method: Method
    calibration: str | None
    settings: tuple[Setting, ...]


@dataclass(frozen=True)
class Comparison:
    """A finished comparison; `failed` maps methods that raised an error, and were left out, to that error."""

    plan: ComparisonPlan
    contenders: tuple[Contender, ...]
    rows: tuple[Row, ...]
    at_speedups: tuple[AtSpeedup, ...]
    failed: dict[str, str]
    conditions: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """JSON data for results.json."""
        sources = {contender.method.name: contender.method.source for contender in self.contenders}
        return {
            "conditions": self.conditions,
            "plan": asdict(self.plan),
            "rows": [{"source": sources[row.method]} | asdict(row) for row in self.rows],
            "at_speedups": [asdict(one) for one in self.at_speedups],
            "failed": self.failed,
        }


def run_comparison(
    pipe: DiffusionPipeline,
    methods: Sequence[Method],
    plan: ComparisonPlan,
    settings: GenerationSettings,
    out: Path,
    progress: Progress = lambda stage, done, total: None,
    executor: Executor | None = None,
    load: Callable[[], DiffusionPipeline] | None = None,
) -> Comparison:
    """Calibrate and tune every method on the tuning prompts, score it on the others, write results.json.

    All results are stored below `out`, and a later run reuses them, also with other methods, speedups or prompts. A
    method that raises an error is left out and reported in `failed`. `executor` and `load` are as for `Bench`.

    Raises GalaxyDiTError if no method is left.
    """
    bench = Bench(pipe, settings, out, methods, executor, load)
    stages = _Stages(bench, plan, progress)
    contenders = stages.tune(stages.calibrate(methods))
    rows = stages.score(contenders)
    if stages.failed and not rows:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in stages.failed.items())
        raise GalaxyDiTError(f"every method failed, so there is nothing to compare; {reasons}")
    comparison = Comparison(
        plan=plan,
        contenders=tuple(stages.remaining(contenders)),
        rows=tuple(rows),
        at_speedups=tuple(one for speedup in plan.speedups for one in compare_at(rows, speedup)),
        failed=stages.failed,
        conditions=bench.conditions,
    )
    write_json(out / "results.json", comparison.to_dict())
    return comparison


class _Stages:
    """The stages of a comparison on one bench; `failed` maps methods to the error that one of their units raised."""

    def __init__(self, bench: Bench, plan: ComparisonPlan, progress: Progress) -> None:
        self.bench, self.plan, self.progress = bench, plan, progress
        self.failed: dict[str, str] = {}

    def calibrate(self, methods: Sequence[Method]) -> list[Contender]:
        """All methods with all their settings, calibrated."""
        units = {
            method.name: self.bench.calibration_unit(method, self.plan.tuning_prompts, TUNING_SEED)
            for method in methods
            if method.calibrate is not None
        }
        self._run("calibrating", list(units.values()), list(units))
        ids, steps = {name: unit.id for name, unit in units.items()}, self.bench.steps
        return self.remaining([Contender(one, ids.get(one.name), tuple(one.settings(steps))) for one in methods])

    def tune(self, contenders: Sequence[Contender]) -> list[Contender]:
        """The settings of each method to score: the best ones, or all if the method is not tuned."""
        speedups, cases, scored = self.plan.speedups, self.plan.tuning_cases, len(self.plan.cases)
        first = cases[:SCREENING_PROMPTS]
        screened = self._narrow("screening", contenders, first, lambda found: screen(found, speedups))
        return self._narrow("tuning", screened, cases, lambda found: bracket(found, speedups, scored))

    def score(self, contenders: Sequence[Contender]) -> list[Row]:
        """All rows, method by method, slowest setting first."""
        self.bench.measure([self.bench.plain_unit(self.plan.cases[0])])
        samples = self._measure("scoring", contenders, self.plan.cases, keep_video_of=self.plan.cases[0])
        return [
            summarize(one.method.name, setting, found, len(self.plan.seeds))
            for one in self.remaining(contenders)
            for setting, found in zip(one.settings, samples[one.method.name], strict=True)
        ]

    def remaining(self, contenders: Sequence[Contender]) -> list[Contender]:
        """Those that did not fail."""
        return [one for one in contenders if one.method.name not in self.failed]

    def _narrow(
        self,
        stage: str,
        contenders: Sequence[Contender],
        cases: Sequence[Case],
        choose: Callable[[Sequence[Candidate]], list[int]],
    ) -> list[Contender]:
        """The contenders with the settings whose indices `choose` returns, and those that ask for a wanted speedup;
        contenders that are not tuned keep all.
        """
        samples = self._measure(stage, [one for one in contenders if one.method.tuned], cases)
        narrowed = []
        for one in self.remaining(contenders):
            if one.method.tuned:
                found = [candidate(index, results) for index, results in enumerate(samples[one.method.name])]
                asking = [i for i, setting in enumerate(one.settings) if setting.get("speedup") in self.plan.speedups]
                chosen = sorted({*choose(found), *asking}, key=lambda index: found[index].log_speedup)
                one = replace(one, settings=tuple(one.settings[index] for index in chosen))
            narrowed.append(one)
        return narrowed

    def _measure(
        self, stage: str, contenders: Sequence[Contender], cases: Sequence[Case], keep_video_of: Case | None = None
    ) -> dict[str, list[list[Sample]]]:
        """By method, the samples of each setting; measured case by case, so that all methods share the plain video."""
        wanted = [(one, index, case) for case in cases for one in contenders for index in range(len(one.settings))]
        units = [
            self.bench.sample_unit(one.method, one.calibration, one.settings[index], case, keep=case == keep_video_of)
            for one, index, case in wanted
        ]
        records = self._run(stage, units, [one.method.name for one, *_ in wanted])
        found: dict[str, list[list[Sample]]] = {one.method.name: [[] for _ in one.settings] for one in contenders}
        for (one, index, _), record in zip(wanted, records, strict=True):
            if record.is_done:
                found[one.method.name][index].append(Sample(**record.result))
        return found

    def _run(self, stage: str, units: Sequence[Unit], names: Sequence[str]) -> list[Record]:
        """The records of these units of the methods of these names. A method of which a unit failed is left out."""
        records = self.bench.measure(units, progress_of(stage, self.progress))
        for record, name in zip(records, names, strict=True):
            if record.traceback and name not in self.failed:
                self.failed[name] = record.reason.rpartition("PermanentError: ")[2]
                logger.warning("%s is left out: %s", name, self.failed[name])
                logger.debug("%s", record.traceback)
        return records
