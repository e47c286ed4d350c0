"""Choose which settings of a method are scored, from the results of the settings on calibration prompts.

Speedups are by compute. The arguments `speedups` are the wanted speedups of the `ComparisonPlan`; the wanted range
reaches from the lowest to the highest of them, widened at both ends by the factor SPEEDUP_MARGIN (1.25). A sample
is one measured generation with a method at one setting.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from statistics import fmean, stdev
from typing import Any, TypeVar

from galaxydit.eval.methods.method import Setting
from galaxydit.pipelines.trial_result import TrialResult

SPEEDUP_MARGIN = 1.25  # settings further than this factor from all wanted speedups are dropped
PSNR_MARGIN = 2.0  # dB; settings further behind an equally fast setting are dropped after the first prompts
STANDARD_ERRORS = 2.0  # by which a bracket is widened

COARSE = 4  # of a long grid, every fourth setting is tried first
LONG_GRID = 12  # number of settings from which a grid is long

T = TypeVar("T")


@dataclass(frozen=True)
class Candidate:
    """One setting of a method, measured on the calibration prompts that were run so far.

    Attributes:
        index: index of the setting among the method's settings.
        log_speedup: natural logarithm of the speedup, which is 1 / the mean compute fraction of the samples.
        psnr: mean of the samples, dB.
        spread: standard deviation of the samples' log speedups; 0 for one sample.
        n: number of samples.
    """

    index: int
    log_speedup: float
    psnr: float
    spread: float
    n: int


def candidate(index: int, results: Sequence[TrialResult]) -> Candidate:
    """The candidate of the results of one setting, which has this index among the method's settings."""
    fractions = [result.compute_fraction or 1.0 for result in results]
    log_speedups = [-math.log(fraction) for fraction in fractions]
    spread = stdev(log_speedups) if len(log_speedups) > 1 else 0.0
    psnr = fmean(result.metrics["psnr"] for result in results)
    return Candidate(index, -math.log(fmean(fractions)), psnr, spread, len(results))


def coarse(settings: Sequence[Setting], speedups: Sequence[float]) -> list[int]:
    """Indices of the settings to try first; `settings` are all of one method.

    If each has "speedup" as its only parameter: those within the factor SPEEDUP_MARGIN of a wanted speedup, or all if
    there are none. Of other settings with a single parameter, if they are LONG_GRID (12) or more: every fourth and the
    last. Else all.
    """
    every = range(len(settings))
    if all(setting.keys() == {"speedup"} for setting in settings):
        bounds = [(wanted / SPEEDUP_MARGIN, wanted * SPEEDUP_MARGIN) for wanted in speedups]
        near = [index for index in every if any(low <= settings[index]["speedup"] <= high for low, high in bounds)]
        return near or list(every)
    if len(settings) < LONG_GRID or len({key for setting in settings for key in setting}) > 1:
        return list(every)
    return [*every[:-1:COARSE], every[-1]]


def refined(tried: Sequence[Candidate], speedups: Sequence[float]) -> list[int]:
    """Indices of the tried settings, and of the settings between them that may lie in the wanted range.

    `tried` are the measured settings, which `coarse` chose, by rising `Candidate.index`. All indices are those among
    the method's settings.

    The settings of a method are ordered from accurate to fast. So settings between two tried neighbours are left out if
    both neighbours are slower than the range, or both are faster.
    """
    low, high = math.log(min(speedups) / SPEEDUP_MARGIN), math.log(max(speedups) * SPEEDUP_MARGIN)
    kept = {c.index for c in tried}
    for before, after in pairwise(tried):
        slower, faster = sorted((before.log_speedup, after.log_speedup))
        if faster >= low and slower <= high:
            kept.update(range(before.index, after.index))
    return sorted(kept)


def screen(candidates: Sequence[Candidate], speedups: Sequence[float]) -> list[int]:
    """Indices of the settings in the wanted range, without those that an equally fast or faster setting there exceeds
    in PSNR by more than PSNR_MARGIN (2 dB).

    The nearest setting beyond each end of the range counts as in the range, so that the settings enclose the range.
    """
    low, high = math.log(min(speedups) / SPEEDUP_MARGIN), math.log(max(speedups) * SPEEDUP_MARGIN)
    slower = max((c.log_speedup for c in candidates if c.log_speedup < low), default=low)
    faster = min((c.log_speedup for c in candidates if c.log_speedup > high), default=high)
    inside = [c for c in candidates if slower <= c.log_speedup <= faster]
    return [
        c.index
        for c in inside
        if not any(o.log_speedup >= c.log_speedup and o.psnr > c.psnr + PSNR_MARGIN for o in inside)
    ]


def pareto_front(settings: Sequence[T], point: Callable[[T], Any] = attrgetter("log_speedup", "psnr")) -> list[T]:
    """Settings on the Pareto front, slowest first: no other setting is at least as good in both numbers of `point`.

    `point` returns speedup and PSNR of a setting, or increasing functions of these; by default `log_speedup` and `psnr`
    of a `Candidate`. Of settings that are equal in both numbers, the first is kept.
    """
    front: list[T] = []
    for setting in sorted(settings, key=point, reverse=True):
        if not front or point(setting)[1] > point(front[-1])[1]:
            front.append(setting)
    return front[::-1]


def bracket(candidates: Sequence[Candidate], speedups: Sequence[float], scored: int) -> list[int]:
    """Indices of the settings to score, slowest first: all settings in the bracket of any of the `speedups`.

    The bracket of a speedup holds the settings of the Pareto front from a slower to a faster end. Each end is the
    nearest setting whose log speedup is at least a margin from the log of the wanted speedup, or the outermost setting
    of the front if none is so far. The margin is needed because a method whose decisions depend on the sample has
    another speedup on other prompts. Each setting has its own margin: two standard errors of the difference between its
    mean log speedup on the tuning samples and its mean log speedup in the scoring, which makes `scored` new samples of
    each setting.
    """
    front = pareto_front(candidates)
    margins = [STANDARD_ERRORS * c.spread * math.sqrt(1 / c.n + 1 / scored) - 1e-6 for c in front]
    chosen: set[int] = set()  # places in the front
    for speedup in speedups:
        beyond = [c.log_speedup - math.log(speedup) for c in front]
        below = [place for place, margin in enumerate(margins) if beyond[place] <= -margin]
        above = [place for place, margin in enumerate(margins) if beyond[place] >= margin]
        first = below[-1] if below else 0
        last = above[0] if above else len(front) - 1
        chosen.update(range(min(first, last), max(first, last) + 1))
    return [front[place].index for place in sorted(chosen)]
