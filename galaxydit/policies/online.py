"""The decision with a plan: full steps lie where the calibration found them best, moved by the sample's own signal, and
there are exactly as many as the budget holds. Pure functions of plain numbers.
"""

import math
from bisect import bisect_left
from dataclasses import replace

from galaxydit.config import Config
from galaxydit.controller import ControllerState, Decision, Observation, must_compute, warmup_steps
from galaxydit.plan import Plan, place_full_steps, with_forced

CAP = "cap on consecutive reuse"
PACE_RANGE = (0.25, 4.0)


def decide_with_plan(
    observation: Observation, state: ControllerState, config: Config
) -> tuple[Decision, ControllerState]:
    """Decide one step under `config.plan` and return the state for the next.

    0. A schedule that no signal moves is followed, and no distance is needed.
    1. Warm-up, last steps, a missing distance: computed.
    2. The expected error is above `max_error`: computed. Without a speedup, all else is reused.
    3. The budget is spent: reused. As many steps left as full steps to spend: computed.
    4. Otherwise the next full step is due when this sample has covered, at its own pace, the distance that the planned
       schedule has between its last full step and its next (`due_distance`).
    """
    plan = config.plan
    if plan is None:
        raise ValueError("config.plan is None; call galaxydit.controller.decide")
    sigmas = observation.sigmas or _even_sigmas(observation.steps)
    step, distance = observation.step, observation.distance
    state = _observe(observation, state, plan, sigmas)
    forced = must_compute(observation, state, config)
    if not plan.reads_proxy:
        return _by_schedule(observation, state, config, plan, sigmas, forced)
    if distance is None or not math.isfinite(distance):
        return _full(state, step, forced or "no distance", math.inf, None)
    accumulated = state.accumulated + added_amount(plan, distance, sigmas[step])
    expected = expected_error(plan, state, accumulated, sigmas[step])
    if forced is not None and forced != CAP:
        return _full(state, step, forced, accumulated, expected)
    if plan.max_error is not None and expected is not None and expected > plan.max_error:
        return _full(state, step, "expected error above max_error", accumulated, expected)
    if plan.speedup is None:
        if expected is None or forced == CAP:
            return _full(state, step, forced or "error not yet known", accumulated, expected)
        return _reuse(state, "expected error below max_error", accumulated, expected)
    left = plan.full_steps(observation.steps) - state.full - config.keep_last
    if left <= 0:
        return _reuse(state, "budget is spent", accumulated, expected)
    if left >= observation.steps - config.keep_last - step:
        return _full(state, step, "budget for every step left", accumulated, expected)
    if forced == CAP:
        return _full(state, step, forced, accumulated, expected)
    moved = plan.follow * accumulated + (1 - plan.follow) * usual_distance(plan, state, sigmas, step)
    if moved < due_distance(plan, state, sigmas, warmup_steps(observation.steps, config.warmup)):
        return _reuse(state, "next full step not yet due", accumulated, expected)
    return _full(state, step, "full step due", accumulated, expected)


def _by_schedule(
    observation: Observation,
    state: ControllerState,
    config: Config,
    plan: Plan,
    sigmas: tuple[float, ...],
    forced: str | None,
) -> tuple[Decision, ControllerState]:
    """The schedule, with what must be computed among it. What error to expect follows from the calibration's clock."""
    step, expected = observation.step, None
    usual = usual_distance(plan, state, sigmas, step)
    if plan.error_map is None or plan.error_map.accumulate == "distances":
        expected = expected_error(plan, state, usual, sigmas[step])
    warmup = warmup_steps(observation.steps, config.warmup)
    planned = place_full_steps(plan, sigmas, warmup)
    schedule = with_forced(planned, warmup, config.keep_last, observation.steps)
    if step in schedule:
        return _full(state, step, "schedule", usual, expected)
    if forced is not None and forced != CAP:
        return _full(state, step, forced, usual, expected)
    decision, after = _reuse(state, "schedule", usual, expected)
    index = bisect_left(schedule, step) - 1
    as_planned = schedule == planned and (state.full, state.last_full) == (index + 1, schedule[index])
    weights = plan.weights_after(index, len(schedule)) if as_planned else None
    return replace(decision, weights=weights), after


def due_distance(plan: Plan, state: ControllerState, sigmas: tuple[float, ...], warmup: int) -> float:
    """The distance since the last full step at which the next one is due.

    The schedule says how far apart its last full step and its next are on the calibration's clock. What is left of it
    is stretched over what is left of the way, as full steps may have come earlier or later than planned; and it is
    scaled by the pace of this sample. A full step is due from half a step before its place on.
    """
    schedule = place_full_steps(plan, sigmas, warmup)
    following = min(state.full, len(schedule) - 1)
    before, after = schedule[max(0, following - 1)], schedule[following]
    clock = _clock(plan, sigmas)
    planned = 0.5 * (clock[after - 1] + clock[after]) - clock[before]
    whole, rest = clock[-1] - clock[before], clock[-1] - clock[state.last_full]
    stretch = rest / whole if whole > 0 and rest > 0 else 1.0
    return planned * stretch * _pace(plan, state)


def usual_distance(plan: Plan, state: ControllerState, sigmas: tuple[float, ...], step: int) -> float:
    """The distance since the last full step that the calibration leads to expect at the pace of this sample."""
    clock = _clock(plan, sigmas)
    return (clock[step] - clock[state.last_full]) * _pace(plan, state)


def _clock(plan: Plan, sigmas: tuple[float, ...]) -> list[float]:
    """Distance covered at each step on the calibration's clock; without a calibration all steps are alike."""
    return [plan.covered(sigma) for sigma in sigmas] if plan.clock else [float(index) for index in range(len(sigmas))]


def expected_error(plan: Plan, state: ControllerState, accumulated: float, sigma: float) -> float | None:
    """Expected relative error of a prediction this far from the last full step; None while nothing is known."""
    if plan.error_map is None:
        return accumulated * state.ratio if state.ratio is not None else None
    return accumulated if plan.error_map.accumulate == "errors" else plan.error_map(accumulated, sigma)


def added_amount(plan: Plan, distance: float, sigma: float) -> float:
    """What one step adds to the amount accumulated since the last full step: its distance, or its mapped error."""
    if plan.error_map is not None and plan.error_map.accumulate == "errors":
        return plan.error_map(distance, sigma)
    return distance


def _pace(plan: Plan, state: ControllerState) -> float:
    """Distance of this sample by that of the calibration's; without a calibration, the recent amount of one step."""
    if not plan.clock:
        return state.recent or 0.0
    if state.usual <= 0:
        return 1.0
    return min(PACE_RANGE[1], max(PACE_RANGE[0], state.observed / state.usual))


def _observe(
    observation: Observation, state: ControllerState, plan: Plan, sigmas: tuple[float, ...]
) -> ControllerState:
    """Take in this step's distance, and the true error of the prediction that the last full step has tested."""
    if not state.started:
        # A second transformer takes over in the middle: it counts as if its share of the budget had been spent so far.
        done = plan.full_steps(observation.steps) * observation.step / observation.steps
        state = replace(state, started=True, full=round(done), last_full=observation.step)
    if observation.error is not None and state.tested_distance > 0 and math.isfinite(observation.error):
        errors, distances = state.error_sum + observation.error, state.distance_sum + state.tested_distance
        state = replace(state, error_sum=errors, distance_sum=distances, ratio=errors / distances)
    distance = observation.distance
    if distance is None or not math.isfinite(distance) or observation.step == 0:
        return state
    before, now = sigmas[observation.step - 1], sigmas[observation.step]
    amount = added_amount(plan, distance, now)
    return replace(
        state,
        recent=amount if state.recent is None else 0.8 * state.recent + 0.2 * amount,
        observed=state.observed + distance,
        usual=state.usual + plan.covered(now) - plan.covered(before),
    )


def _even_sigmas(steps: int) -> tuple[float, ...]:
    """For a scheduler that tells none."""
    return tuple(1 - step / steps for step in range(steps))


def _full(
    state: ControllerState, step: int, reason: str, accumulated: float, expected: float | None
) -> tuple[Decision, ControllerState]:
    tested = accumulated if math.isfinite(accumulated) else 0.0
    after = replace(state, accumulated=0.0, consecutive=0, full=state.full + 1, last_full=step, tested_distance=tested)
    return Decision(False, reason, accumulated, expected), after


def _reuse(
    state: ControllerState, reason: str, accumulated: float, expected: float | None
) -> tuple[Decision, ControllerState]:
    after = replace(state, accumulated=accumulated, consecutive=state.consecutive + 1, tested_distance=0.0)
    return Decision(True, reason, accumulated, expected), after
