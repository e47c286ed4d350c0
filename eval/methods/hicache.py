"""HiCache (arXiv 2508.16984): TaylorSeer with scaled Hermite polynomials in place of the powers of the step offset.

The offset k is the number of steps since the last full step. With the physicists' polynomials H_n and sigma = 0.5, the
power k^n becomes sigma^n H_n(sigma k). At order 1 that is k / 2, so the extrapolation goes half as far as TaylorSeer's.
"""

import math
from contextlib import AbstractContextManager
from typing import Any

import torch
from diffusers import DiffusionPipeline
from diffusers.hooks.taylorseer_cache import TaylorSeerState
from numpy.polynomial import hermite
from torch import Tensor

from galaxydit.eval.methods.method import Setting, method
from galaxydit.eval.methods.taylorseer import PUBLISHED_SETTING, on_published_steps
from galaxydit.pipelines.trial import Attached

SCALE = 0.5


def scaled_hermite(order: int, offset: float) -> float:
    """SCALE^order H_order(SCALE offset), in place of the power offset^order; `offset` is in steps."""
    return SCALE**order * float(hermite.hermval(SCALE * offset, [0] * order + [1]))


class HermiteState(TaylorSeerState):
    """The finite differences of one module's outputs, extrapolated in Hermite polynomials."""

    @torch.compiler.disable
    def predict(self) -> list[Tensor]:
        offset = self.current_step - self.last_update_step
        outputs = []
        for index, factors in self.taylor_factors.items():
            dtype = self.module_dtypes[index]
            terms = [scaled_hermite(n, offset) / math.factorial(n) * factors[n].to(dtype) for n in sorted(factors)]
            outputs.append(torch.stack(terms).sum(dim=0))
        return outputs


@method(
    "HiCache published",
    "HiCache, arXiv 2508.16984",
    lambda steps: [{**PUBLISHED_SETTING, "max_order": order} for order in (1, 2)],
    tuned=False,
)
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    return on_published_steps(pipe, setting, HermiteState)
