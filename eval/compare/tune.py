"""Choose the settings of a method to score, from their results on calibration prompts. Numbers only."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from statistics import fmean, stdev
from typing import Any, TypeVar

from galaxydit.eval.compare.bench import Sample
from galaxydit.eval.compare.method import Setting

SPEEDUP_MARGIN = 1.25  # settings further than this factor from all wanted speedups are dropped
PSNR_MARGIN = 2.0  # dB; settings further behind an equally fast setting are dropped after the first prompts
STANDARD_ERRORS = 2.0  # by which a bracket is widened

COARSE = 4  # settings of a long grid from one that is tried first to the next
LONG_GRID = 12

T = TypeVar("T")


@dataclass(frozen=True)
class Candidate:
    """One setting of a method, measured on the prompts so far.

    Attributes:
        index: among the method's settings.
        log_speedup, psnr: log of the speedup by compute, and mean in dB, of `n` samples.
        spread: standard deviation of `log_speedup` over prompts; 0 if the compute is fixed.
    """

    index: int
    log_speedup: float
    psnr: float
    spread: float
    n: int


def candidate(index: int, samples: Sequence[Sample]) -> Candidate:
    """Summarize the samples of one setting."""
    log_speedups = [-math.log(sample.compute_fraction) for sample in samples]
    log_speedup = -math.log(fmean(sample.compute_fraction for sample in samples))
    spread = stdev(log_speedups) if len(log_speedups) > 1 else 0.0
    return Candidate(index, log_speedup, fmean(sample.psnr for sample in samples), spread, len(samples))


def coarse(settings: Sequence[Setting], speedups: Sequence[float]) -> list[int]:
    """Indices of the settings to try first: all, but of settings that ask for a speedup only those near a wanted one,
    and of a long grid of one number each fourth and the last.
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
    """Indices of the tried settings, and of all between two neighbours that bracket part of the wanted range.

    The settings of a method are ordered from accurate to fast, so the others are out of the range, too.
    """
    low, high = math.log(min(speedups) / SPEEDUP_MARGIN), math.log(max(speedups) * SPEEDUP_MARGIN)
    kept = {c.index for c in tried}
    for before, after in pairwise(tried):
        slower, faster = sorted((before.log_speedup, after.log_speedup))
        if faster >= low and slower <= high:
            kept.update(range(before.index, after.index))
    return sorted(kept)


def screen(candidates: Sequence[Candidate], speedups: Sequence[float]) -> list[int]:
    """Indices of the settings that are near a wanted speedup and not far behind another setting in PSNR.

    The nearest settings beyond the wanted range stay, so that they bracket it.
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
    """Settings that no other setting matches in both numbers of `point`, slowest first; of equal settings the first."""
    front: list[T] = []
    for setting in sorted(settings, key=point, reverse=True):
        if not front or point(setting)[1] > point(front[-1])[1]:
            front.append(setting)
    return front[::-1]


def bracket(candidates: Sequence[Candidate], speedups: Sequence[float], scored: int) -> list[int]:
    """Indices of the settings to score, those of the Pareto front around each speedup, slowest first.

    A method whose decisions depend on the sample has another speedup on other prompts. So the ends of a bracket lie
    beyond the wanted speedup by two standard errors of the difference between the tuning prompts and `scored` other
    ones. If the speedup is out of reach, the nearest setting stays.
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
