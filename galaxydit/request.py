"""What a user asks for, checked once for Python, the command line and job files."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from galaxydit.errors import GalaxyDiTError, check_choice, check_number

if TYPE_CHECKING:
    from galaxydit.profiles.schema import Profile

POLICIES = AUTO, SCHEDULE, PROXY = "auto", "schedule", "proxy"
DEFAULT_SPEEDUP = 2.0


@dataclass(frozen=True)
class Request:
    """The arguments of `galaxydit.accelerate` that choose full steps.

    Attributes:
        speedup: block evaluations without the plugin / with it, at least 1; 2.0 if no other goal is given.
        policy: "schedule" computes planned steps, "proxy" reuses while the model's proxy has moved less than a
            calibrated threshold, "auto" takes the better one of the profile's verification.
        max_error: largest expected relative error of a reused step, at least 0.
        threshold: of the rule of arXiv 2512.03451, on the summed distance of the proxy, at least 0.
        profile: a `Profile`, the name of a shipped profile, or a file; by default the profile of the model.
        proxy: name of the proxy that is read; by default the profile's.
        warmup: share of first steps that are always computed, in [0, 1].

    Raises GalaxyDiTError for a value out of range, and for two that contradict each other.
    """

    speedup: float | None = None
    policy: str = AUTO
    max_error: float | None = None
    threshold: float | None = None
    profile: "Profile | str | Path | None" = None
    proxy: str | None = None
    warmup: float | None = None

    def __post_init__(self) -> None:
        for field, minimum, maximum in (
            ("speedup", 1.0, float("inf")),
            ("max_error", 0.0, float("inf")),
            ("threshold", 0.0, float("inf")),
            ("warmup", 0.0, 1.0),
        ):
            if getattr(self, field) is not None:
                check_number(field, getattr(self, field), minimum, maximum)
        check_choice("policy", self.policy, POLICIES)
        for goal, others in (("threshold", ("speedup", "max_error")), ("max_error", ())):
            given = [name for name in others if getattr(self, name) is not None]
            if self.policy != AUTO:
                given.append("policy")
            if getattr(self, goal) is not None and given:
                raise GalaxyDiTError(f"{goal} is given together with {' and '.join(given)}", "leave one of them out")

    @property
    def is_default(self) -> bool:
        """Whether no goal is given, so that a default speedup serves."""
        return self.speedup is None and self.max_error is None and self.threshold is None
