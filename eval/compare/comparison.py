"""The whole comparison: calibrate, tune on calibration prompts, score on others."""

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.eval.arena.bench import Bench, Job, Sample, conditions
from galaxydit.eval.arena.method import Method, Setting
from galaxydit.eval.arena.scores import AtSpeedup, Row, compare_at, summarize
from galaxydit.eval.arena.tune import bracket, candidate, pareto_front, screen
from galaxydit.pipelines.settings import GenerationSettings

logger = logging.getLogger(__name__)

SCREENING_PROMPTS = 1
TUNING_SEED = 50_000
SCORING_SEED = 100_000  # noise that neither tuning nor any calibration sees
SPEEDUP_RANGE = (1.05, 10.0)

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Plan:
    """What is compared.

    Attributes:
        prompts: to score on; prompt i with seed s starts from the noise of 100,000 + s + i.
        seeds: to score with.
        calibration_prompts: none of them is scored: a profile may have been measured on any.
        speedups: wanted, by compute, each from 1.05 to 10.
        tuned: so many of the calibration prompts are used here, from the first.
    """

    prompts: tuple[str, ...]
    seeds: tuple[int, ...]
    calibration_prompts: tuple[str, ...]
    speedups: tuple[float, ...]
    tuned: int = 8

    def __post_init__(self) -> None:
        for name in ("prompts", "seeds", "calibration_prompts", "speedups"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise ValueError(f"{name} is {list(values)}, allowed are one or more different ones")
        low, high = SPEEDUP_RANGE
        for speedup in self.speedups:
            if not low <= speedup <= high:
                raise ValueError(f"speedups holds {speedup:g}, allowed are numbers from {low:g} to {high:g}")
        if not 1 <= self.tuned <= len(self.calibration_prompts):
            raise ValueError(
                f"tuned is {self.tuned}, allowed are 1 to {len(self.calibration_prompts)}, all calibration prompts"
            )
        seen = set(self.prompts) & set(self.calibration_prompts)
        if seen:
            raise ValueError(
                f"{len(seen)} of the prompts to score on are calibration prompts, the first {min(seen)!r}; allowed is "
                "none, because settings tuned on a prompt know it"
            )

    @property
    def jobs(self) -> tuple[Job, ...]:
        """Prompt by prompt, with all seeds each."""
        pairs = ((index, seed) for index in range(len(self.prompts)) for seed in self.seeds)
        return tuple(Job(self.prompts[index], SCORING_SEED + seed + index) for index, seed in pairs)

    @property
    def tuning_prompts(self) -> tuple[str, ...]:
        """To calibrate and tune on."""
        return self.calibration_prompts[: self.tuned]

    @property
    def tuning_jobs(self) -> tuple[Job, ...]:
        return tuple(Job(prompt, TUNING_SEED + index) for index, prompt in enumerate(self.tuning_prompts))


@dataclass(frozen=True)
class Contender:
    """A method with its calibration and the settings that are scored."""

    method: Method
    calibration: Any
    settings: tuple[Setting, ...]


@dataclass(frozen=True)
class Comparison:
    """A finished comparison. `failed` tells for methods that raised an error, and were left out, which one."""

    plan: Plan
    contenders: tuple[Contender, ...]
    rows: tuple[Row, ...]
    at_speedups: tuple[AtSpeedup, ...]
    failed: dict[str, str]
    conditions: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for results.json."""
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
    plan: Plan,
    settings: GenerationSettings,
    out: Path,
    progress: Progress = lambda stage, done, total: None,
) -> Comparison:
    """Calibrate and tune every method on the plan's tuning prompts, score it on the others, write results.json.

    Everything measured is kept below `out`; started again, the run goes on where it was, with other methods, speedups
    or prompts too. A method that raises an error is left out and named with it in the results.
    """
    arena = _Arena(Bench(pipe, settings, out), plan, progress)
    contenders = arena.tune(arena.calibrate(methods))
    rows = arena.score(contenders)
    comparison = Comparison(
        plan=plan,
        contenders=tuple(one for one in contenders if one.method.name not in arena.failed),
        rows=tuple(rows),
        at_speedups=tuple(one for speedup in plan.speedups for one in compare_at(rows, speedup)),
        failed=arena.failed,
        conditions=conditions(pipe, settings),
    )
    text = json.dumps(comparison.to_dict(), indent=1, allow_nan=False) + "\n"
    (out / "results.json").write_text(text, encoding="utf-8")
    return comparison


class _Arena:
    """The stages of a run on one bench."""

    def __init__(self, bench: Bench, plan: Plan, progress: Progress) -> None:
        self.bench = bench
        self.plan = plan
        self.progress = progress
        self.failed: dict[str, str] = {}

    def calibrate(self, methods: Sequence[Method]) -> list[Contender]:
        """All methods with all their settings."""
        contenders = []
        for index, method in enumerate(methods):
            self.progress("calibrating", index, len(methods))
            try:
                calibration = self.bench.calibrate(method, self.plan.tuning_prompts, TUNING_SEED)
            except Exception as error:
                self._fail(method, error)
                continue
            contenders.append(Contender(method, calibration, tuple(method.settings(self.bench.steps))))
        self.progress("calibrating", len(methods), len(methods))
        return contenders

    def tune(self, contenders: Sequence[Contender]) -> list[Contender]:
        """The settings of each method that are worth scoring."""
        speedups, jobs = self.plan.speedups, self.plan.tuning_jobs
        first, rest = jobs[:SCREENING_PROMPTS], jobs[SCREENING_PROMPTS:]
        kept: dict[str, list[int]] = {one.method.name: list(range(len(one.settings))) for one in contenders}
        samples = self._measure("screening", contenders, kept, first)
        for name, found in samples.items():
            candidates = [candidate(index, [sample for _, sample in pairs]) for index, pairs in found.items()]
            kept[name] = [one.index for one in screen(candidates, speedups)]
        for name, more in self._measure("tuning", contenders, kept, rest).items():
            for index, pairs in more.items():
                samples[name][index] += pairs
        chosen = []
        for one in self._standing(contenders):
            found = samples[one.method.name]
            candidates = [candidate(i, [sample for _, sample in found[i]]) for i in kept[one.method.name]]
            indices = bracket(pareto_front(candidates), speedups, scored=len(self.plan.jobs))
            chosen.append(Contender(one.method, one.calibration, tuple(one.settings[index] for index in indices)))
        return chosen

    def score(self, contenders: Sequence[Contender]) -> list[Row]:
        """All rows, method by method, slowest setting first."""
        every = {one.method.name: list(range(len(one.settings))) for one in contenders}
        samples = self._measure("scoring", contenders, every, self.plan.jobs, keep_frames_of=self.plan.jobs[0])
        return [
            summarize(one.method.name, one.settings[index], pairs)
            for one in self._standing(contenders)
            for index, pairs in samples[one.method.name].items()
        ]

    def _measure(
        self,
        stage: str,
        contenders: Sequence[Contender],
        indices: dict[str, list[int]],
        jobs: Sequence[Job],
        keep_frames_of: Job | None = None,
    ) -> dict[str, dict[int, list[tuple[Job, Sample]]]]:
        """Samples by method and setting, job by job, so that one plain video serves all and a machine's moods too."""
        found: dict[str, dict[int, list[tuple[Job, Sample]]]] = {
            one.method.name: {index: [] for index in indices[one.method.name]} for one in contenders
        }
        total, done = len(jobs) * sum(len(rows) for rows in found.values()), 0
        for job in jobs:
            for one in contenders:
                name = one.method.name
                for index in indices[name]:
                    self.progress(stage, done, total)
                    done += 1
                    if name in self.failed:
                        continue
                    try:
                        sample = self.bench.sample(
                            one.method, one.settings[index], one.calibration, job, keep_frames=job == keep_frames_of
                        )
                    except Exception as error:
                        self._fail(one.method, error)
                        continue
                    found[name][index].append((job, sample))
        self.progress(stage, done, total)
        return {name: rows for name, rows in found.items() if name not in self.failed}

    def _standing(self, contenders: Sequence[Contender]) -> list[Contender]:
        return [one for one in contenders if one.method.name not in self.failed]

    def _fail(self, method: Method, error: Exception) -> None:
        self.failed[method.name] = f"{type(error).__name__}: {' '.join(str(error).split())}"
        logger.warning("%s is left out: %s", method.name, self.failed[method.name])
        logger.debug("where it happened", exc_info=error)
