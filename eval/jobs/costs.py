"""The costs of a video: an entry of COSTS for a field of `TrialResult` is reported, exported and gated."""

from dataclasses import dataclass


@dataclass(frozen=True)
class MeasuredFigure:
    """A measured quantity, which reports show as a column and gates limit.

    key: such as "psnr" or a field of `VideoRecord`. unit: "x", "s", "J", "%" for shares in [0, 1], a metric's own, or
    empty. digits: after the decimal point. seconds: of a speedup, the field that it divides.
    best: the best value, where both lower and higher ones are worse.
    """

    key: str
    title: str
    unit: str
    digits: int
    higher_is_better: bool
    seconds: str = ""
    best: float | None = None

    def badness(self, value: float) -> float:
        """A number that is the larger, the worse the value is."""
        if self.best is not None:
            return abs(value - self.best)
        return -value if self.higher_is_better else value


COSTS = (
    MeasuredFigure("denoise_speedup", "denoise speedup", "x", 2, higher_is_better=True, seconds="denoise_seconds"),
    MeasuredFigure(
        "end_to_end_speedup", "end-to-end speedup", "x", 2, higher_is_better=True, seconds="end_to_end_seconds"
    ),
    MeasuredFigure("denoise_seconds", "denoising", "s", 2, higher_is_better=False),
    MeasuredFigure("end_to_end_seconds", "end to end", "s", 2, higher_is_better=False),
    MeasuredFigure("compute_fraction", "compute fraction", "%", 0, higher_is_better=False),
    MeasuredFigure("energy_per_video_joules", "energy", "J", 0, higher_is_better=False),
)
SPEEDUPS = {cost.key: cost.seconds for cost in COSTS if cost.seconds}
DISTURBED = (*SPEEDUPS, *SPEEDUPS.values(), "energy_per_video_joules")  # figures that other work on the machine changes
