"""Gates: limits for a run's figures, such as "psnr", "worst_psnr", "vbench_imaging_quality" or "lost_total"."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from galaxydit.errors import did_you_mean, refusal
from galaxydit.eval.jobs.costs import COSTS

WORST, VBENCH, LOST = "worst_", "vbench_", "lost_"  # in front of a figure's or a dimension's name
TOTAL = "total"


@dataclass(frozen=True)
class Gates:
    """Lowest and highest allowed values by figure, of `variants` or all but the baseline."""

    variants: tuple[str, ...] = ()
    min: Mapping[str, float] = field(default_factory=dict)
    max: Mapping[str, float] = field(default_factory=dict)


def check_names(gates: Gates) -> None:
    """Raise GalaxyDiTError for a gate on a figure that does not exist."""
    from galaxydit.eval.metrics import METRICS
    from galaxydit.eval.published.vbench import DIMENSIONS

    figures = [*METRICS, *(cost.key for cost in COSTS)]
    points = [*DIMENSIONS, TOTAL]
    known = {*figures, *(WORST + name for name in figures)}
    known |= {start + name for start in (VBENCH, LOST) for name in points}
    for name in (*gates.min, *gates.max):
        if name not in known:
            expected = f"one of {', '.join(figures)}, such a name after {WORST}, "
            expected += f"or a dimension or {TOTAL} after {VBENCH} or {LOST}"
            raise refusal("gate", name, expected, f"check the spelling{did_you_mean(name, known)}")
