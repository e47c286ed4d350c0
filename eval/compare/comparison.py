"""The whole comparison: calibrate, tune on calibration prompts, score on other prompts.

A method is one way to generate a video faster, a setting holds its parameters, and a contender is a method with its
remaining settings. Tuning measures the settings of a method, first on one prompt (screening), then on all tuning
prompts, and keeps those near the wanted speedups; a method that is not tuned (`Method.tuned`) keeps all settings.
Scoring measures the kept settings. A case is a prompt with the seed of its noise, a sample holds the measurements of
one generation, and a unit is one piece of work of the bench, such as one generation. A method fails if its calibration
or one of its generations raises an error.
"""

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
from galaxydit.eval.compare.tune import Candidate, bracket, candidate, coarse, refined, screen
from galaxydit.files import write_json
from galaxydit.pipelines.runs import Executor, Record, Unit, progress_of
from galaxydit.pipelines.settings import GenerationSettings

logger = logging.getLogger(__name__)

SCREENING_PROMPTS = 1

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Contender:
    """A method in the comparison, with its calibration and its remaining settings.

    Attributes:
        calibration: id of the unit of the method's calibration; None without calibration.
        settings: before tuning, all settings of the method; after tuning, only the settings to score.
    """

    method: Method
    calibration: str | None
    settings: tuple[Setting, ...]

    def with_settings(self, indices: Sequence[int]) -> "Contender":
        """A copy of the contender with only the settings at these indices of its `settings`."""
        return replace(self, settings=tuple(self.settings[index] for index in indices))


@dataclass(frozen=True)
class Comparison:
    """The results of a comparison of methods.

    Attributes:
        plan: prompts, seeds and wanted speedups.
        contenders: methods that did not fail, with their scored settings.
        rows: a `Row` for each scored setting of each contender, in their order: mean compute fraction, seconds, PSNR
            and SSIM over all scored prompts and seeds.
        at_speedups: for each wanted speedup in turn, an `AtSpeedup` for each method, highest PSNR first: PSNR, SSIM and
            speedup by seconds, interpolated between the method's settings. Methods that miss the speedup come last.
        failed: maps the name of each method that was left out to its error.
        conditions: what all results depend on, as JSON data, such as pipeline, weights, generation settings, device and
            package versions (`Bench.conditions`).
    """

    plan: ComparisonPlan
    contenders: tuple[Contender, ...]
    rows: tuple[Row, ...]
    at_speedups: tuple[AtSpeedup, ...]
    failed: dict[str, str]
    conditions: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """JSON data for results.json: all fields but `contenders`.

        Each of `rows` also has `source`, the paper or project of its method as text, such as "arXiv 2411.19108".
        """
        sources = {contender.method.name: contender.method.source for contender in self.contenders}
        return {
            "conditions": self.conditions,
            "plan": asdict(self.plan),
            "rows": [{"source": sources[row.method]} | asdict(row) for row in self.rows],
            "at_speedups": [asdict(result) for result in self.at_speedups],
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
    """Calibrate and tune every method on the plan's tuning prompts, score it on the plan's prompts, write results.json.

    All results are stored below `out`. A later run reuses them, also with other methods, speedups or prompts. A method
    that raises an error is left out and reported in `Comparison.failed`. `progress` is called with the stage's name,
    the number of its units that are done or failed, and the number of all its units. `executor` runs the workers that
    make the units, by default in this process. Each worker calls `load`, which returns the same pipeline there, by
    default `pipe`.

    Raises GalaxyDiTError if `settings` name no number of steps, for a pipeline with two transformers, and if every
    method failed.
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
        at_speedups=tuple(result for speedup in plan.speedups for result in compare_at(rows, speedup)),
        failed=stages.failed,
        conditions=bench.conditions,
    )
    write_json(out / "results.json", comparison.to_dict())
    return comparison


class _Stages:
    """The stages of a comparison: calibrate, tune and score methods on one bench.

    `progress` is called with the stage's name, the number of its units that are done or failed, and the number of all
    its units. `failed` maps the name of each failed method to the text of its first error.
    """

    def __init__(self, bench: Bench, plan: ComparisonPlan, progress: Progress) -> None:
        self.bench, self.plan, self.progress = bench, plan, progress
        self.failed: dict[str, str] = {}

    def calibrate(self, methods: Sequence[Method]) -> list[Contender]:
        """Calibrate the methods that need it. Return every method that did not fail, with all of its settings."""
        units = {
            method.name: self.bench.calibration_unit(method, self.plan.tuning_prompts, TUNING_SEED)
            for method in methods
            if method.calibrate is not None
        }
        self._run("calibrating", list(units.values()), list(units))
        ids, steps = {name: unit.id for name, unit in units.items()}, self.bench.steps
        return self.remaining([Contender(each, ids.get(each.name), tuple(each.settings(steps))) for each in methods])

    def tune(self, contenders: Sequence[Contender]) -> list[Contender]:
        """The contenders that did not fail, with the settings to score.

        For a tuned method, these are the settings around each wanted speedup on the Pareto front of speedup and PSNR
        (`bracket`), and the settings whose parameter "speedup" is a wanted speedup. Other methods keep all settings.
        """
        speedups, cases, scored = self.plan.speedups, self.plan.tuning_cases, len(self.plan.cases)
        first = cases[:SCREENING_PROMPTS]
        near = self._near(contenders, first)
        screened = self._narrow("screening", near, first, lambda candidates: screen(candidates, speedups))
        return self._narrow("tuning", screened, cases, lambda candidates: bracket(candidates, speedups, scored))

    def score(self, contenders: Sequence[Contender]) -> list[Row]:
        """One row for each setting of each contender, a mean over the scoring cases, in the order of the contenders.

        A method that fails has no rows; `failed` says why.
        """
        self.bench.measure([self.bench.plain_unit(self.plan.cases[0])])
        samples = self._measure("scoring", contenders, self.plan.cases, keep_video_of=self.plan.cases[0])
        return [
            summarize(contender.method.name, setting, measured, len(self.plan.seeds))
            for contender in self.remaining(contenders)
            for setting, measured in zip(contender.settings, samples[contender.method.name], strict=True)
        ]

    def remaining(self, contenders: Sequence[Contender]) -> list[Contender]:
        """The contenders without those whose method failed in any stage so far (`failed`)."""
        return [contender for contender in contenders if contender.method.name not in self.failed]

    def _near(self, contenders: Sequence[Contender], cases: Sequence[Case]) -> list[Contender]:
        """The contenders that did not fail, with the settings that `tune` then screens.

        First, some settings of each tuned method (`coarse`) are measured on `cases`. The result has these settings, and
        the unmeasured settings between two neighbours of them, unless both measured speedups are below the wanted range
        or both are above it (`refined`). The range is from the lowest wanted speedup / 1.25 to the highest * 1.25.
        Contenders whose method is not tuned keep all settings.
        """
        tuned = [contender for contender in contenders if contender.method.tuned]
        tried = {each.method.name: coarse(each.settings, self.plan.speedups) for each in tuned}
        some = [each.with_settings(tried[each.method.name]) for each in tuned]
        samples, near = self._measure("screening", some, cases), []
        for contender in self.remaining(contenders):
            if contender in tuned:
                name = contender.method.name
                candidates = [candidate(*of_one) for of_one in zip(tried[name], samples[name], strict=True)]
                contender = contender.with_settings(refined(candidates, self.plan.speedups))
            near.append(contender)
        return near

    def _narrow(
        self,
        stage: str,
        contenders: Sequence[Contender],
        cases: Sequence[Case],
        choose: Callable[[Sequence[Candidate]], list[int]],
    ) -> list[Contender]:
        """The contenders that did not fail, those of tuned methods with the settings that `choose` keeps.

        `choose` is called once for each contender of a tuned method. It receives the measurements of the contender's
        settings on `cases`, one `Candidate` for each setting, and returns the indices of settings. Settings whose
        parameter "speedup" is a wanted speedup are kept, too. Kept settings are sorted by rising measured speedup.
        Contenders whose method is not tuned keep all settings. `stage` is the name of the stage for `progress`.
        """
        samples = self._measure(stage, [contender for contender in contenders if contender.method.tuned], cases)
        narrowed = []
        for contender in self.remaining(contenders):
            if contender.method.tuned:
                candidates = [candidate(index, results) for index, results in enumerate(samples[contender.method.name])]
                settings, wanted = contender.settings, self.plan.speedups
                asking = [index for index, setting in enumerate(settings) if setting.get("speedup") in wanted]
                chosen = sorted({*choose(candidates), *asking}, key=lambda index: candidates[index].log_speedup)
                contender = contender.with_settings(chosen)
            narrowed.append(contender)
        return narrowed

    def _measure(
        self, stage: str, contenders: Sequence[Contender], cases: Sequence[Case], keep_video_of: Case | None = None
    ) -> dict[str, list[list[Sample]]]:
        """By method name, for each setting of the contender in order, the measurements of its generations.

        These are one `Sample` for each case, without the cases whose generation failed. The videos of the case
        `keep_video_of` are stored. Units go case by case, so that all methods share the plain video of a case. `stage`
        is the name of the stage for `progress`.
        """
        wanted = [(case, each, index) for case in cases for each in contenders for index in range(len(each.settings))]
        units = [
            self.bench.sample_unit(each.method, each.calibration, each.settings[index], case, case == keep_video_of)
            for case, each, index in wanted
        ]
        names = [each.method.name for _, each, _ in wanted]
        records = self._run(stage, units, names)
        samples: dict[str, list[list[Sample]]] = {each.method.name: [[] for _ in each.settings] for each in contenders}
        for (*_, index), name, record in zip(wanted, names, records, strict=True):
            if record.is_done:
                samples[name][index].append(Sample(**record.result))
        return samples

    def _run(self, stage: str, units: Sequence[Unit], names: Sequence[str]) -> list[Record]:
        """Make the units of a stage and return their records; `names` holds the method's name for each unit.

        A method with a failed unit is added to `failed`.
        """
        records = self.bench.measure(units, progress_of(stage, self.progress))
        for record, name in zip(records, names, strict=True):
            if record.traceback and name not in self.failed:
                self.failed[name] = record.reason
                logger.warning("%s is left out: %s", name, self.failed[name])
                logger.debug("%s", record.traceback)
        return records
