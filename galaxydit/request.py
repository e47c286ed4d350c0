"""The request of a user, checked once for Python, the command line and job files."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

from galaxydit.errors import GalaxyDiTError, check_choice, check_count, check_number, plain_fields, refusal
from galaxydit.policies.names import AUTO, PAPER, POLICIES, PROXY, SCHEDULE, PolicyName

if TYPE_CHECKING:
    from galaxydit.profiles.schema import Profile
    from galaxydit.proxies import Proxy, ProxyName

__all__ = ["AUTO", "PAPER", "POLICIES", "PROXY", "SCHEDULE", "PolicyName", "QualityName", "Request", "RequestArguments"]

DEFAULT_SPEEDUP = 2.0
LOSSLESS: Final = "lossless"
QualityName = Literal["lossless", "high", "balanced", "fast"]
QUALITIES: Mapping[QualityName, float] = {LOSSLESS: 1.0, "high": 1.5, "balanced": DEFAULT_SPEEDUP, "fast": 3.0}
"""The speedup that each word of `quality` stands for. The words are those of serving engines."""
GOALS: Mapping[str, tuple[str, ...]] = {
    "speedup": (),
    "max_error": (),
    "threshold": ("speedup", "max_error"),
    "quality": ("speedup", "max_error", "threshold"),
    "min_psnr": ("speedup", "max_error", "threshold", "quality", "proxy", "warmup"),
}
"""Arguments that say how much to reuse, and the arguments that contradict each of them."""
POLICIES_BESIDE: Mapping[str, tuple[str, ...]] = {"max_error": (AUTO,), "threshold": (AUTO, PAPER), LOSSLESS: (AUTO,)}
"""The policies that a goal, or a word of `quality`, allows; others allow all."""


class RequestArguments(TypedDict, total=False):
    """The arguments of `Acceleration.set` and `using` beside `config`, as types: those of `Request`."""

    speedup: float | None
    policy: PolicyName
    max_error: float | None
    threshold: float | None
    min_psnr: float | None
    quality: QualityName | None
    profile: "Profile | str | Path | None"
    proxy: "ProxyName | Proxy | None"
    warmup: float | None
    few_steps: int | None


@dataclass(frozen=True)
class Request:
    """The arguments of `galaxydit.accelerate` that choose full steps, checked.

    At most one goal is given, or `speedup` and `max_error` together. Raises GalaxyDiTError for a value out of range,
    and for arguments that contradict each other.
    """

    speedup: float | None = None
    policy: PolicyName = AUTO
    max_error: float | None = None
    threshold: float | None = None
    min_psnr: float | None = None
    quality: QualityName | None = None
    profile: Any = None  # a `Profile`, a path, or an address
    proxy: "ProxyName | Proxy | None" = None
    warmup: float | None = None
    few_steps: int | None = None

    def __post_init__(self) -> None:
        plain_fields(self)
        for field, minimum, maximum in (
            ("speedup", 1.0, float("inf")),
            ("max_error", 0.0, float("inf")),
            ("threshold", 0.0, float("inf")),
            ("min_psnr", 1.0, 100.0),
            ("warmup", 0.0, 1.0),
        ):
            if getattr(self, field) is not None:
                check_number(field, getattr(self, field), minimum, maximum)
        if self.few_steps is not None:
            check_count("few_steps", self.few_steps, minimum=0)
        if hasattr(self.policy, "decide"):
            raise refusal("policy", self.policy, "a name", "pass the object as config=GalaxyDiTConfig(policy=...)")
        check_choice("policy", self.policy, POLICIES)
        if self.quality is not None:
            check_choice("quality", self.quality, tuple(QUALITIES))
        for goal, others in GOALS.items():
            value = getattr(self, goal)
            if value is None:
                continue
            given = [name for name in others if getattr(self, name) is not None]
            key = value if goal == "quality" else goal
            if self.policy not in POLICIES_BESIDE.get(key, POLICIES):
                given.append("policy")
            if given:
                raise GalaxyDiTError(f"{goal} is given together with {' and '.join(given)}", "leave one of them out")

    @property
    def planned_speedup(self) -> float | None:
        """The speedup to plan for, 2.0 without a goal; None for `max_error` alone, `threshold` and `min_psnr`."""
        if self.quality is not None:
            return QUALITIES[self.quality]
        if (self.speedup, self.max_error, self.threshold, self.min_psnr) == (None, None, None, None):
            return DEFAULT_SPEEDUP
        return self.speedup

    def __str__(self) -> str:
        """The goal in the words of reports, such as "2x (the default)"."""
        if self.min_psnr is not None:
            return f"a PSNR of at least {self.min_psnr:g} dB"
        if self.quality is not None:
            return f"quality {self.quality!r} ({QUALITIES[self.quality]:g}x)"
        if self.threshold is not None:
            return f"threshold {self.threshold:g}"
        if self.max_error is None:
            default = " (the default)" if self.speedup is None else ""
            return f"{self.planned_speedup:g}x{default}"
        limit = f"errors of at most {self.max_error:g}"
        if self.speedup is None:
            return limit
        return f"{self.speedup:g}x with {limit}"
