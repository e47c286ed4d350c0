"""The paper's policy: reuse while the proxy has moved less than a threshold since the last full step."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from galaxydit.errors import check_number, plain_fields
from galaxydit.policies.policy import Controller, Decision, Limits, Observation, Reason


@dataclass(frozen=True)
class Threshold:
    """Reuse steps while the proxy distance since the last full step stays below `threshold` (arXiv 2512.03451).

    Attributes:
        threshold: limit of the relative changes of the proxy from step to step, summed, at least 0. Larger is faster
            and less faithful; 0 reuses nothing.
    """

    threshold: float = 0.1
    learns_errors = False

    def __post_init__(self) -> None:
        plain_fields(self)
        check_number("threshold", self.threshold, minimum=0.0)

    @property
    def reuses(self) -> bool:
        return self.threshold > 0

    reads_proxy = reuses

    def change(self, observation: Observation) -> float | None:
        """The change that is summed, by default the proxy distance; None computes the step. For subclasses."""
        return observation.known_distance

    def decide(self, observation: Observation, state: float | None = None) -> tuple[Decision, float]:
        """Compute forced steps, and those above the threshold or without a distance. The state is the summed change."""
        distance = self.change(observation)
        accumulated = math.inf
        if distance is not None:
            accumulated = (state or 0.0) + distance
        if self.threshold == 0:
            reason = Reason.ZERO_THRESHOLD
        elif observation.forced is not None:
            reason = observation.forced
        elif distance is None:
            reason = Reason.NO_DISTANCE
        elif accumulated < self.threshold:
            return Decision(True, Reason.BELOW_THRESHOLD, accumulated), accumulated
        else:
            reason = Reason.ABOVE_THRESHOLD
        return Decision(False, reason, accumulated), 0.0


def threshold_for(distances: Sequence[float], full_steps: int, limits: Limits) -> float:
    """The smallest threshold at which a sample with these proxy distances, one a step, computes `full_steps` steps or
    fewer; a threshold that reuses all it may where `limits` force more."""

    def reused_at(threshold: float) -> int:
        controller = Controller(Threshold(threshold), limits)
        reused = 0
        for step, distance in enumerate(distances):
            reused += controller.decide(Observation(step, len(distances), distance, step > 0)).reuse
        return reused

    # A decision changes only where the threshold passes a sum of successive distances.
    sums: set[float] = set()
    for step in range(len(distances)):
        sums.update(accumulate(distances[step:]))
    candidates = [0.0]
    for total in sorted(sums):
        candidates.append(math.nextafter(total, math.inf))
    # A larger threshold never reuses fewer steps.
    smallest = bisect_left(candidates, len(distances) - full_steps, key=reused_at)
    return candidates[min(smallest, len(candidates) - 1)]
