"""DiCache (Bu et al., arXiv 2508.17356; github.com/Bujiazi/DiCache, its Wan2.1 backend).

The first block runs at every step as a probe. The relative L1 change of its output is summed until it reaches a
`threshold`, in each branch. A reused step extrapolates the residuals of the last two full steps in proportion to the
change of the probe's residual. The first `first` steps are computed.
"""

from collections.abc import Sequence
from typing import Any

from diffusers import DiffusionPipeline
from torch import Tensor

from galaxydit import Reuse
from galaxydit.eval.methods.accumulation import Accumulation, attached, mean_size, share_of_steps, warm_ups
from galaxydit.eval.methods.method import Context, Setting, geometric_grid, method
from galaxydit.extrapolation import CachedStep
from galaxydit.runtime.call import Call

PROBE = "block_residual"


class AlignedResidual(Reuse):
    """Extrapolates the residuals through the last two full steps, in proportion to the change of the probe's."""

    predicts = "residual"
    proxies = (PROBE,)

    def side(self, call: Call) -> Tensor:
        return call.proxies[PROBE]

    def predict(self, call: Call, past: Sequence[CachedStep]) -> Tensor:
        older, newest = past[0], past[-1]
        if older is newest:
            return newest.tensor
        # r_2 + a (r_1 - r_2) with the residuals r_1, the newest, and r_2, and a = |p - p_2| / |p_1 - p_2| of the probe
        change = mean_size(call.proxies[PROBE] - older.side)
        share = alignment(change, mean_size(newest.side - older.side))
        return older.tensor + share * (newest.tensor - older.tensor)


def alignment(change: float, change_between: float) -> float:
    """Coefficient in [1, 2] of the extrapolation: the size of the probe's change since the older full step / between
    the two.
    """
    return min(2.0, max(1.0, change / max(change_between, 1e-12)))


def settings(steps: int) -> list[Setting]:
    grid: list[Setting] = []
    for first in warm_ups(steps, 0.2):
        for value in geometric_grid(0.01, 0.8, 14):
            grid.append({"threshold": value, "first": first})
    return grid


def published_settings(steps: int) -> list[Setting]:
    """The authors' default, then the settings of arXiv 2610.10457 at three speedups.

    That of arXiv 2609.36433 is left out, because it needs a probe of two blocks.
    """
    published = ((0.08, 0.2), (0.155, 0.2), (0.365, 0.2), (12.0, 0.17))  # threshold, share of warm-up steps
    return [{"threshold": threshold, "first": share_of_steps(steps, share)} for threshold, share in published]


@method("DiCache", "arXiv 2508.17356", settings, published=published_settings)
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Context:
    policy = Accumulation(setting["threshold"], setting["first"])
    return attached(pipe, policy, proxy="block_output", guidance_alignment=False, reuse=AlignedResidual(), order=1)
