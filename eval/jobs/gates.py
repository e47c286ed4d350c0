"""Gates: limits that a job file may set for the figures of its run.

A figure is a metric, a speedup, seconds, the compute fraction, or points of VBench. Its name is for example "psnr" (the
mean over the videos), "worst_psnr" (the worst video), "vbench_imaging_quality" (points of a VBench dimension), or
"lost_imaging_quality" (points that the variant loses against the baseline).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from galaxydit.errors import did_you_mean, refusal

WORST, VBENCH, LOST = "worst_", "vbench_", "lost_"  # in front of a figure's or a dimension's name
TOTAL = "total"
COSTS = ("denoise_speedup", "end_to_end_speedup", "denoise_seconds", "end_to_end_seconds", "compute_fraction")


@dataclass(frozen=True)
class Gates:
    """Limits that `galaxydit eval check` holds a run to.

    variants: names of the variants (ways to generate) that are checked; empty for all but the baseline, which is the
        variant without acceleration.
    min, max: smallest and largest allowed value, by the name of a figure.
    """

    variants: tuple[str, ...] = ()
    min: Mapping[str, float] = field(default_factory=dict)
    max: Mapping[str, float] = field(default_factory=dict)


def check_names(gates: Gates) -> None:
    """Raise GalaxyDiTError if `gates` has a limit for a figure that does not exist."""
    from galaxydit.eval.metrics import METRICS
    from galaxydit.eval.published.vbench import DIMENSIONS

    figures = [*METRICS, *COSTS]
    points = [*DIMENSIONS, TOTAL]
    known = {*figures, *(WORST + name for name in figures)}
    known |= {start + name for start in (VBENCH, LOST) for name in points}
    for name in (*gates.min, *gates.max):
        if name not in known:
            expected = f"one of {', '.join(figures)}, such a name after {WORST}, "
            expected += f"or a dimension or {TOTAL} after {VBENCH} or {LOST}"
            raise refusal("gate", name, expected, f"check the spelling{did_you_mean(name, known)}")
