"""Control: fixed schedules found on calibration prompts.

Two searches: dynamic programming over the errors of recorded trajectories, which is exact for the recorded errors but
ignores how they accumulate, and from there a local search that scores every candidate by real generations.
"""

import json
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.calibration.generation_observer import record_sample
from galaxydit.calibration.recording import Recording
from galaxydit.calibration.schedule_error import ScheduleError
from galaxydit.calibration.search import PLANNER_VERSION, best_schedules
from galaxydit.eval.compare.bench import conditions
from galaxydit.eval.compare.identity import prediction_identity
from galaxydit.eval.compare.method import Attached, Method, Setting
from galaxydit.eval.compare.methods.uniform_skip import counts_around, even_schedule, following, full_step_counts
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.psnr import psnr
from galaxydit.pipelines.runs import Store, Unit, finished, hash_of
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.profiles.schema import ErrorPropagation

ORDER = 1
SEARCH_PROMPTS = 4
FARTHEST_MOVE = 4  # steps
GIVE_UP = 0.5  # dB behind the best schedule on the prompts so far, at which a candidate is dropped
GENERATIONS = 800

FullSteps = tuple[int, ...]


@dataclass(frozen=True)
class SearchResult:
    """The best schedule, its score on each prompt in dB, and the number of generations spent."""

    schedule: FullSteps
    scores: tuple[float, ...]
    generations: int


def local_search(
    start: FullSteps, steps: int, prompts: int, score: Callable[[FullSteps, int], float], budget: int, seed: int = 0
) -> SearchResult:
    """Move one full step at a time, and keep a move that raises the mean score.

    Args:
        start: indices of the full steps; step 0 is among them and stays.
        steps: number of steps of the generation.
        prompts: number of prompts; a candidate is dropped once it falls clearly behind on the first of them.
        score: returns the score of a schedule on one prompt; higher is better.
        budget: largest number of calls of `score`.
        seed: seed of the moves.
    """
    draw = random.Random(seed)
    best, used = start, 0
    scores = []
    for prompt in range(prompts):
        scores.append(score(best, prompt))
        used += 1
    tried = {best}
    for _ in range(100 * budget):
        if used + prompts > budget:
            break
        candidate = _move(best, steps, draw)
        if candidate in tried:
            continue
        tried.add(candidate)
        reached: list[float] = []
        while len(reached) < prompts and sum(reached) > sum(scores[: len(reached)]) - GIVE_UP * max(1, len(reached)):
            reached.append(score(candidate, len(reached)))
            used += 1
        if len(reached) == prompts and fmean(reached) > fmean(scores):
            best, scores = candidate, reached
    return SearchResult(best, tuple(scores), used)


def _move(schedule: FullSteps, steps: int, draw: random.Random) -> FullSteps:
    """Move one full step other than the first by a few steps; return the schedule itself if the place is taken."""
    old = draw.choice(schedule[1:])
    new = old + draw.choice((-1, 1)) * draw.randint(1, FARTHEST_MOVE)
    if not 0 < new < steps or new in schedule:
        return schedule
    return tuple(sorted({*schedule, new} - {old}))


def _record(
    pipe: DiffusionPipeline, prompts: Sequence[str], settings: GenerationSettings, seed: int
) -> list[Recording]:
    return [record_sample(pipe, prompt, settings, seed + index)[0] for index, prompt in enumerate(prompts)]


def _planned(recordings: Sequence[Recording], counts: Sequence[int]) -> dict[str, FullSteps]:
    """Schedules by number of full steps, as JSON keys; evenly spaced if none keeps within the longest gap."""
    steps, found = recordings[0].steps, best_schedules(ScheduleError(recordings), max(counts), ErrorPropagation())
    return {str(count): found[count][0] if count in found else even_schedule(steps, count) for count in counts}


def _attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    return following(pipe, calibration[str(setting["full_steps"])], ORDER)


def search_methods(
    speedups: Sequence[float], generations: int = GENERATIONS, kept: Path | None = None
) -> tuple[Method, Method]:
    """Both searches; the local one spends `generations` on the schedules around these speedups.

    Scores are stored in the folder `kept`, so that a search that was killed repeats its moves without generating.
    """

    def both(steps: int) -> tuple[int, ...]:
        return tuple(sorted({*full_step_counts(steps), *counts_around(steps, speedups)}, reverse=True))

    def plan(pipe: DiffusionPipeline, prompts: Sequence[str], settings: GenerationSettings, seed: int) -> Any:
        recordings = _record(pipe, prompts, settings, seed)
        return _planned(recordings, both(recordings[0].steps))

    def search(pipe: DiffusionPipeline, prompts: Sequence[str], settings: GenerationSettings, seed: int) -> Any:
        recordings = _record(pipe, prompts, settings, seed)
        steps = recordings[0].steps
        counts = counts_around(steps, speedups)
        chosen = prompts[:SEARCH_PROMPTS]
        plain = [generate(pipe, prompt, settings, seed + index).frames for index, prompt in enumerate(chosen)]
        key = hash_of([conditions(pipe, settings), prediction_identity(pipe), seed])
        store = Store(kept) if kept is not None else None
        if store is not None:
            store.create("search", {})

        def score(schedule: FullSteps, index: int) -> float:
            unit = Unit("score", {"key": key, "schedule": schedule, "prompt": chosen[index], "index": index})
            if store is not None and (known := store.read_sound(unit.id)) is not None:
                return float(known.result)
            with following(pipe, schedule, ORDER):
                video = generate(pipe, chosen[index], settings, seed + index).frames
            value = psnr(video, plain[index])
            if store is not None:
                store.commit(finished(unit, value), {})
            return value

        return {
            count: local_search(start, steps, len(chosen), score, generations // len(counts)).schedule
            for count, start in _planned(recordings, counts).items()
        }

    def settings(counts: Callable[[int], Sequence[int]]) -> Callable[[int], Sequence[Setting]]:
        return lambda steps: [{"full_steps": count} for count in counts(steps)]

    def identity(pipe: DiffusionPipeline) -> str:
        return json.dumps([prediction_identity(pipe), PLANNER_VERSION, list(speedups), generations])

    return (
        Method("planned schedule", "control", settings(both), _attach, plan, identity=identity),
        Method(
            "searched schedule",
            "control",
            settings(lambda steps: counts_around(steps, speedups)),
            _attach,
            search,
            identity=identity,
        ),
    )
