"""What a calibration may spend, and what its stages cost, in plain videos of full size."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from galaxydit.errors import refusal

if TYPE_CHECKING:
    from galaxydit.calibration.step_times import StepTimes  # imports torch

CHOICE_PROMPTS = 8  # for the choice of order and proxy
CHOICE_COST = 1 + 1 / 2 + 1 / 3 + 1 / 2  # plain videos for one of them: plain, order 1 at 2x and 3x, order 0 at 2x
VERIFIED_PROMPTS = 8
PERTURBED = 2.0  # generations of the three perturbations of a sample, which start from their interval
HOURS = 3600.0
MINUTES = 60.0
LARGEST_BUDGET = 1e6  # plain videos or hours; `Costs.within` cannot count with infinity
H100_CALLS = {"Wan2.1 14B at 720p": (12.54, 0.303), "Wan2.1 1.3B at 480p": (0.638, 0.070)}
"""Measured seconds of a transformer call on one H100: plain, and of a small recording in TF32."""


@dataclass(frozen=True)
class Budget:
    """The stages of a calibration; each adds to the profile of those before."""

    samples: tuple[int, int] = (4, 8)  # fewest and most recordings, which end when the schedules stop moving
    check: bool = True  # generate a plain video that checks them
    choice: int = 0  # prompts whose videos choose order and proxy; 0 takes order 1 and the proxy that ranks best
    verified: int = 0  # held-out prompts whose videos verify each speedup


DEFAULT = Budget()
FULL = Budget((8, 16), True, CHOICE_PROMPTS, VERIFIED_PROMPTS)


@dataclass(frozen=True)
class Costs:
    """What the stages cost in generations of `steps` steps, from a plain step at full size and a recorded one."""

    steps: int
    speedups: Sequence[float]
    plain: "StepTimes"
    recorded: "StepTimes"
    check: float = 1.0  # plain videos that the check makes; 0 where a recorded video serves

    @property
    def sample(self) -> float:
        """Plain videos that one sample costs."""
        return (1 + PERTURBED) * self.recorded.seconds.step / self.plain.seconds.step

    @property
    def verification(self) -> float:
        """Plain videos for one held-out prompt: plain, and the schedule at each speedup."""
        return 1 + sum(1 / speedup for speedup in self.speedups)

    def videos(self, budget: Budget, samples: int) -> float:
        """Plain videos that a budget costs with this number of samples."""
        made = budget.check * self.check + budget.choice * CHOICE_COST + budget.verified * self.verification
        return samples * self.sample + made

    def seconds(self, videos: float) -> float:
        return videos * self.steps * self.plain.seconds.step

    def joules(self, budget: Budget, samples: int) -> float | None:
        """Joules of a budget with this number of samples; None without a counter."""
        if self.plain.joules is None or self.recorded.joules is None:
            return None
        plain_videos = self.videos(budget, samples) - samples * self.sample
        of_sample = (1 + PERTURBED) * self.steps * self.recorded.joules
        return self.plain.joules * self.steps * plain_videos + samples * of_sample

    def describe(self, budget: Budget) -> str:
        """One line: videos, time, energy and memory of a budget, and what verification would add."""
        fewest, most = budget.samples
        low, high = self.joules(budget, fewest), self.joules(budget, most)
        few = self.videos(budget, fewest)
        many = self.videos(budget, most)
        text = f"{_range(few, many, 1)} plain videos: {_time(self.seconds(few), self.seconds(many))}"
        if low is not None and high is not None:
            text += f", {_range(low / 1000, high / 1000, 0)} kJ"
        if self.recorded.bytes is not None:
            text += f", {self.recorded.bytes / 1e9:.1f} GB of GPU memory"
        if not budget.verified:
            added = VERIFIED_PROMPTS * self.verification
            time = _time(self.seconds(added), self.seconds(added))
            text += f"; --budget full verifies it for {added:.0f} more ({time})"
        return text

    def within(self, limit: float | str) -> Budget:
        """The stages that fit into `limit` (plain videos, or hours as text), at least one sample."""
        if isinstance(limit, str):
            left = float(limit.rstrip("h")) * HOURS / self.seconds(1)
        else:
            left = limit
        # Each stage takes what those before have left.
        check = left >= self.check + self.sample
        left -= check * self.check
        most = max(1, min(DEFAULT.samples[1], int(left / self.sample + 1e-9)))
        left -= most * self.sample
        verified = max(0, min(VERIFIED_PROMPTS, int(left / self.verification)))
        left -= verified * self.verification
        choice = 0
        if left >= CHOICE_PROMPTS * CHOICE_COST:
            choice = CHOICE_PROMPTS
        return Budget((min(DEFAULT.samples[0], most), most), check, choice, verified)


def forecast() -> str:
    """What a calibration by default costs on one H100, from `H100_CALLS`."""
    texts = []
    for model, (plain, recorded) in H100_CALLS.items():
        few, many = [DEFAULT.check + count * (1 + PERTURBED) * recorded / plain for count in DEFAULT.samples]
        texts.append(f"{_range(few, many, 1)} plain videos for {model}")
    return ", ".join(texts)


def read_budget(text: str) -> Budget | float | str:
    """`DEFAULT` for "", `FULL` for "full", a number of plain videos, or hours as text; GalaxyDiTError for others."""
    if text == "":
        return DEFAULT
    if text == "full":
        return FULL
    if not re.fullmatch(r"\d+(\.\d+)?h?", text) or not 0 < float(text.rstrip("h")) <= LARGEST_BUDGET:
        expected = f"a number of plain videos above 0 and up to {LARGEST_BUDGET:,.0f}, hours such as 2h, or full"
        raise refusal("--budget", text, expected, "leave it out for the default")
    if text.endswith("h"):
        return text
    return float(text)


def _range(low: float, high: float, digits: int) -> str:
    first, last = f"{low:.{digits}f}", f"{high:.{digits}f}"
    return first if first == last else f"{first} to {last}"


def _time(low: float, high: float) -> str:
    if high >= 2 * HOURS:
        return f"{_range(low / HOURS, high / HOURS, 1)} h"
    if high >= 2 * MINUTES:
        return f"{_range(low / MINUTES, high / MINUTES, 0)} min"
    return f"{_range(low, high, 0)} s"
