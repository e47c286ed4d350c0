"""Policies that know beforehand which steps to compute: a calibrated schedule, or a fixed list of steps."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from galaxydit.errors import check_ascending, check_count, refusal
from galaxydit.policies.budget import check_budget, distinct_steps, full_step_count, is_finite_pair
from galaxydit.policies.error_map import CumulativeDistance, ErrorMap
from galaxydit.policies.policy import CAP, FEW_STEPS, IS_SHORT, NO_HISTORY, UNSERVED, Decision, Observation

PLANNED = "schedule"


@dataclass(frozen=True)
class FixedSteps:
    """Compute exactly these steps; the limits of the configuration do not apply.

    Attributes:
        steps: indices of the steps to compute, from 0; sorted, without duplicates.
    """

    steps: tuple[int, ...]
    reads_proxy = False
    history_length = 1
    learns_errors = False

    def __post_init__(self) -> None:
        if not isinstance(self.steps, Sequence | set | frozenset | range):
            raise refusal("steps", self.steps, "indices of steps", "pass for example steps=(0, 10, 49)")
        for step in self.steps:
            check_count("steps", step, minimum=0)
        object.__setattr__(self, "steps", tuple(sorted(set(self.steps))))

    def decide(self, observation: Observation, state: None = None) -> tuple[Decision, None]:
        if observation.steps <= FEW_STEPS:
            return Decision(False, IS_SHORT), None
        if observation.step in self.steps:
            return Decision(False, PLANNED), None
        if not observation.has_history:
            return Decision(False, NO_HISTORY), None
        return Decision(True, PLANNED), None


@dataclass(frozen=True)
class ScheduleState:
    """Number of full steps, the index of the last, and with `max_error` the proxy amount since then."""

    full: int
    last_full: int
    accumulated: float = 0.0


@dataclass(frozen=True)
class Schedule:
    """Compute the steps that a calibration found best for a speedup.

    Attributes:
        speedup: block evaluations without the plugin / with it, at least 1.
        sigmas: noise levels of the steps to compute, falling. Another number of steps stretches them.
        coefficients: for each of `sigmas` the first- and second-order coefficients of the predictions after it; empty
            leaves predictions to `GalaxyDiTConfig.order`.
        max_error: a step whose expected error is above it is computed, too, at the cost of speed. The policy then
            reads the proxy, and `coefficients` do not apply because the steps may differ from the schedule.
        error_map: expected error by proxy distance and sigma; None leaves it unknown.
        cumulative_distance: mean proxy distance of the calibration, which gives the expected error where the proxy is
            not read.
        reused_cost: block evaluations of a reused step whose proxy is read / those of a full one, in [0, 1).
        fewest_steps: generations of fewer steps are computed in full.
        boundary: noise level below which a second transformer computes; its first step is always computed. None where
            there is one.
        planned_sigmas: noise levels of all steps that were planned; with them another flow shift keeps the places.
    """

    speedup: float
    sigmas: tuple[float, ...]
    coefficients: tuple[tuple[float, float], ...] = ()
    max_error: float | None = None
    error_map: ErrorMap | None = None
    cumulative_distance: CumulativeDistance | None = None
    reused_cost: float = 0.0
    fewest_steps: int = 0
    boundary: float | None = None
    planned_sigmas: tuple[float, ...] = ()
    learns_errors = False

    def __post_init__(self) -> None:
        check_count("fewest_steps", self.fewest_steps, minimum=0)
        check_budget(self.speedup, self.max_error, self.reused_cost if self.reads_proxy else 0.0)
        if not isinstance(self.sigmas, tuple) or not self.sigmas:
            raise refusal("sigmas", self.sigmas, "a tuple of noise levels", "calibrate, or use Online")
        check_ascending("sigmas", self.sigmas[::-1], strictly=False)
        check_coefficients(self.coefficients, self.sigmas)
        if self.max_error is not None and self.error_map is None:
            raise refusal("error_map", None, "an ErrorMap together with max_error", "leave max_error out")

    @property
    def reads_proxy(self) -> bool:
        return self.max_error is not None

    @property
    def history_length(self) -> int:
        return 3 if self.coefficients and not self.reads_proxy else 1

    def begin(self, step: int, computed: int) -> ScheduleState:
        """The state of a second transformer that takes over at `step`, after `computed` steps were computed."""
        return ScheduleState(computed, step)

    def full_steps(self, steps: int) -> int:
        """Number of steps to compute to meet the speedup."""
        return full_step_count(steps, self.speedup, self.reused_cost if self.reads_proxy else 0.0)

    def decide(self, observation: Observation, state: ScheduleState | None = None) -> tuple[Decision, ScheduleState]:
        """Compute the scheduled steps and those that the limits force, which take the places of scheduled ones."""
        step, steps, sigmas = observation.step, observation.steps, observation.noise_levels
        if state is None:
            # A generation may begin in the middle: it counts as if its share of the budget had been spent.
            state = ScheduleState(round(self.full_steps(steps) * step / steps), step)
        amount = self._amount(observation, state)
        forced = UNSERVED if steps < self.fewest_steps else observation.forced
        if amount is None:
            return _compute(state, step, forced or "no distance", math.inf, None)
        expected = self._expected_error(amount, sigmas[step])
        switch = next((i for i, sigma in enumerate(sigmas) if self.boundary is not None and sigma < self.boundary), 0)
        planned = place_full_steps(self.sigmas, self.full_steps(steps), sigmas, switch, self.planned_sigmas)
        schedule = with_forced(planned, observation.warmup_steps, observation.keep_last, steps, switch)
        if step in schedule and forced != UNSERVED:
            return _compute(state, step, PLANNED, amount, expected)
        if forced is not None and forced != CAP:
            return _compute(state, step, forced, amount, expected)
        if self.max_error is not None and expected is not None and expected > self.max_error:
            return _compute(state, step, "expected error above max_error", amount, expected)
        index = bisect_left(schedule, step) - 1
        as_planned = schedule == planned and (state.full, state.last_full) == (index + 1, schedule[index])
        coefficients = self.coefficients_after(index, len(schedule)) if as_planned else None
        return Decision(True, PLANNED, amount, expected, coefficients), replace(state, accumulated=amount)

    def coefficients_after(self, index: int, count: int) -> tuple[float, float] | None:
        """Coefficients of the predictions after full step number `index` of `count`.

        They are interpolated where the calibrated schedule had another number of steps; None without any.
        """
        if self.history_length < 3:
            return None
        places = np.arange(len(self.coefficients))
        place = (len(self.coefficients) - 1) * index / max(1, count - 1)
        first, second = (float(np.interp(place, places, column)) for column in zip(*self.coefficients, strict=True))
        return first, second

    def _amount(self, observation: Observation, state: ScheduleState) -> float | None:
        """Distance (or mapped error) since the last full step, observed or else expected; None if it is missing."""
        sigmas, step = observation.noise_levels, observation.step
        if not self.reads_proxy:
            if self.cumulative_distance is None:
                return 0.0
            return self.cumulative_distance(sigmas[step]) - self.cumulative_distance(sigmas[state.last_full])
        distance = observation.known_distance
        if distance is None or self.error_map is None:
            return None
        return state.accumulated + self.error_map.of_step(distance, sigmas[step])

    def _expected_error(self, amount: float, sigma: float) -> float | None:
        if self.error_map is None:
            return None
        if self.reads_proxy:
            return self.error_map.of_accumulated(amount, sigma)
        known = self.cumulative_distance is not None and self.error_map.accumulate == "distances"
        return self.error_map(amount, sigma) if known else None


def check_coefficients(coefficients: tuple[tuple[float, ...], ...], sigmas: tuple[float, ...]) -> None:
    """Raise GalaxyDiTError unless there are none, or two finite numbers for each noise level of the schedule."""
    if not isinstance(coefficients, Sequence):
        raise refusal("coefficients", coefficients, "pairs of numbers", "calibrate again")
    if coefficients and not (len(coefficients) == len(sigmas) and all(map(is_finite_pair, coefficients))):
        expected = f"two numbers for each of the {len(sigmas)} steps of the schedule"
        raise refusal("coefficients", coefficients, expected, "calibrate again")


@lru_cache(maxsize=64)
def place_full_steps(
    schedule: tuple[float, ...],
    count: int,
    sigmas: tuple[float, ...],
    switch: int = 0,
    planned_sigmas: tuple[float, ...] = (),
) -> tuple[int, ...]:
    """`count` steps to compute, rising, the first and the last step among them, and a second transformer's first step
    `switch`.

    The noise levels of the schedule are stretched to `count` of them, and each becomes the step of `sigmas` nearest to
    it; then the one nearest to `switch` is moved there. With the noise levels of all steps of the plan,
    `planned_sigmas`, places are shares of the steps instead, whatever the flow shift.
    """
    last = len(schedule) - 1
    stretched = np.interp([last * index / max(1, count - 1) for index in range(count)], np.arange(last + 1), schedule)
    levels = planned_sigmas or sigmas
    places = np.interp(-stretched, -np.asarray(levels), np.linspace(0, len(sigmas) - 1, len(levels)))
    chosen = distinct_steps(places.tolist(), len(sigmas))
    if switch in chosen or count < 3:
        return chosen
    nearest = min(chosen[1:-1], key=lambda step: abs(step - switch))
    return tuple(sorted({*chosen, switch} - {nearest}))


def with_forced(
    schedule: tuple[int, ...], warmup_steps: int, keep_last: int, steps: int, switch: int = 0
) -> tuple[int, ...]:
    """As many steps to compute, the first `warmup_steps`, the last `keep_last` and `switch` among them; more only if
    these are.

    Those that the schedule lacks take the places of others, spread evenly.
    """
    forced = {switch, *range(min(warmup_steps, steps)), *range(max(0, steps - keep_last), steps)}
    others = [step for step in schedule if step not in forced]
    left = max(0, len(schedule) - len(forced))
    kept = [others[int((index + 0.5) * len(others) / left)] for index in range(left)] if left < len(others) else others
    return tuple(sorted(forced.union(kept)))


def _compute(state: ScheduleState, step: int, reason: str, amount: float, expected: float | None) -> Any:
    return Decision(False, reason, amount, expected), ScheduleState(state.full + 1, step)
