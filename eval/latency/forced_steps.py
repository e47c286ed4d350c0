"""The steps of a trajectory that are computed in full: a forced compute fraction, or a report's decisions."""

import json
import math
from dataclasses import dataclass
from pathlib import Path

WARM_UP = 0.2  # share of the first steps that are always full: arXiv 2512.03451


@dataclass(frozen=True)
class ForcedSteps:
    """The number of steps of a trajectory, and the indices of the full ones; the first step is always full."""

    steps: int
    full: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.full or self.full[0] != 0 or self.full[-1] >= self.steps:
            raise ValueError(
                f"full={self.full} is not allowed: expected ascending indices from 0 to {self.steps - 1}; include 0"
            )

    def kinds(self, first: int) -> list[bool]:
        """Whether each of the first steps is full."""
        full = set(self.full)
        return [step in full for step in range(first)]


def evenly_forced(steps: int, fraction: float) -> ForcedSteps:
    """Full steps at warm-up and last step, the others evenly spaced, `fraction` of all steps together.

    Raises ValueError for a fraction that warm-up and last step exceed, or above 1.
    """
    warm_up = max(2, math.ceil(round(steps * WARM_UP, 9)))
    count = round(steps * fraction)
    least = min(steps, warm_up + 1)
    if not least <= count <= steps:
        raise ValueError(
            f"fraction={fraction:g} is not allowed: expected a number from {least / steps:g} to 1 at {steps} steps, "
            f"because {warm_up} warm-up steps and the last one are always full; pass for example 0.5"
        )
    between = steps - 1 - warm_up
    free = count - least
    spaced = [warm_up + math.floor((index + 1) * between / (free + 1)) for index in range(free)]
    return ForcedSteps(steps, tuple(sorted({*range(warm_up), *spaced, steps - 1})))


def alternating(steps: int) -> ForcedSteps:
    """For timing single steps: two full steps, which extrapolation needs, then reused and full ones in alternation."""
    return ForcedSteps(steps, (0, *range(1, steps, 2)))


def forced_by_report(path: Path) -> ForcedSteps:
    """The decisions of a recorded generation, from `Report.save` or from the demo's report.json.

    Raises ValueError for a file without such a report.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        report = data["reports"][0] if "reports" in data else data
        computed = {call["step"] for call in report["calls"] if not call["reused"]}
        return ForcedSteps(int(report["steps"]), tuple(sorted(computed)))
    except (KeyError, TypeError, IndexError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(
            f"replay={path} is not allowed: expected a report, found none ({error!r}); pass a file written by "
            "Report.save or by the demo"
        ) from error
