"""The paper's policy: reuse while the proxy has moved less than a threshold since the last full step.

A full step is a computed step. A proxy is a cheap tensor whose change shows how much the transformer's output changes.
"""

import math
from dataclasses import dataclass

from galaxydit.errors import check_number
from galaxydit.policies.policy import Decision, Observation, Reason


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
        check_number("threshold", self.threshold, minimum=0.0)

    @property
    def reads_proxy(self) -> bool:
        return self.threshold > 0

    @property
    def reuses(self) -> bool:
        return self.threshold > 0

    def decide(self, observation: Observation, state: float | None = None) -> tuple[Decision, float]:
        """Compute steps that the limits force, steps above the threshold, and steps without a finite distance.

        Returns the decision and the `state` for the next step: the proxy distance summed since the last full step.
        `state` is None at the first step.
        """
        forced = Reason.ZERO_THRESHOLD if self.threshold == 0 else observation.forced
        distance = observation.known_distance
        accumulated = math.inf if distance is None else (state or 0.0) + distance
        if forced is None and accumulated < self.threshold:
            return Decision(True, Reason.BELOW_THRESHOLD, accumulated), accumulated
        reason = forced or (Reason.NO_DISTANCE if distance is None else Reason.ABOVE_THRESHOLD)
        return Decision(False, reason, accumulated), 0.0
