"""What a planned acceleration aims at, and the look ahead that finds the threshold for it. Pure Python numbers."""

import math
from bisect import bisect_left
from dataclasses import dataclass

from galaxydit.error_map import ErrorMap
from galaxydit.errors import GalaxyDiTError

SEARCH_STEPS = 16


@dataclass(frozen=True)
class Plan:
    """The aim of an acceleration, in words that mean the same on every model.

    Attributes:
        speedup: block evaluations without the plugin / with it, at least 1; None for no budget.
        max_error: largest expected relative error of a reused step, above 0; None for no limit.
        error_map: expected error of the guided prediction by proxy distance and sigma; None learns one ratio online.
        sigmas: noise levels of the calibrated steps, falling; empty without a calibration.
        clock: mean proxy distance covered from the first step to each of `sigmas`, never falling.
        decay: how much more an early error weighs than a late one, in [0, 1]: weights fall linearly from 1 + decay to
            1 - decay over the run (propagation weighting, arXiv 2609.36433).
        reused_cost: block evaluations of a reused step / those of a full one, in [0, 1).
    """

    speedup: float | None = None
    max_error: float | None = None
    error_map: ErrorMap | None = None
    sigmas: tuple[float, ...] = ()
    clock: tuple[float, ...] = ()
    decay: float = 0.5
    reused_cost: float = 0.0

    def __post_init__(self) -> None:
        if self.speedup is None and self.max_error is None:
            raise GalaxyDiTError("speedup and max_error are both None; pass one of them, for example speedup=2.0")
        _check("speedup", self.speedup, 1.0, math.inf)
        _check("max_error", self.max_error, 0.0, math.inf)
        _check("decay", self.decay, 0.0, 1.0)
        _check("reused_cost", self.reused_cost, 0.0, 1.0)
        if len(self.sigmas) != len(self.clock):
            raise GalaxyDiTError(f"sigmas has {len(self.sigmas)} entries and clock {len(self.clock)}; pass as many")
        if self.speedup is not None and self.speedup * self.reused_cost >= 1:
            raise GalaxyDiTError(
                f"speedup={self.speedup:g} cannot be reached: a reused step still costs {self.reused_cost:.3f} of a "
                f"full one; allowed is less than {1 / self.reused_cost:.1f}; choose a proxy that is read earlier"
            )

    def full_steps(self, steps: int) -> int:
        """How many of `steps` are computed in full to meet the speedup; all of them without one."""
        if self.speedup is None:
            return steps
        return round(steps * (1 / self.speedup - self.reused_cost) / (1 - self.reused_cost))

    def usual_distance(self, sigma: float, next_sigma: float) -> float | None:
        """Mean proxy distance between two noise levels in the calibration; None without one.

        Interpolates the covered distance in sigma, so that it holds for other step counts and flow shifts.
        """
        if not self.sigmas:
            return None
        return max(0.0, self._covered(next_sigma) - self._covered(sigma))

    def _covered(self, sigma: float) -> float:
        if sigma >= self.sigmas[0]:
            return self.clock[0]
        if sigma <= self.sigmas[-1]:
            return self.clock[-1]
        right = bisect_left(self.sigmas, -sigma, key=lambda value: -value)
        high, low = self.sigmas[right - 1], self.sigmas[right]
        share = (high - sigma) / (high - low) if high > low else 0.0
        return self.clock[right - 1] + share * (self.clock[right] - self.clock[right - 1])


def _check(field: str, value: float | None, low: float, high: float) -> None:
    if value is not None and (isinstance(value, bool) or not math.isfinite(value) or not low <= value <= high):
        allowed = f"at least {low:g}" if high == math.inf else f"from {low:g} to {high:g}"
        raise GalaxyDiTError(f"{field}={value!r} is not a number {allowed}; pass for example {field}={low + 0.5:g}")


def step_weights(sigmas: tuple[float, ...], decay: float) -> tuple[float, ...]:
    """What an error at each step weighs in the final latent, with mean 1.

    A flow-matching step adds (next sigma - sigma) times the prediction, so an error counts by the size of its step, and
    by what is still to come after it.
    """
    ends = (*sigmas[1:], 0.0)
    last = max(1, len(sigmas) - 1)
    raw = [
        abs(start - end) * (1 + decay * (1 - 2 * index / last))
        for index, (start, end) in enumerate(zip(sigmas, ends, strict=True))
    ]
    mean = sum(raw) / len(raw)
    return tuple(value / mean for value in raw) if mean > 0 else (1.0,) * len(raw)


def find_threshold(risks: "RiskAhead", full_steps: int) -> float:
    """The threshold on weighted expected error with which the steps ahead take `full_steps` full steps.

    It lies between the risk at which the first full step is due and the risk just before it, so that a sample may be a
    little faster or slower than expected without a change of plan.
    """
    low, high = 0.0, risks.largest()
    for _ in range(SEARCH_STEPS):
        middle = 0.5 * (low + high)
        if risks.play(middle)[0] > full_steps:
            low = middle
        else:
            high = middle
    _, before, due = risks.play(high)
    return math.sqrt(before * due) if before > 0 and due < math.inf else max(high, before)


@dataclass(frozen=True)
class RiskAhead:
    """The steps to come as they are expected: weighted error if reused, by distance since the last full step.

    Attributes:
        start: distance already covered since the last full step, the coming step included.
        consecutive: reused steps in a row so far.
        distances: expected distance of each step to come (the first is part of `start`).
        weights: weight of an error at each step.
        sigmas: noise level of each.
        cap: most reused steps in a row.
        error_map: expected error; None for one in proportion to distance.
    """

    start: float
    consecutive: int
    distances: tuple[float, ...]
    weights: tuple[float, ...]
    sigmas: tuple[float, ...]
    cap: int | None
    error_map: ErrorMap | None

    def risk(self, index: int, accumulated: float) -> float:
        error = accumulated if self.error_map is None else self.error_map(accumulated, self.sigmas[index])
        return error * self.weights[index]

    def added(self, index: int) -> float:
        """What a step adds to the accumulated amount: its distance, or its error where errors are summed."""
        return added_amount(self.error_map, self.distances[index], self.sigmas[index])

    def measure(self, accumulated: float, index: int) -> float:
        if self.error_map is not None and self.error_map.accumulate == "errors":
            return accumulated * self.weights[index]
        return self.risk(index, accumulated)

    def largest(self) -> float:
        """A threshold that nothing ahead reaches."""
        total = self.start
        largest = self.measure(total, 0)
        for index in range(1, len(self.distances)):
            total += self.added(index)
            largest = max(largest, self.measure(total, index))
        return largest * 1.001 + 1e-12

    def play(self, threshold: float) -> tuple[int, float, float]:
        """Number of full steps at a threshold; the risk just before the first, and at it (infinite if there is none or
        the cap forced it).
        """
        total, run, count = self.start, self.consecutive, 0
        before, due = 0.0, math.inf
        for index in range(len(self.distances)):
            if index:
                total += self.added(index)
            risk = self.measure(total, index)
            capped = self.cap is not None and run >= self.cap
            if capped or risk >= threshold:
                if count == 0 and not capped:
                    due = risk
                count, total, run = count + 1, 0.0, 0
            else:
                run += 1
                if count == 0:
                    before = max(before, risk)
        return count, before, due


def added_amount(error_map: ErrorMap | None, distance: float, sigma: float) -> float:
    """What one step's distance adds to the amount accumulated since the last full step."""
    if error_map is not None and error_map.accumulate == "errors":
        return error_map(distance, sigma)
    return distance
