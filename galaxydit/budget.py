"""The decision with a plan: a threshold in units of expected error, found anew after each full step so that the budget
of full steps is spent exactly. Pure functions of plain numbers.
"""

import math
from dataclasses import replace

from galaxydit.config import Config
from galaxydit.controller import ControllerState, Decision, Observation, must_compute
from galaxydit.plan import Plan, RiskAhead, added_amount, find_threshold, step_weights

CAP = "cap on consecutive reuse"
RATE_RANGE = (0.25, 4.0)


def decide_with_plan(
    observation: Observation, state: ControllerState, config: Config
) -> tuple[Decision, ControllerState]:
    """Decide one step under `config.plan` and return the state for the next.

    1. Warm-up, last steps, a missing distance: computed.
    2. The expected error is above `max_error`: computed.
    3. The budget is spent: reused. As many steps left as full steps to spend: computed.
    4. Otherwise reused while the expected error of this step, weighted by what it does to the final latent, stays below
       the threshold that would spend the remaining budget on the remaining steps, were they to go as in the calibration
       at this sample's own pace.
    """
    plan = config.plan
    if plan is None:
        raise ValueError("config.plan is None; call galaxydit.controller.decide")
    sigmas = observation.sigmas or _even_sigmas(observation.steps)
    state = _observe(observation, state, plan, sigmas)
    forced = must_compute(observation, state, config)
    distance = observation.distance
    if distance is None or not math.isfinite(distance):
        return _full(state, forced or "no distance", math.inf, None)
    sigma = sigmas[observation.step]
    accumulated = state.accumulated + added_amount(plan.error_map, distance, sigma)
    expected = expected_error(plan, state, accumulated, sigma)
    if forced is not None and forced != CAP:
        return _full(state, forced, accumulated, expected)
    if plan.max_error is not None and expected is not None and expected > plan.max_error:
        return _full(state, "expected error above max_error", accumulated, expected)
    free = observation.steps - config.keep_last - observation.step
    left = _full_steps_left(plan, state, observation, config)
    if left <= 0:
        return _reuse(state, "budget is spent", accumulated, expected)
    if plan.speedup is not None and left >= free:
        return _full(state, "budget for every step left", accumulated, expected)
    if forced == CAP:
        return _full(state, forced, accumulated, expected)
    if plan.speedup is None:
        if expected is None:
            return _full(state, "error not yet known", accumulated, expected)
        return _reuse(state, "expected error below max_error", accumulated, expected)
    weights = step_weights(sigmas, plan.decay)
    if state.threshold is None:
        ahead = _look_ahead(plan, state, observation, config, sigmas, weights, accumulated)
        state = replace(state, threshold=find_threshold(ahead, left))
    risk = (accumulated if expected is None or plan.error_map is None else expected) * weights[observation.step]
    if state.threshold is not None and risk < state.threshold:
        return _reuse(state, "below threshold", accumulated, expected)
    return _full(state, "above threshold", accumulated, expected)


def expected_error(plan: Plan, state: ControllerState, accumulated: float, sigma: float) -> float | None:
    """Expected relative error of a prediction this far from the last full step; None while nothing is known."""
    if plan.error_map is None:
        return accumulated * state.ratio if state.ratio is not None else None
    return accumulated if plan.error_map.accumulate == "errors" else plan.error_map(accumulated, sigma)


def _observe(
    observation: Observation, state: ControllerState, plan: Plan, sigmas: tuple[float, ...]
) -> ControllerState:
    """Take in this step's distance, and the true error of the prediction that the last full step has tested."""
    if not state.started:
        # A second transformer takes over in the middle: it counts as if its share of the budget had been spent so far.
        done = plan.full_steps(observation.steps) * observation.step / observation.steps
        state = replace(state, started=True, full=round(done))
    if observation.error is not None and state.tested_distance > 0 and math.isfinite(observation.error):
        errors, distances = state.error_sum + observation.error, state.distance_sum + state.tested_distance
        state = replace(state, error_sum=errors, distance_sum=distances, ratio=errors / distances)
    distance = observation.distance
    if distance is None or not math.isfinite(distance) or observation.step == 0:
        return state
    usual = plan.usual_distance(sigmas[observation.step - 1], sigmas[observation.step])
    count = state.seen + 1
    recent = distance if state.recent is None else 0.8 * state.recent + 0.2 * distance
    return replace(
        state, seen=count, recent=recent, observed=state.observed + distance, usual=state.usual + (usual or 0.0)
    )


def _full_steps_left(plan: Plan, state: ControllerState, observation: Observation, config: Config) -> int:
    """Full steps that may still be taken before the last, always full ones."""
    last = config.keep_last if plan.speedup is not None else 0
    return plan.full_steps(observation.steps) - state.full - last


def _look_ahead(
    plan: Plan,
    state: ControllerState,
    observation: Observation,
    config: Config,
    sigmas: tuple[float, ...],
    weights: tuple[float, ...],
    accumulated: float,
) -> RiskAhead:
    first, end = observation.step, observation.steps - config.keep_last
    pace = 1.0
    if state.usual > 0:
        pace = min(RATE_RANGE[1], max(RATE_RANGE[0], state.observed / state.usual))
    ahead = []
    for step in range(first, end):
        usual = plan.usual_distance(sigmas[step - 1], sigmas[step])
        ahead.append((state.recent or 0.0) if usual is None else pace * usual)
    return RiskAhead(
        accumulated,
        state.consecutive,
        tuple(ahead),
        weights[first:end],
        sigmas[first:end],
        config.max_consecutive,
        plan.error_map,
    )


def _even_sigmas(steps: int) -> tuple[float, ...]:
    """For a scheduler that tells none."""
    return tuple(1 - step / steps for step in range(steps))


def _full(
    state: ControllerState, reason: str, accumulated: float, expected: float | None
) -> tuple[Decision, ControllerState]:
    tested = accumulated if math.isfinite(accumulated) else 0.0
    after = replace(state, accumulated=0.0, consecutive=0, full=state.full + 1, threshold=None, tested_distance=tested)
    return Decision(False, reason, accumulated, expected), after


def _reuse(
    state: ControllerState, reason: str, accumulated: float, expected: float | None
) -> tuple[Decision, ControllerState]:
    after = replace(state, accumulated=accumulated, consecutive=state.consecutive + 1, tested_distance=0.0)
    return Decision(True, reason, accumulated, expected), after
