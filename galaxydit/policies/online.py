"""The policy without a calibrated schedule: the sample's own signal paces the full steps over a budget."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from galaxydit.errors import check_number, refusal
from galaxydit.policies.budget import check_budget, distinct_steps, full_step_count
from galaxydit.policies.error_map import ErrorMap
from galaxydit.policies.policy import CAP, Decision, Observation


@dataclass(frozen=True)
class OnlineState:
    """What `Online` knows of a generation.

    Attributes:
        accumulated: amount (distance, or mapped error) since the last full step.
        started: whether a step was decided already.
        full, last_full: number of full steps, and the index of the last.
        recent: running mean of the amount of one step.
        tested_distance: distance over which the prediction at the last full step would have reached.
        error_sum, distance_sum: true errors of such predictions and their distances; `ratio` is their quotient.
    """

    accumulated: float = 0.0
    started: bool = False
    full: int = 0
    last_full: int = 0
    recent: float | None = None
    tested_distance: float = 0.0
    error_sum: float = 0.0
    distance_sum: float = 0.0
    ratio: float | None = None


@dataclass(frozen=True)
class Online:
    """Meet a speedup exactly, or keep the expected error of reuse below a limit, by the sample's own signal.

    Attributes:
        speedup: block evaluations without the plugin / with it, at least 1; None for no budget.
        max_error: largest expected relative error of a reused step, at least 0; None for no limit. It takes precedence
            over `speedup`.
        error_map: expected error by proxy distance and sigma. None learns one ratio of error to distance from the
            full steps of this generation.
        decay: how much more an early error costs than a late one, in [0, 1]; see `step_costs`.
        reused_cost: block evaluations of a reused step / those of a full one, in [0, 1), until an observation gives it.
    """

    speedup: float | None = None
    max_error: float | None = None
    error_map: ErrorMap | None = None
    decay: float = 0.0
    reused_cost: float = 0.0
    reads_proxy = True
    history_length = 1

    def __post_init__(self) -> None:
        check_budget(self.speedup, self.max_error, self.reused_cost)
        check_number("decay", self.decay, 0.0, 1.0)
        if self.error_map is not None and not isinstance(self.error_map, ErrorMap):
            raise refusal("error_map", self.error_map, "an ErrorMap or None", "leave it out to learn one")

    @property
    def learns_errors(self) -> bool:
        return self.error_map is None

    def begin(self, step: int, computed: int) -> OnlineState:
        """The state of a second transformer that takes over at `step`, after `computed` steps were computed."""
        return OnlineState(started=True, full=computed, last_full=step)

    def full_steps(self, steps: int, reused_cost: float | None = None) -> int:
        """Number of steps to compute to meet the speedup."""
        return full_step_count(steps, self.speedup, self.reused_cost if reused_cost is None else reused_cost)

    def decide(self, observation: Observation, state: OnlineState | None = None) -> tuple[Decision, OnlineState]:
        """Decide one step.

        1. Warm-up, last steps and a missing distance: computed.
        2. The expected error is above `max_error`: computed. Without a speedup, all else is reused.
        3. The budget is spent: reused. As many steps left as the budget still holds: computed.
        4. Otherwise the next step is computed when the amount since the last one reaches `_due_amount`.
        """
        state = self._observe(observation, state or OnlineState())
        forced, steps, step = observation.forced, observation.steps, observation.step
        distance, sigma = observation.known_distance, observation.noise_levels[step]
        if distance is None:
            return _compute(state, step, forced or "no distance", math.inf, None)
        accumulated = state.accumulated + self._amount(distance, sigma)
        expected = self._expected_error(state, accumulated, sigma)
        if forced is not None and forced != CAP:
            return _compute(state, step, forced, accumulated, expected)
        if self.max_error is not None and expected is not None and expected > self.max_error:
            return _compute(state, step, "expected error above max_error", accumulated, expected)
        if self.speedup is None:
            if expected is None or forced == CAP:
                return _compute(state, step, forced or "error not yet known", accumulated, expected)
            return _reuse(state, "expected error below max_error", accumulated, expected)
        left = self.full_steps(steps, observation.reused_cost) - state.full - observation.keep_last
        if left <= 0:
            return _reuse(state, "budget is spent", accumulated, expected)
        if left >= steps - observation.keep_last - step:
            return _compute(state, step, "budget for every step left", accumulated, expected)
        if forced == CAP:
            return _compute(state, step, forced, accumulated, expected)
        if accumulated < self._due_amount(state, observation):
            return _reuse(state, "next full step not yet due", accumulated, expected)
        return _compute(state, step, "full step due", accumulated, expected)

    def _observe(self, observation: Observation, state: OnlineState) -> OnlineState:
        """Take in this step's distance, and the true error of the prediction that the last full step tested."""
        step, distance = observation.step, observation.known_distance
        if not state.started:
            # A generation may begin in the middle: it counts as if its share of the budget had been spent.
            done = self.full_steps(observation.steps) * step / observation.steps
            state = replace(state, started=True, full=round(done), last_full=step)
        if observation.error is not None and state.tested_distance > 0 and math.isfinite(observation.error):
            errors, distances = state.error_sum + observation.error, state.distance_sum + state.tested_distance
            state = replace(state, error_sum=errors, distance_sum=distances, ratio=errors / distances)
        if distance is None or step == 0:
            return state
        amount = self._amount(distance, observation.noise_levels[step])
        return replace(state, recent=amount if state.recent is None else 0.8 * state.recent + 0.2 * amount)

    def _amount(self, distance: float, sigma: float) -> float:
        return distance if self.error_map is None else self.error_map.of_step(distance, sigma)

    def _expected_error(self, state: OnlineState, accumulated: float, sigma: float) -> float | None:
        if self.error_map is None:
            return accumulated * state.ratio if state.ratio is not None else None
        return self.error_map.of_accumulated(accumulated, sigma)

    def _due_amount(self, state: OnlineState, observation: Observation) -> float:
        """The amount since the last full step at which the next one is due.

        The plan of `place_full_steps` gives the number of steps between the last full step and the next, which is
        due from half a step before its place. The number is scaled to the steps that are left, as full steps may
        have come earlier or later than planned, and multiplied by the recent amount of one step.
        """
        steps = observation.steps
        plan = place_full_steps(
            steps, self.full_steps(steps, observation.reused_cost), observation.warmup_steps, self.decay
        )
        following = min(state.full, len(plan) - 1)
        before, after = plan[max(0, following - 1)], plan[following]
        whole, rest = steps - 1 - before, steps - 1 - state.last_full
        stretch = rest / whole if whole > 0 and rest > 0 else 1.0
        return (after - 0.5 - before) * stretch * (state.recent or 0.0)


def step_costs(steps: int, decay: float) -> tuple[float, ...]:
    """Cost of a relative error at each step, with mean 1, falling linearly from 1 + decay to 1 - decay.

    Linear decay is the propagation weighting of arXiv 2609.36433. It leaves out the step size in sigma, by which a
    flow-matching scheduler adds an error up, because that placed too many full steps late.
    """
    last = max(1, steps - 1)
    return tuple(1 + decay * (1 - 2 * index / last) for index in range(steps))


@lru_cache(maxsize=64)
def place_full_steps(steps: int, count: int, warmup_steps: int, decay: float = 0.0) -> tuple[int, ...]:
    """`count` steps to compute, rising: the warm-up, then equal shares of the sum of sqrt(cost).

    That is optimal where the error of a linear prediction grows with the square of the gap, because an interval of L
    steps then costs cost * L^3.
    """
    first = min(warmup_steps, count - 1)
    roots = np.sqrt(np.maximum(0.0, step_costs(steps, decay)))
    roots[:first] = 0.0
    sums = np.cumsum(roots)
    shares = [sums[-1] * (index + 1) / (count - first) for index in range(count - first)]
    places = [*map(float, range(first)), *np.interp(shares, sums, np.arange(steps)).tolist()]
    return distinct_steps(places, steps)


def _compute(state: OnlineState, step: int, reason: str, accumulated: float, expected: float | None) -> Any:
    tested = accumulated if math.isfinite(accumulated) else 0.0
    after = replace(state, accumulated=0.0, full=state.full + 1, last_full=step, tested_distance=tested)
    return Decision(False, reason, accumulated, expected), after


def _reuse(state: OnlineState, reason: str, accumulated: float, expected: float | None) -> Any:
    return Decision(True, reason, accumulated, expected), replace(state, accumulated=accumulated, tested_distance=0.0)
