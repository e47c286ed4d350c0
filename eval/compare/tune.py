"""Choose which settings of a method are scored, from their results on calibration prompts.

`speedups` are the wanted ones, by compute; their range is widened at both ends by SPEEDUP_MARGIN.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from statistics import fmean, stdev
from typing import Any, TypeVar

from galaxydit.eval.methods.method import Setting
from galaxydit.pipelines.psnr import HIGHEST_PSNR
from galaxydit.pipelines.trial_result import TrialResult

SPEEDUP_MARGIN = 1.25  # settings further than this factor from all wanted speedups are dropped
STANDARD_ERRORS = 2.0  # by which a bracket is widened
DOMINANCE_MARGIN = 6.0  # dB of the screening prompt; a guess at what the other prompts cannot make up for

COARSE = 4  # of a long run of settings, every fourth is tried first
LONG_RUN = 12  # number of settings from which a run is long

T = TypeVar("T")


@dataclass(frozen=True)
class Candidate:
    """One setting of a method, by its `index`, measured on `n` videos.

    log_speedup: of 1 / the mean compute fraction; spread: standard deviation of the videos' log speedups, 0 for one.
    psnr: mean, dB. changes: whether every video differs from the plain one.
    """

    index: int
    log_speedup: float
    psnr: float
    spread: float
    n: int
    changes: bool = True


def candidate(index: int, results: Sequence[TrialResult]) -> Candidate:
    fractions = [result.compute_fraction or 1.0 for result in results]
    log_speedups = [-math.log(fraction) for fraction in fractions]
    spread = stdev(log_speedups) if len(log_speedups) > 1 else 0.0
    psnrs = [result.metrics["psnr"] for result in results]
    changes = max(psnrs) < HIGHEST_PSNR
    return Candidate(index, -math.log(fmean(fractions)), fmean(psnrs), spread, len(results), changes)


def coarse(settings: Sequence[Setting], speedups: Sequence[float]) -> list[int]:
    """Indices of the settings to try first.

    Of settings with "speedup" as only parameter, those near a wanted one; of each long run of consecutive settings that
    differ in one number only, every fourth and the last; else all.
    """
    every = range(len(settings))
    if all(setting.keys() == {"speedup"} for setting in settings):
        bounds = [(wanted / SPEEDUP_MARGIN, wanted * SPEEDUP_MARGIN) for wanted in speedups]
        near = [index for index in every if any(low <= settings[index]["speedup"] <= high for low, high in bounds)]
        return near or list(every)
    tried: list[int] = []
    for run in _runs(settings):
        tried += run if len(run) < LONG_RUN else [*run[:-1:COARSE], run[-1]]
    return tried


def _runs(settings: Sequence[Setting]) -> list[range]:
    """The indices of each run: consecutive settings that differ in one number only."""
    starts, varied = [0], set[str]()
    for index, setting in enumerate(settings):
        first = settings[starts[-1]]
        changed = {key for key in first.keys() | setting.keys() if first.get(key) != setting.get(key)}
        if len(varied | changed) > 1 or not all(isinstance(setting.get(key), int | float) for key in changed):
            starts.append(index)
            changed, varied = set(), set()
        varied |= changed
    return [range(*bounds) for bounds in pairwise([*starts, len(settings)])]


def refined(tried: Sequence[Candidate], speedups: Sequence[float]) -> list[int]:
    """Indices of the tried settings and of those between them that may lie in the wanted range.

    The settings of a run are ordered by speed, so those between two neighbours that are both slower than the range, or
    both faster, are left out. Runs meet between two tried settings.
    """
    low, high = math.log(min(speedups) / SPEEDUP_MARGIN), math.log(max(speedups) * SPEEDUP_MARGIN)
    kept = {c.index for c in tried}
    for before, after in pairwise(tried):
        slower, faster = sorted((before.log_speedup, after.log_speedup))
        if faster >= low and slower <= high:
            kept.update(range(before.index, after.index))
    return sorted(kept)


def screen(candidates: Sequence[Candidate], speedups: Sequence[float]) -> list[int]:
    """Indices of the settings in the wanted range that none dominates by `DOMINANCE_MARGIN`.

    The nearest beyond each end of the range counts as in it, and so does the nearest slower than each wanted speedup,
    because `bracket` may need it.
    """
    low, high = math.log(min(speedups) / SPEEDUP_MARGIN), math.log(max(speedups) * SPEEDUP_MARGIN)
    slower = max((c.log_speedup for c in candidates if c.log_speedup < low), default=low)
    faster = min((c.log_speedup for c in candidates if c.log_speedup > high), default=high)
    near = [c for c in candidates if slower <= c.log_speedup <= faster]
    anchors = {slower, faster}
    for speedup in speedups:
        anchors.add(max((c.log_speedup for c in near if c.log_speedup <= math.log(speedup)), default=low))
    return [c.index for c in near if c.log_speedup in anchors or not _is_dominated(c, near)]


def _is_dominated(candidate: Candidate, others: Sequence[Candidate]) -> bool:
    """Whether one of `others` is at least as fast, and better by `DOMINANCE_MARGIN`."""
    return any(
        c.changes and c.log_speedup >= candidate.log_speedup and c.psnr >= candidate.psnr + DOMINANCE_MARGIN
        for c in others
    )


def pareto_front(settings: Sequence[T], point: Callable[[T], Any] = attrgetter("log_speedup", "psnr")) -> list[T]:
    """Settings on the Pareto front, slowest first; of equal ones the first.

    `point` returns speedup and PSNR of a setting, or increasing functions of these.
    """
    front: list[T] = []
    for setting in sorted(settings, key=point, reverse=True):
        if not front or point(setting)[1] > point(front[-1])[1]:
            front.append(setting)
    return front[::-1]


def bracket(candidates: Sequence[Candidate], speedups: Sequence[float], scored: int) -> list[int]:
    """Indices of the settings to score, slowest first: those of the Pareto front around each wanted speedup.

    Each end is the nearest setting whose log speedup is a margin away from the wanted one. The margin is two standard
    errors of the difference between tuning and `scored` new videos, because a method whose decisions depend on the
    video has another speedup on other prompts. As in `at_speedup`, settings that left a video unchanged are ignored
    unless all did; if the front has no slower setting, the nearest slower one shows that its slowest is faster and
    better.
    """
    changing = [c for c in candidates if c.changes] or list(candidates)
    front = pareto_front(changing)
    margins = [STANDARD_ERRORS * c.spread * math.sqrt(1 / c.n + 1 / scored) - 1e-6 for c in front]
    chosen: set[int] = set()  # places in the front
    beaten: set[Candidate] = set()
    for speedup in speedups:
        beyond = [c.log_speedup - math.log(speedup) for c in front]
        below = [place for place, margin in enumerate(margins) if beyond[place] <= -margin]
        above = [place for place, margin in enumerate(margins) if beyond[place] >= margin]
        first = below[-1] if below else 0
        last = above[0] if above else len(front) - 1
        chosen.update(range(min(first, last), max(first, last) + 1))
        if front[0].log_speedup > math.log(speedup):
            slower = [c for c in changing if c.log_speedup < math.log(speedup)]
            beaten.update(sorted(slower, key=attrgetter("log_speedup"))[-1:])
    kept = beaten | {front[place] for place in chosen}
    return [c.index for c in sorted(kept, key=attrgetter("log_speedup", "index"))]
