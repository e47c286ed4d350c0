"""A comparison as one job: calibrate the methods, tune them on calibration prompts, score them on other prompts.

With the settings of another comparison nothing is tuned.
Tuning measures the settings of a method, first on one prompt (screening), which drops those outside the range of the
wanted speedups and those far below a faster one, then on all tuning prompts, and keeps those near the wanted speedups;
a method that is not tuned keeps all. A method fails if its calibration or a video fails.
"""

import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from galaxydit.errors import ExtrapolationWarning, FullComputeWarning, GalaxyDiTError, NoEffectWarning, refusal
from galaxydit.eval.compare.contender import Contender
from galaxydit.eval.compare.equal_compute import AtSpeedup, ScoredSetting, compare_at, score
from galaxydit.eval.compare.plan import RESULTS, ComparisonPlan
from galaxydit.eval.compare.scored_settings import ScoredSettings
from galaxydit.eval.compare.tune import Candidate, bracket, candidate, coarse, refined, screen
from galaxydit.eval.jobs.job import PLAIN, Job, calibration_of
from galaxydit.eval.jobs.maker import VideoMaker
from galaxydit.eval.jobs.record import BASELINE, VideoRecord, video_record
from galaxydit.eval.jobs.run_job import open_run, plan_run, refuse_mixed_versions
from galaxydit.eval.methods.method import Setting
from galaxydit.foreign_text import logger_of
from galaxydit.pipelines.runs import (
    Executor,
    InProcess,
    InProcesses,
    Record,
    Store,
    Unit,
    more_to_come,
    progress_of,
    results,
    run,
)
from galaxydit.pipelines.written_by import COMPARISON, write_own_json

logger = logger_of(__name__)

SCREENING_PROMPTS = 1
METRICS = ("psnr", "ssim", "si_sdr", "log_mel", "rms_ratio")
SELECTION = ("not tried", "screened", "tuned")  # steps of `CompareJob._tune`
SHOWN_VERSIONS = ("torch", "diffusers", "transformers")


@dataclass(frozen=True)
class Comparison:
    """The results of a comparison, as in results.json.

    conditions: what all results depend on. failed: the error of each method that was left out.
    at_speedups: for each wanted speedup in turn, one for each method, highest PSNR first.
    plain_video: path in the folder, of the first scored prompt and seed.
    unheard: why metrics of sound are missing, "" if all videos have them.
    dropped: of each tuned method, how many of its settings each `SELECTION` dropped.
    """

    conditions: dict[str, Any]
    plan: ComparisonPlan
    rows: tuple[ScoredSetting, ...]
    at_speedups: tuple[AtSpeedup, ...]
    failed: dict[str, str]
    plain_video: str = ""
    unheard: str = ""
    dropped: dict[str, dict[str, int]] = field(default_factory=dict)

    def at(self, speedup: float) -> list[AtSpeedup]:
        """One for each method, best first."""
        return [result for result in self.at_speedups if result.speedup == speedup]


class CompareJob:
    """A comparison in the folder `out` with the model and settings of `job`, which a later run continues or extends.

    `scored` has the settings to score in place of tuning; the plan names its digest.
    `progress` is called with the stage's name and the numbers of its finished and of all units. Raises GalaxyDiTError
    if the folder holds another comparison, or videos of other versions unless `allow_mixed_versions`.
    """

    def __init__(
        self,
        job: Job,
        contenders: Sequence[Contender],
        plan: ComparisonPlan,
        out: Path,
        progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
        executor: Executor | None = None,
        *,
        scored: ScoredSettings | None = None,
        allow_mixed_versions: bool = False,
    ) -> None:
        self.scored = scored
        if scored is not None:
            plan = replace(plan, settings_of=scored.digest)
        self.contenders, self.plan, self.out, self.progress = list(contenders), plan, out, progress
        job = replace(job, comparison=True, metrics=METRICS, video="lossless", variants=(PLAIN,))
        job = replace(job, calibration=plan.tuning_prompts)
        self.scoring, self.tuning = plan.scoring(job), plan.tuning(job)
        if plan_run(Store(out), self.scoring)[0].prompts[: len(plan.prompts)] != plan.prompts:
            raise refusal("prompts", plan.prompts[0], "those of the folder, or more", "take a new --out")
        self.store, self.allow_mixed_versions = open_run(out, self.scoring), allow_mixed_versions
        self.maker, self.executor = VideoMaker(self.tuning, self.store), executor or InProcess()
        self.failed: dict[str, str] = {}
        self.dropped: dict[str, dict[str, int]] = {}
        self._is_checked = False
        self._most: int | None = None  # generations to tune and to score, known after the first one
        self._asked: set[str] = set()  # units of the stages so far

    def run(self) -> Comparison:
        """Make all videos, and write results.json. Raises GalaxyDiTError if every method failed."""
        with warnings.catch_warnings():
            # Expected of candidates; the table shows their effect.
            for kind in (ExtrapolationWarning, FullComputeWarning, NoEffectWarning):
                warnings.simplefilter("ignore", kind)
            plain = self.tuning.units()[:1]
            first = video_record(self._run("plain", plain, [""])[0])
            (made,) = results(plain, self.store)  # raises if it failed
            methods = [each.method for each in self.contenders]
            self._most = sum(self.plan.generations(methods, made["settings"]["steps"], self.scored))
            rows, plain_video, unheard = self._score(self._tune(self._calibrate(made["settings"]["steps"])))
        if self.failed and not rows:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in self.failed.items())
            raise GalaxyDiTError(f"every method failed, so there is nothing to compare; {reasons}")
        conditions = self.store.bound("model")
        conditions["dtype"] = next(iter(conditions["transformers"].values()))["dtype"].removeprefix("torch.")
        conditions["device"] = first.device
        conditions["versions"] = {name: first.versions[name] for name in SHOWN_VERSIONS}
        at_speedups = tuple(result for speedup in self.plan.speedups for result in compare_at(rows, speedup))
        dropped = {name: counts for name, counts in self.dropped.items() if name not in self.failed}
        comparison = Comparison(
            conditions, self.plan, tuple(rows), at_speedups, self.failed, plain_video, unheard, dropped
        )
        write_own_json(self.out / RESULTS, COMPARISON, asdict(comparison))
        return comparison

    def _calibrate(self, steps: int) -> list[Contender]:
        """The contenders whose calibration did not fail, with all of their settings for this number of steps."""
        needed = {each.name: calibration_of(each.method.slug) for each in self.contenders}
        units = {name: self.tuning.calibration_unit(what) for name, what in needed.items() if what is not None}
        self._run("calibrating", list(units.values()), list(units))
        return self._remaining([replace(each, settings=tuple(each.method.settings(steps))) for each in self.contenders])

    def _tune(self, contenders: Sequence[Contender]) -> list[Contender]:
        """The contenders with the settings to score: around each wanted speedup, or with it as parameter "speedup".

        With `scored`, all settings of the other comparison.
        """
        if self.scored is not None:
            return [replace(each, settings=tuple(self.scored.by_method[each.method.name])) for each in contenders]
        near = self._narrow("screening", contenders, SCREENING_PROMPTS, refined, coarse)
        screened = self._narrow("screening", near, SCREENING_PROMPTS, screen)
        scored = len(self.plan.prompts) * len(self.plan.seeds)
        tuned = self._narrow("tuning", screened, len(self.tuning.prompts), partial(bracket, scored=scored))
        self._count_dropped(contenders, near, screened, tuned)
        return tuned

    def _count_dropped(self, *selections: Sequence[Contender]) -> None:
        """Count the settings of each tuned method that are in one selection and not in the next."""
        left = [{each.name: len(each.settings) for each in selection} for selection in selections]
        for each in selections[-1]:
            if each.method.tuned:
                counts = [now[each.name] - later[each.name] for now, later in pairwise(left)]
                self.dropped[each.name] = dict(zip(SELECTION, counts, strict=True))

    def _narrow(
        self,
        stage: str,
        contenders: Sequence[Contender],
        prompts: int,
        choose: Callable[[Sequence[Candidate], Sequence[float]], list[int]],
        first: Callable[[Sequence[Setting], Sequence[float]], list[int]] | None = None,
    ) -> list[Contender]:
        """The contenders, those of tuned methods with the settings that `choose` keeps, by rising measured speedup.

        All settings are measured; with `first` only these, so the others have no speedup and the order stays.
        """
        wanted, tuned = self.plan.speedups, [each for each in contenders if each.method.tuned]
        tried = {each.name: first(each.settings, wanted) if first else range(len(each.settings)) for each in tuned}
        some = [each.with_settings(tried[each.name]) for each in tuned]
        measured, narrowed = self._measure(stage, some, self.tuning, prompts), []
        for each in self._remaining(contenders):
            if each.method.tuned:
                variants = [each.variant(setting).name for setting in each.settings]
                candidates = [candidate(index, measured[variants[index]]) for index in tried[each.name]]
                chosen = choose(candidates, wanted)
                if first is None:
                    asking = [index for index, setting in enumerate(each.settings) if setting.get("speedup") in wanted]
                    chosen = sorted({*chosen, *asking}, key=lambda index: candidates[index].log_speedup)
                each = each.with_settings(chosen)
            narrowed.append(each)
        return narrowed

    def _score(self, contenders: Sequence[Contender]) -> tuple[list[ScoredSetting], str, str]:
        """The means of each setting on the scored prompts, the path of the first plain video, and `unheard`."""
        variants = {variant.name: variant for each in contenders for variant in map(each.variant, each.settings)}
        open_run(self.out, replace(self.scoring, variants=(PLAIN, *variants.values())))
        measured = self._measure("scoring", contenders, self.scoring, len(self.scoring.prompts), plain=True)
        baselines, seeds = measured[BASELINE], len(self.plan.seeds)
        rows = [
            score(each.name, setting, measured[each.variant(setting).name], baselines, seeds)
            for each in self._remaining(contenders)
            for setting in each.settings
        ]
        others = [record for variant, records in measured.items() if variant != BASELINE for record in records]
        reasons = [record.skipped.get("si_sdr") or record.failures.get("si_sdr", "") for record in others]
        unheard = next(filter(None, reasons), "")
        return rows, next((record.video or "" for record in baselines), ""), unheard

    def _measure(
        self, stage: str, contenders: Sequence[Contender], job: Job, prompts: int, *, plain: bool = False
    ) -> Mapping[str, list[VideoRecord]]:
        """By variant, with `plain` also `BASELINE`, the records of its videos of the first prompts that are done.

        Units go case by case, so that all methods share a plain video.
        """
        variants = [("", PLAIN)] if plain else []
        variants += [(each.name, each.variant(setting)) for each in contenders for setting in each.settings]
        cases = replace(job, prompts=job.prompts[:prompts]).units()
        if isinstance(self.executor, InProcesses):  # they do not share a plain video in memory, but in the store
            self._run(stage, [job.unit_of(case) for case in cases], [""] * len(cases))
        wanted = [(name, job.unit_of(case, variant)) for case in cases for name, variant in variants]
        # Each method is a group of its own, so that several workers share a case.
        units = [replace(unit, group=f"{unit.group}-{name}") for name, unit in wanted]
        measured: dict[str, list[VideoRecord]] = defaultdict(list)
        for record in self._run(stage, units, [name for name, _ in wanted]):
            if record.is_done:
                measured[record.data["variant"]["name"]].append(video_record(record))
        return measured

    def _run(self, stage: str, units: Sequence[Unit], names: Sequence[str]) -> list[Record]:
        """Make the units of a stage; `names` holds the contender of each, of which those with a failed unit fail."""
        there = self.store.unit_ids()
        if not self._is_checked and any(unit.id not in there for unit in units):
            self._is_checked = True
            done = [record for _, record, damage in self.store.survey(sorted(there)) if record and not damage]
            videos = [record for record in done if record.is_done and "calibrates" not in record.data]
            refuse_mixed_versions(self.store, videos, self.allow_mixed_versions)
        self._asked |= {unit.id for unit in units}
        if self._most is not None:
            is_last = stage == "scoring"
            more_to_come(self.progress, 0 if is_last else self._most - len(self._asked | there))
        progress = progress_of(stage, self.progress)
        run(units, self.maker, self.store, self.executor, progress=progress, retry_failed=True)
        records = [record for unit in units if (record := self.store.read(unit.id)) is not None]
        for record, name in zip(records, names, strict=True):
            if record.traceback and name and name not in self.failed:
                self.failed[name] = record.reason
                logger.warning("%s is left out: %s", name, record.reason)
                logger.debug("%s", record.traceback)
        return records

    def _remaining(self, contenders: Sequence[Contender]) -> list[Contender]:
        return [each for each in contenders if each.name not in self.failed]
