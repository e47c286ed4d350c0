"""The calibrated proxy policy: reuse while the proxy has changed less than it changes between planned full steps."""

import math
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from galaxydit.errors import check_count, check_number, plain_fields, refusal
from galaxydit.policies.policy import Decision, Observation, Reason
from galaxydit.policies.schedule import Schedule

MEMORY = 0.8
"""Weight of the mean so far in the running mean of proxy distances, which is used without a calibration."""


@dataclass(frozen=True)
class ProxyState:
    planned: tuple[int, ...]  # full steps up to and including each step
    moved: tuple[float, ...]  # D(s) of each step; without a calibration its index
    allowances: tuple[float, ...]  # the limit of each step at `threshold` 1, in the unit of `moved`
    accumulated: float = 0.0  # distance since the last full step, as the policy counts it
    mean: float | None = None  # running mean of this sample's distance per step; None before the first
    done: int = 0  # full steps so far; where a second transformer starts, those planned before


@dataclass(frozen=True)
class ProxyThreshold:
    """Reuse a step while the proxy distance since the last full step stays below a threshold that varies by step.

    Let a and b be two successive full steps of the schedule, and D(s) the calibration's mean proxy distance from the
    first step to step s. At the steps after a, up to b, the limit is

        threshold * ((D(b - 1) + D(b)) / 2 - D(a))

    A sample whose proxy moves like the mean follows the schedule if `threshold` is 1; one whose proxy moves faster or
    slower at some noise levels is computed earlier or later there. GalaxyDiT (arXiv 2512.03451) reuses while a proxy
    has moved little; the limit by step and the weight are this project's.

    Attributes:
        schedule: the planned full steps. Its `cumulative_distance` is D; if it has none, D(s) is s times the running
            mean of this sample's own distance per step, so that the limit is learned during the generation.
        threshold: at least 0; larger is faster and less faithful. A calibration solves it for a speedup.
        leeway: full steps by which a generation may be ahead of the schedule or behind it at any step, at least 1; None
            leaves their number to the proxy, which also reacts to the errors of reuse, so that a speedup can be missed.
        deviation_weight: share of the sample's deviation from D that counts, in [0, 1]; 0 follows the schedule.
    """

    schedule: Schedule
    threshold: float = 1.0
    leeway: int | None = 1
    deviation_weight: float = 1.0
    reads_proxy = True
    reuses = True
    learns_errors = False

    def __post_init__(self) -> None:
        plain_fields(self)
        if not isinstance(self.schedule, Schedule):
            raise refusal("schedule", self.schedule, "a Schedule", "pass for example general_schedule(2.0)")
        check_number("threshold", self.threshold, 0.0)
        check_number("deviation_weight", self.deviation_weight, 0.0, 1.0)
        if self.leeway is not None:
            check_count("leeway", self.leeway, minimum=1)

    def decide(self, observation: Observation, state: ProxyState | None = None) -> tuple[Decision, ProxyState]:
        """Compute a step if forced, without a distance, or too far behind the schedule, or if the accumulated distance
        reaches the step's limit and the generation is not too far ahead; else reuse it.
        """
        state = state or self._plan(observation)
        distance = observation.known_distance
        is_learned = self.schedule.cumulative_distance is None
        if distance is None:
            decision = Decision(False, observation.forced or Reason.NO_DISTANCE, math.inf)
            return decision, replace(state, accumulated=0.0, done=state.done + 1)
        mean = distance
        if state.mean is not None:
            mean = MEMORY * state.mean + (1 - MEMORY) * distance
        limit = self.threshold * state.allowances[observation.step]
        if is_learned:
            limit *= mean
        else:
            expected = state.moved[observation.step] - state.moved[observation.step - 1]
            distance = self.deviation_weight * distance + (1 - self.deviation_weight) * expected
        state = replace(state, mean=mean, accumulated=state.accumulated + distance)
        is_behind, is_ahead = self._is_off_schedule(observation, state)
        if observation.steps < self.schedule.fewest_steps:
            reason = Reason.UNSERVED
        elif observation.forced is not None:
            reason = observation.forced
        elif is_behind:
            reason = Reason.SCHEDULE
        elif state.accumulated >= limit and not is_ahead:
            reason = Reason.ABOVE_THRESHOLD
        else:
            return Decision(True, Reason.BELOW_THRESHOLD, state.accumulated), state
        return Decision(False, reason, state.accumulated), replace(state, accumulated=0.0, done=state.done + 1)

    def _is_off_schedule(self, observation: Observation, state: ProxyState) -> tuple[bool, bool]:
        """Whether a generation is too far behind the schedule at a step, and whether it is too far ahead."""
        if self.leeway is None:
            return False, False
        planned = state.planned[observation.step]
        last_but_one = state.planned[-1] - 1
        may_lack = self.leeway
        if planned >= last_but_one:  # from here on, no planned step may be missing
            may_lack = 0
        is_behind = state.done < planned - may_lack
        is_ahead = state.done >= min(planned + self.leeway, last_but_one)
        return is_behind, is_ahead

    def _plan(self, observation: Observation) -> ProxyState:
        full_steps = self.schedule.place(observation)
        curve = self.schedule.cumulative_distance
        moved = []
        for step, level in enumerate(observation.noise_levels):
            moved.append(float(step) if curve is None else curve(level))
        allowed = [0.0] * observation.steps
        for before, following in pairwise(full_steps):
            half = (moved[following - 1] + moved[following]) / 2 - moved[before]
            allowed[before + 1 : following + 1] = [half] * (following - before)
        are_full = [int(step in full_steps) for step in range(observation.steps)]
        planned = tuple(accumulate(are_full))
        # A second transformer starts at a later step, as if the first one had followed the schedule.
        done = planned[observation.step - 1] if observation.step else 0
        return ProxyState(planned, tuple(moved), tuple(allowed), done=done)


def full_speedup(speedup: float, share_of_step: float) -> float:
    """Ratio of steps to full steps, at most 1000, at which a generation reaches `speedup` in block evaluations.

    A reused step still runs the share `share_of_step` of a full step's block evaluations, to read the proxy.
    """
    share_of_full_steps = (1 / speedup - share_of_step) / (1 - share_of_step)
    return 1 / max(share_of_full_steps, 1e-3)
