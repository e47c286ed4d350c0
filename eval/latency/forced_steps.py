"""Which steps of a trajectory are computed in full: forced to a compute fraction, or replayed from a report."""

import json
import math
from dataclasses import dataclass
from pathlib import Path

WARM_UP = 0.2  # share of first steps that are never reused: arXiv 2512.03451


@dataclass(frozen=True)
class Plan:
    """A trajectory of so many steps, and the indices of those that are computed in full; the first one always is."""

    steps: int
    full: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.full or self.full[0] != 0 or self.full[-1] >= self.steps:
            raise ValueError(f"full is {self.full}, allowed are step indices from 0 (included) to {self.steps - 1}")

    def kinds(self, first: int | None = None) -> list[bool]:
        """For each of the first steps (by default all) whether it is full."""
        full = set(self.full)
        return [step in full for step in range(self.steps if first is None else first)]

    @property
    def step_fraction(self) -> float:
        """Full steps / steps."""
        return len(self.full) / self.steps


def plan_for(steps: int, fraction: float) -> Plan:
    """A plan with the share `fraction` of full steps: warm-up and last step, and the rest evenly spaced between.

    Raises ValueError for a fraction outside what warm-up and last step leave.
    """
    warm_up = max(2, math.ceil(round(steps * WARM_UP, 9)))
    count = round(steps * fraction)
    least = min(steps, warm_up + 1)
    if not least <= count <= steps:
        raise ValueError(
            f"fraction is {fraction:g}, allowed are numbers from {least / steps:g} to 1 at {steps} steps "
            f"({warm_up} warm-up steps and the last are always full): pass for example 0.5"
        )
    between = steps - 1 - warm_up
    free = count - least
    spaced = [warm_up + math.floor((index + 1) * between / (free + 1)) for index in range(free)]
    return Plan(steps, tuple(sorted({*range(warm_up), *spaced, steps - 1})))


def sampling_plan(steps: int) -> Plan:
    """A plan for measuring single steps: two full ones, so that there is a line to go on along, then in alternation."""
    return Plan(steps, (0, *range(1, steps, 2)))


def plan_from_report(path: Path) -> Plan:
    """The decisions of a recorded generation, from `Report.save` or from the demo's report.json.

    Raises ValueError for a file that holds no such report.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        report = data["reports"][0] if "reports" in data else data
        computed = {call["step"] for call in report["calls"] if not call["reused"]}
        return Plan(int(report["steps"]), tuple(sorted(computed)))
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(
            f"replay is {path}, which is no report ({error!r}): pass a file written by Report.save or by the demo"
        ) from error
