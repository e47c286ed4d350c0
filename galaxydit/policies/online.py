"""The policy for `max_error`: reuse steps while the error expected from the proxy distance is within the limit."""

import math
from dataclasses import dataclass, replace

from galaxydit.errors import check_number, plain_fields, refusal
from galaxydit.policies.error_map import ErrorMap
from galaxydit.policies.policy import Decision, Observation, Reason
from galaxydit.policies.schedule import Placement, Schedule


@dataclass(frozen=True)
class OnlineState:
    accumulated: float = 0.0  # proxy distance since the last full step
    # from the full step before the previous step to it; 0 if the previous step was reused, or this is unknown
    tested_distance: float = 0.0
    error_sum: float = 0.0  # of the prediction errors measured at full steps
    distance_sum: float = 0.0  # of the proxy distances to these full steps from those before them
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
        plain_fields(self)
        check_number("max_error", self.max_error, 0.0)
        if self.error_map is not None and not isinstance(self.error_map, ErrorMap):
            raise refusal("error_map", self.error_map, "an ErrorMap or None", "leave it out to learn one")
        if self.schedule is not None and not isinstance(self.schedule, Schedule):
            raise refusal("schedule", self.schedule, "a Schedule or None", "leave it out")

    @property
    def learns_errors(self) -> bool:
        return self.error_map is None

    def decide(self, observation: Observation, state: OnlineState | None = None) -> tuple[Decision, OnlineState]:
        """Compute forced and scheduled steps, and those whose expected error is unknown or above `max_error`; reuse the
        others. `max_consecutive` applies only without a schedule.
        """
        state = self._learn(observation, state or OnlineState())
        blocked = observation.forced
        if self.schedule is not None:  # which applies the limits, except for max_consecutive
            planned, after = self.schedule.decide(observation, state.schedule)
            state = replace(state, schedule=after)
            blocked = None if planned.reuse else planned.reason
        distance = observation.known_distance
        accumulated = math.inf
        expected = None
        if distance is not None:
            accumulated = state.accumulated + distance
            expected = self._expected_error(state, accumulated, observation.sigma)
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
        """The state after a full step, with `observation.error` and the tested distance added; else `state` itself."""
        if observation.error is None or state.tested_distance <= 0 or not math.isfinite(observation.error):
            return state
        errors = state.error_sum + observation.error
        distances = state.distance_sum + state.tested_distance
        return replace(state, error_sum=errors, distance_sum=distances)

    def _expected_error(self, state: OnlineState, accumulated: float, sigma: float) -> float | None:
        if self.error_map is not None:
            return self.error_map(accumulated, sigma)
        if state.distance_sum <= 0:
            return None
        return accumulated * state.error_sum / state.distance_sum
