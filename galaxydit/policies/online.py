"""The policy for `max_error`: reuse steps while the error expected from the proxy distance is within the limit.

The proxy distance is the relative change of the proxy, a cheap tensor, summed over the steps since the last full step,
which is a computed step. The error is that of a predicted output, relative to the output.
"""

import math
from dataclasses import dataclass, replace

from galaxydit.errors import check_number, refusal
from galaxydit.policies.error_map import ErrorMap
from galaxydit.policies.policy import Decision, Observation, Reason
from galaxydit.policies.schedule import Placement, Schedule


@dataclass(frozen=True)
class OnlineState:
    """State of `Online` within one generation.

    Attributes:
        accumulated: proxy distance since the last full step.
        tested_distance: if the previous step was full, the proxy distance between it and the full step before it; 0 if
            the previous step was reused, and where the distance is unknown.
        error_sum, distance_sum: sums of the prediction errors measured at full steps, and of the proxy distances
            between each of these full steps and the full step before it.
        schedule: state of the policy's schedule; None before the first step and without a schedule.
    """

    accumulated: float = 0.0
    tested_distance: float = 0.0
    error_sum: float = 0.0
    distance_sum: float = 0.0
    schedule: Placement | None = None


@dataclass(frozen=True)
class Online:
    """Reuse a step while its expected error, which follows from the sample's proxy distance, stays within a limit.

    Attributes:
        max_error: largest expected relative error of a reused step, at least 0.
        error_map: expected error by proxy distance and sigma. None learns one ratio of error to distance from the
            full steps of this generation; until it is known, all steps are computed.
        schedule: a schedule whose full steps are computed in any case; None for no schedule.
    """

    max_error: float
    error_map: ErrorMap | None = None
    schedule: Schedule | None = None
    reads_proxy = True
    reuses = True

    def __post_init__(self) -> None:
        check_number("max_error", self.max_error, 0.0)
        if self.error_map is not None and not isinstance(self.error_map, ErrorMap):
            raise refusal("error_map", self.error_map, "an ErrorMap or None", "leave it out to learn one")
        if self.schedule is not None and not isinstance(self.schedule, Schedule):
            raise refusal("schedule", self.schedule, "a Schedule or None", "leave it out")

    @property
    def learns_errors(self) -> bool:
        return self.error_map is None

    def decide(self, observation: Observation, state: OnlineState | None = None) -> tuple[Decision, OnlineState]:
        """Compute steps that the schedule or the configuration's `Limits` require, steps without a full step to reuse,
        and steps whose expected error is unknown or above `max_error`; reuse the others. Of the limits, `warmup` and
        `keep_last` always apply, `max_consecutive` only without a schedule.

        Returns the decision and the `state` for the next step. `state` is None at the first step.
        """
        state = self._learn(observation, state or OnlineState())
        blocked = observation.forced
        if self.schedule is not None:  # which applies the limits, except for max_consecutive
            planned, after = self.schedule.decide(observation, state.schedule)
            state = replace(state, schedule=after)
            blocked = None if planned.reuse else planned.reason
        distance, sigma = observation.known_distance, observation.sigma
        accumulated = math.inf if distance is None else state.accumulated + distance
        expected = None if distance is None else self._expected_error(state, accumulated, sigma)
        if distance is None:
            reason = observation.forced or Reason.NO_DISTANCE
        elif blocked is not None:
            reason = blocked
        elif expected is None:
            reason = Reason.UNKNOWN_ERROR
        elif expected > self.max_error:
            reason = Reason.ABOVE_MAX_ERROR
        else:
            decision = Decision(True, Reason.BELOW_MAX_ERROR, accumulated, expected)
            return decision, replace(state, accumulated=accumulated, tested_distance=0.0)
        tested = accumulated if math.isfinite(accumulated) else 0.0
        return Decision(False, reason, accumulated, expected), replace(state, accumulated=0.0, tested_distance=tested)

    def _learn(self, observation: Observation, state: OnlineState) -> OnlineState:
        """The state at the step after a full step: `observation.error`, the error that a prediction of this full step
        would have had, is added to `error_sum`, and `tested_distance`, the proxy distance between this full step and
        the full step before it, to `distance_sum`. At other steps, and if the error is unknown (None or not finite) or
        the distance is unknown (0), `state` itself.
        """
        if observation.error is None or state.tested_distance <= 0 or not math.isfinite(observation.error):
            return state
        errors, distances = state.error_sum + observation.error, state.distance_sum + state.tested_distance
        return replace(state, error_sum=errors, distance_sum=distances)

    def _expected_error(self, state: OnlineState, accumulated: float, sigma: float) -> float | None:
        if self.error_map is not None:
            return self.error_map(accumulated, sigma)
        return accumulated * state.error_sum / state.distance_sum if state.distance_sum > 0 else None
