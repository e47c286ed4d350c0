"""Which settings of a method are worth scoring: chosen on calibration prompts, in numbers only."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from galaxydit.eval.arena.bench import Sample

ROOM = 1.25  # settings this factor slower or faster than any wanted speedup are not looked at any further
BEHIND = 2.0  # dB that a setting may lie behind another one that is as fast, after the first prompts
SURE = 2.0  # standard errors


@dataclass(frozen=True)
class Candidate:
    """A setting on the prompts so far.

    Attributes:
        index: among the method's settings.
        pace: log of the speedup by compute.
        psnr: mean, dB.
        spread: standard deviation of `pace` from prompt to prompt; 0 where a method's compute is fixed.
        n: number of samples.
    """

    index: int
    pace: float
    psnr: float
    spread: float
    n: int


def candidate(index: int, samples: Sequence[Sample]) -> Candidate:
    """What the samples of one setting say."""
    paces = [-math.log(sample.compute_fraction) for sample in samples]
    pace = -math.log(fmean(sample.compute_fraction for sample in samples))
    spread = stdev(paces) if len(paces) > 1 else 0.0
    return Candidate(index, pace, fmean(sample.psnr for sample in samples), spread, len(samples))


def screen(candidates: Sequence[Candidate], speedups: Sequence[float]) -> list[Candidate]:
    """Drop what cannot be chosen: far slower or faster than all wanted speedups, or far behind another setting.

    The nearest settings outside of the wanted range stay, so that it is bracketed.
    """
    low, high = math.log(min(speedups) / ROOM), math.log(max(speedups) * ROOM)
    slower = max((c.pace for c in candidates if c.pace < low), default=low)
    faster = min((c.pace for c in candidates if c.pace > high), default=high)
    inside = [c for c in candidates if slower <= c.pace <= faster]
    return [c for c in inside if not any(o.pace >= c.pace and o.psnr > c.psnr + BEHIND for o in inside)]


def pareto_front(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those that no other one equals or beats in both speed and PSNR, slowest first; of equal ones the first."""
    front: list[Candidate] = []
    for one in sorted(candidates, key=lambda c: (-c.pace, -c.psnr, c.index)):
        if not front or one.psnr > front[-1].psnr:
            front.append(one)
    return front[::-1]


def bracket(front: Sequence[Candidate], speedups: Sequence[float], scored: int) -> list[int]:
    """The settings to score for these speedups: those of the front that lie around each.

    A method that decides by sample is as fast on other prompts only up to chance, so that the settings at the ends of a
    bracket lie beyond the wanted speedup by two standard errors of the difference between the tuned prompts and
    `scored` other ones, where there are such. Out of reach, the nearest one stays. Indices in the order of speed.
    """
    chosen: set[int] = set()
    for speedup in speedups:
        wanted = math.log(speedup)
        below = [i for i, c in enumerate(front) if c.pace <= wanted - _margin(c, scored) + 1e-6]
        above = [i for i, c in enumerate(front) if c.pace >= wanted + _margin(c, scored) - 1e-6]
        first = below[-1] if below else 0
        last = above[0] if above else len(front) - 1
        around = range(min(first, last), max(first, last) + 1)
        chosen.update(front[i].index for i in around)
    order = {c.index: place for place, c in enumerate(front)}
    return sorted(chosen, key=lambda index: order[index])


def _margin(one: Candidate, scored: int) -> float:
    return SURE * one.spread * math.sqrt(1 / one.n + 1 / max(1, scored))
