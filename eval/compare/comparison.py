"""The whole comparison: calibrate, tune on calibration prompts, score on others."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.eval.compare.bench import Bench, Sample, conditions
from galaxydit.eval.compare.equal_compute import AtSpeedup, Row, compare_at, summarize
from galaxydit.eval.compare.method import Method, Setting
from galaxydit.eval.compare.plan import TUNING_SEED, Case, ComparisonPlan
from galaxydit.eval.compare.tune import bracket, candidate, pareto_front, screen
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
    """
    stages = _Stages(Bench(pipe, settings, out, methods, executor, load), plan, progress)
    contenders = stages.tune(stages.calibrate(methods))
    rows = stages.score(contenders)
    comparison = Comparison(
        plan=plan,
        contenders=tuple(one for one in contenders if one.method.name not in stages.failed),
        rows=tuple(rows),
        at_speedups=tuple(one for speedup in plan.speedups for one in compare_at(rows, speedup)),
        failed=stages.failed,
        conditions=conditions(pipe, settings),
    )
    write_json(out / "results.json", comparison.to_dict())
    return comparison


class _Stages:
    """The stages of a comparison on one bench."""

    def __init__(self, bench: Bench, plan: ComparisonPlan, progress: Progress) -> None:
        self.bench = bench
        self.plan = plan
        self.progress = progress
        self.failed: dict[str, str] = {}

    def calibrate(self, methods: Sequence[Method]) -> list[Contender]:
        """All methods with all their settings, calibrated."""
        units = {
            method.name: self.bench.calibration_unit(method, self.plan.tuning_prompts, TUNING_SEED)
            for method in methods
            if method.calibrate is not None
        }
        self._run("calibrating", [(unit, name) for name, unit in units.items()])
        ids = {name: unit.id for name, unit in units.items()}
        return [
            Contender(method, ids.get(method.name), tuple(method.settings(self.bench.steps)))
            for method in methods
            if method.name not in self.failed
        ]

    def tune(self, contenders: Sequence[Contender]) -> list[Contender]:
        """The settings of each method to score: the best ones, or all if the method is not tuned."""
        speedups, cases = self.plan.speedups, self.plan.tuning_cases
        first, rest = cases[:SCREENING_PROMPTS], cases[SCREENING_PROMPTS:]
        kept = {one.method.name: list(range(len(one.settings) if one.method.tuned else 0)) for one in contenders}
        samples = self._measure("screening", contenders, kept, first)
        for name, found in samples.items():
            candidates = [candidate(index, [sample for _, sample in pairs]) for index, pairs in found.items()]
            kept[name] = [one.index for one in screen(candidates, speedups)]
        for name, more in self._measure("tuning", contenders, kept, rest).items():
            for index, pairs in more.items():
                samples[name][index] += pairs
        chosen = []
        for one in self._remaining(contenders):
            if one.method.tuned:
                found = samples[one.method.name]
                candidates = [candidate(i, [sample for _, sample in found[i]]) for i in kept[one.method.name]]
                indices = bracket(pareto_front(candidates), speedups, scored=len(self.plan.cases))
                one = replace(one, settings=tuple(one.settings[index] for index in indices))
            chosen.append(one)
        return chosen

    def score(self, contenders: Sequence[Contender]) -> list[Row]:
        """All rows, method by method, slowest setting first."""
        every = {one.method.name: list(range(len(one.settings))) for one in contenders}
        self.bench.measure([self.bench.plain_unit(self.plan.cases[0])])
        samples = self._measure("scoring", contenders, every, self.plan.cases, keep_video_of=self.plan.cases[0])
        return [
            summarize(one.method.name, one.settings[index], pairs)
            for one in self._remaining(contenders)
            for index, pairs in samples[one.method.name].items()
        ]

    def _measure(
        self,
        stage: str,
        contenders: Sequence[Contender],
        indices: dict[str, list[int]],
        cases: Sequence[Case],
        keep_video_of: Case | None = None,
    ) -> dict[str, dict[int, list[tuple[Case, Sample]]]]:
        """Samples by method and setting, measured case by case, so that all methods share the plain video."""
        wanted = []
        for case in cases:
            for one in self._remaining(contenders):
                for index in indices[one.method.name]:
                    setting, keep = one.settings[index], case == keep_video_of
                    unit = self.bench.sample_unit(one.method, one.calibration, setting, case, keep)
                    wanted.append((one, index, case, unit))
        records = self._run(stage, [(unit, one.method.name) for one, _, _, unit in wanted])
        found: dict[str, dict[int, list[tuple[Case, Sample]]]] = {
            one.method.name: {index: [] for index in indices[one.method.name]} for one in self._remaining(contenders)
        }
        for one, index, case, unit in wanted:
            if one.method.name in found:
                found[one.method.name][index].append((case, Sample(**records[unit.id].result)))
        return found

    def _run(self, stage: str, units: Sequence[tuple[Unit, str]]) -> dict[str, Record]:
        """Records by unit id. A method of which a unit failed is noted in `failed`."""
        found = self.bench.measure([unit for unit, _ in units], progress_of(stage, self.progress))
        records = {record.unit: record for record in found}
        for unit, name in units:
            if (trace := records[unit.id].traceback) and name not in self.failed:
                self.failed[name] = trace.strip().splitlines()[-1].rpartition("HopelessUnitError: ")[2]
                logger.warning("%s is left out: %s", name, self.failed[name])
                logger.debug("%s", trace)
        return records

    def _remaining(self, contenders: Sequence[Contender]) -> list[Contender]:
        return [one for one in contenders if one.method.name not in self.failed]
