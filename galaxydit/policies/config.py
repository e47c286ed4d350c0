"""The settings of an acceleration, checked when they are made."""

import math
from dataclasses import dataclass
from typing import Any

from galaxydit.errors import GalaxyDiTError
from galaxydit.plan import Plan
from galaxydit.proxies import PROXIES

REUSE_KINDS = ("output", "residual")
FEW_STEPS = 8


@dataclass(frozen=True)
class Config:
    """How steps are chosen for reuse and what is reused.

    Attributes:
        threshold: a step is reused while the proxy's relative L1 distance, summed since the last full step, stays below
            this; at least 0, and 0 reuses nothing. Larger is faster and less faithful.
        proxy: name of the tensor that is watched, one of `galaxydit.PROXIES`.
        warmup: share of the steps, from the first, that are always computed, in [0, 1] (0.2: arXiv 2512.03451).
        keep_last: number of steps, from the last, that are always computed, at least 0.
        max_consecutive: most reused steps in a row, at least 1, or None for no cap.
        reuse: "output" predicts the transformer's output, so a reused step runs no more than the first block of one
            branch; "residual" predicts what the block stack adds to its input and runs embedding and head anew.
        order: 0 repeats the last full step; 1 extrapolates linearly in sigma from the last two. A plan with weights
            replaces it.
        guidance_alignment: one decision a step for all guidance branches. False lets each branch decide for itself
            and is here to be compared with.
        schedule: indices of the steps to compute in full; the proxy is not read and threshold, warm-up and cap play no
            part.
        plan: a speedup or an error to aim at, with the calibration that says how; `threshold` then plays no part.
    """

    threshold: float = 0.1
    proxy: str = "block_residual"
    warmup: float = 0.2
    keep_last: int = 1
    max_consecutive: int | None = 4
    reuse: str = "output"
    order: int = 1
    guidance_alignment: bool = True
    schedule: tuple[int, ...] | None = None
    plan: Plan | None = None

    def __post_init__(self) -> None:
        _check_number("threshold", self.threshold, minimum=0.0)
        _check_number("warmup", self.warmup, minimum=0.0, maximum=1.0)
        _check_choice("proxy", self.proxy, tuple(PROXIES))
        _check_choice("reuse", self.reuse, REUSE_KINDS)
        _check_choice("order", self.order, (0, 1))
        _check_choice("guidance_alignment", self.guidance_alignment, (True, False))
        _check_count("keep_last", self.keep_last, minimum=0)
        if self.max_consecutive is not None:
            _check_count("max_consecutive", self.max_consecutive, minimum=1)
        if self.schedule is not None:
            object.__setattr__(self, "schedule", tuple(sorted(set(self.schedule))))
            for step in self.schedule:
                _check_count("schedule", step, minimum=0)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _check_number(field: str, value: Any, minimum: float, maximum: float = math.inf) -> None:
    if not _is_number(value) or not minimum <= value <= maximum:
        allowed = f"at least {minimum:g}" if maximum == math.inf else f"from {minimum:g} to {maximum:g}"
        raise GalaxyDiTError(
            f"{field}={value!r} is not a number {allowed}; pass for example {field}={max(minimum, 0.1):g}"
        )


def _check_count(field: str, value: Any, minimum: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise GalaxyDiTError(
            f"{field}={value!r} is not a whole number of at least {minimum}; pass for example {minimum}"
        )


def _check_choice(field: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if not any(value == choice and type(value) is type(choice) for choice in allowed):
        names = ", ".join(repr(choice) for choice in allowed)
        raise GalaxyDiTError(f"{field}={value!r} is not known; choose one of {names}")
