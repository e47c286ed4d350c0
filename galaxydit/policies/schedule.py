"""What a planned acceleration aims at, and where it would place the full steps. Pure Python numbers."""

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache

from galaxydit.error_map import ErrorMap
from galaxydit.errors import GalaxyDiTError


@dataclass(frozen=True)
class Plan:
    """The aim of an acceleration, in words that mean the same on every model.

    Attributes:
        speedup: block evaluations without the plugin / with it, at least 1; None for no budget.
        max_error: largest expected relative error of a reused step, at least 0; None for no limit.
        error_map: expected error of the guided prediction by proxy distance and sigma; None learns one ratio online.
        sigmas: noise levels of the calibrated steps, falling; empty without a calibration.
        clock: mean proxy distance covered from the first step to each of `sigmas`, never falling.
        schedule: noise levels of the full steps that served the calibration's samples best, falling; empty without one.
        weights: for each of `schedule` two numbers, what the line and the parabola through the last full steps weigh in
            the predictions after it; empty for the line alone. They fit the schedule as it stands.
        follow: how far this sample's own signal moves the full steps, in [0, 1]: 0 keeps the schedule and reads no
            proxy, 1 goes by the distance alone.
        decay: for a plan without a schedule, how much more an early error weighs than a late one, see `step_weights`.
        reused_cost: block evaluations of a reused step whose proxy is read / those of a full step, in [0, 1).
    """

    speedup: float | None = None
    max_error: float | None = None
    error_map: ErrorMap | None = None
    sigmas: tuple[float, ...] = ()
    clock: tuple[float, ...] = ()
    schedule: tuple[float, ...] = ()
    weights: tuple[tuple[float, ...], ...] = ()
    follow: float = 1.0
    decay: float = 0.0
    reused_cost: float = 0.0

    def __post_init__(self) -> None:
        if self.speedup is None and self.max_error is None:
            raise GalaxyDiTError("speedup and max_error are both None; pass one of them, for example speedup=2.0")
        _check("speedup", self.speedup, 1.0, math.inf)
        _check("max_error", self.max_error, 0.0, math.inf)
        _check("follow", self.follow, 0.0, 1.0)
        _check("decay", self.decay, 0.0, 1.0)
        _check("reused_cost", self.reused_cost, 0.0, 1.0)
        check_weights(self.weights, self.schedule)
        if len(self.sigmas) != len(self.clock):
            raise GalaxyDiTError(f"sigmas has {len(self.sigmas)} entries and clock {len(self.clock)}; pass as many")
        cost = self.cost_of_reuse
        if self.speedup is not None and self.speedup * cost >= 1:
            raise GalaxyDiTError(
                f"speedup={self.speedup:g} cannot be reached: a reused step still costs {cost:.3f} of a full one; "
                f"allowed is less than {1 / cost:.1f}; choose a proxy that is read earlier"
            )

    @property
    def reads_proxy(self) -> bool:
        """Whether decisions depend on this sample's own signal; a schedule that it does not move needs none."""
        return self.follow > 0 or self.max_error is not None or not self.schedule

    @property
    def cost_of_reuse(self) -> float:
        """Block evaluations of a reused step / those of a full one."""
        return self.reused_cost if self.reads_proxy else 0.0

    @property
    def weighs(self) -> bool:
        """Whether predictions are weighed: full steps that a signal moves would not fit the weights."""
        return bool(self.weights) and not self.reads_proxy

    def full_steps(self, steps: int) -> int:
        """How many of `steps` are computed in full to meet the speedup; all of them without one."""
        if self.speedup is None:
            return steps
        return max(2, min(steps, round(steps * full_share(self.speedup, self.cost_of_reuse))))

    def weights_after(self, index: int, count: int) -> tuple[float, float] | None:
        """Weights of the predictions after full step number `index` of `count`, interpolated where the calibrated
        schedule had another number; None without weights.
        """
        if not self.weighs:
            return None
        place = (len(self.weights) - 1) * index / max(1, count - 1)
        line, parabola = (_interpolate(values, place) for values in zip(*self.weights, strict=True))
        return line, parabola

    def covered(self, sigma: float) -> float:
        """Mean proxy distance from the first step to a noise level in the calibration; 0 without one.

        Interpolated in sigma, so that it holds for other step counts and flow shifts.
        """
        if not self.sigmas or sigma >= self.sigmas[0]:
            return self.clock[0] if self.clock else 0.0
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


def full_share(speedup: float, cost: float) -> float:
    """Share of the steps that are computed in full for a speedup, where a reused step costs `cost` of a full one."""
    return (1 / speedup - cost) / (1 - cost)


def check_weights(weights: tuple[tuple[float, ...], ...], schedule: tuple[float, ...]) -> None:
    """Raises GalaxyDiTError unless there are none, or two finite numbers for each step of the schedule."""
    if weights and (
        len(weights) != len(schedule) or not all(len(pair) == 2 and all(map(math.isfinite, pair)) for pair in weights)
    ):
        raise GalaxyDiTError(
            f"weights={weights!r}, allowed are two numbers for each of the {len(schedule)} steps of the schedule; "
            "calibrate again"
        )


def step_weights(steps: int, decay: float) -> tuple[float, ...]:
    """What a relative error at each step weighs, with mean 1: falling linearly from 1 + decay to 1 - decay.

    Linear decay is the propagation weighting of arXiv 2609.36433. The size of each step in sigma, by which a
    flow-matching sampler adds an error up, is left out: it put too many full steps late.
    """
    last = max(1, steps - 1)
    return tuple(1 + decay * (1 - 2 * index / last) for index in range(steps))


@lru_cache(maxsize=64)
def place_full_steps(plan: Plan, sigmas: tuple[float, ...], warmup_steps: int) -> tuple[int, ...]:
    """The full steps of the budget as they are meant to lie, rising, first and last step among them.

    With a calibrated schedule: its noise levels, stretched to this number of full steps, at the steps nearest to them.
    Without one: the warm-up, then equal shares of the sum of sqrt(weight), which is optimal where the error of a linear
    prediction grows with the square of the gap (an interval of L steps then costs weight * L^3).
    """
    steps, count = len(sigmas), plan.full_steps(len(sigmas))
    if plan.schedule:
        last = len(plan.schedule) - 1
        levels = [_interpolate(plan.schedule, last * index / max(1, count - 1)) for index in range(count)]
        places = [_place(sigmas, level) for level in levels]
    else:
        first = min(warmup_steps, count - 1)
        roots = [math.sqrt(max(0.0, weight)) for weight in step_weights(steps, plan.decay)]
        sums = [sum(roots[first : index + 1]) for index in range(steps)]
        shares = [sums[-1] * (index + 1) / (count - first) for index in range(count - first)]
        places = [float(index) for index in range(first)]
        places += [_place(tuple(-value for value in sums), -share) for share in shares]
    chosen: list[int] = []
    for index, place in enumerate(places):
        low = chosen[-1] + 1 if chosen else 0
        chosen.append(min(max(round(place), low), steps - count + index))
    chosen[0] = 0
    chosen[-1] = steps - 1
    return tuple(chosen)


def with_forced(schedule: tuple[int, ...], warmup_steps: int, keep_last: int, steps: int) -> tuple[int, ...]:
    """As many full steps, the first `warmup_steps` and the last `keep_last` among them; more only if these are more.

    Those that are not among the schedule take the places of others, spread evenly.
    """
    forced = {*range(min(warmup_steps, steps)), *range(max(0, steps - keep_last), steps)}
    others = [step for step in schedule if step not in forced]
    left = max(0, len(schedule) - len(forced))
    kept = [others[int((index + 0.5) * len(others) / left)] for index in range(left)] if left < len(others) else others
    return tuple(sorted(forced.union(kept)))


def _interpolate(values: tuple[float, ...], place: float) -> float:
    left = min(int(place), len(values) - 1)
    right = min(left + 1, len(values) - 1)
    return values[left] + (place - left) * (values[right] - values[left])


def _place(falling: tuple[float, ...], value: float) -> float:
    """Where a value lies among falling ones, as an index with a fraction."""
    if value >= falling[0]:
        return 0.0
    if value <= falling[-1]:
        return float(bisect_left(falling, -falling[-1], key=lambda item: -item))
    right = bisect_left(falling, -value, key=lambda item: -item)
    high, low = falling[right - 1], falling[right]
    return right - 1 + ((high - value) / (high - low) if high > low else 0.0)
