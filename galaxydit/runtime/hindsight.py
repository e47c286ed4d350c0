"""Measure at full steps the errors that predictions would have had, from values sampled from the guided outputs.

A full step computes the transformer. A prediction repeats the output of the last full step, and may follow the slope
between the last two. A guided output combines the outputs of the conditional and the unconditional branch. By the
measured errors, the guard (`galaxydit.policies.safeguard`) limits the slope and allows or forbids the correction, which
makes full steps compensate the errors of the reused steps before them. The errors of all predictions follow from the
inner products of differences between the outputs of full steps. So the measurement costs these products of a few
vectors, and one transfer of some numbers from the device. No block and no output head runs for it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from galaxydit.context_parallel import sum_over
from galaxydit.extrapolation import DAMPING, LARGEST_AHEAD, slope_ahead
from galaxydit.policies.safeguard import Hindsight, Safeguard
from galaxydit.runtime.guidance import guided, weights_of
from galaxydit.torch_compile import beside_the_model

LARGEST_SAMPLE = 2**16  # values of one branch
KEPT = 4  # full steps


@dataclass(frozen=True)
class SampledStep:
    """A full step: its index from 0 and noise level, its guidance branches, and `values`, a vector sampled from its
    guided output.

    `rounding` is a scalar tensor: the expected square of the rounding error, summed over these values.
    """

    step: int
    sigma: float
    branches: frozenset[str]
    values: Tensor
    rounding: Tensor


@dataclass
class Trail:
    """The last full steps of one sample in one decision scope, and the guard of this sample.

    A sample is one video of the batch. A decision scope is one guidance branch, or all branches jointly.

    Attributes:
        guard: the guard's state: the share of the slope that predictions follow, and whether full steps are corrected.
        steps: the last full steps whose branches are all known, oldest first.
        pending: by branch, the values sampled from the newest full step, until all its branches are known.
        pending_step: index and noise level of the newest full step.
        scale: guidance scale of the newest full step.
    """

    guard: Safeguard
    steps: list[SampledStep] = field(default_factory=list)
    pending: dict[str, Tensor] = field(default_factory=dict)
    pending_step: tuple[int, float] = (-1, 0.0)
    scale: float = 1.0

    @beside_the_model
    def add(self, step: int, sigma: float, branches: dict[str, Tensor], scale: float, epsilon: float) -> bool:
        """Add values sampled from a full step: `branches` holds them for some or all of its guidance branches.

        Returns whether all branches of the step are now known and it can be compared with an earlier full step of the
        same branches. `scale` is the guidance scale, `epsilon` the relative rounding error of the outputs' dtype.
        """
        if self.pending and self.pending_step[0] != step:
            self._complete(epsilon)  # its branches differ from those of the step before; all are known by now
        self.pending_step, self.scale = (step, sigma), scale
        self.pending |= branches
        if self.steps and self.steps[-1].branches == self.pending.keys():
            self._complete(epsilon)
            return len(self.steps) > 1
        return False

    def _complete(self, epsilon: float) -> None:
        weights = weights_of(self.pending, self.scale) or dict.fromkeys(self.pending, 1.0)
        # Each output is rounded in proportion to its size.
        squares = [(epsilon * weight) ** 2 * self.pending[name].square().sum() for name, weight in weights.items()]
        values = guided(self.pending, self.scale)
        added = SampledStep(*self.pending_step, frozenset(self.pending), values, torch.stack(squares).sum())
        before = self.steps[-1] if self.steps else added  # a guidance scale that crosses 1 changes the guided output
        same = before.branches == added.branches and before.values.shape == values.shape
        comparable = self.steps if same else []
        self.steps, self.pending = [*comparable, added][-KEPT:], {}

    def waits_at(self, step: int) -> bool:
        """Whether `step` is a full step that still lacks a guidance branch."""
        return bool(self.pending) and self.pending_step[0] == step

    def bytes_held(self) -> int:
        """Bytes of the sampled values."""
        tensors = [step.values for step in self.steps] + list(self.pending.values())
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@beside_the_model
def measure(
    steps: Sequence[SampledStep], group: object | None = None, slope: float = DAMPING, largest: float = LARGEST_AHEAD
) -> Hindsight:
    """The errors that predictions of the newest full step would have had, as a `Hindsight`: its `error(share)` is the
    mean square error of the prediction that follows `share` times `slope`.

    `steps` are two to four full steps with the same branches, oldest first. `group` is the process group whose ranks
    each hold a part of the tokens (`token_group`); None means this process alone. `slope` is the configured share of
    the slope between two full steps, which the guard may lower by a further share; `largest` is the largest factor with
    which a prediction adds the difference of these steps (`galaxydit.extrapolation.slope_ahead`).
    """
    ahead_of = partial(slope_ahead, slope=slope, largest=largest)
    newest_first = steps[::-1]
    sigmas = [step.sigma for step in newest_first]
    differences = torch.stack([new.values - old.values for new, old in pairwise(newest_first)])
    products = (differences[:, None] * differences).sum(-1).flatten()
    size = products.new_full((1,), differences.shape[1])  # filled on the device: a copy would make the host wait
    *sums, rounding, count = sum_over(group, torch.cat([products, steps[-1].rounding[None], size])).tolist()
    side = len(differences)
    rows = tuple(tuple(value / count for value in sums[at : at + side]) for at in range(0, side * side, side))
    ahead = ahead_of(*sigmas[:3]) if len(sigmas) > 2 else 0.0
    skipping = tuple(ahead_of(sigma, *sigmas[2:4]) for sigma in sigmas[:2]) if len(sigmas) > 3 else (0.0, 0.0)
    distance = sigmas[2] - sigmas[0] if len(sigmas) > 2 else 0.0
    return Hindsight(
        step=steps[-1].step,
        products=rows,
        ahead=ahead,
        skipping=(skipping[0], skipping[1]),
        inner=(sigmas[2] - sigmas[1]) / distance if distance else 0.0,
        rounding=rounding / count,
    )


@beside_the_model
def sampled(outputs: Sequence[Tensor]) -> Tensor:
    """Values of the output of one guidance branch at a fixed stride, `(values,)`, in float32.

    `outputs` are the tensors of this output for one sample: one tensor, or two where a model denoises video and audio.
    `LARGEST_SAMPLE` limits the values of all tensors together. The stride has no common factor with the last axis, so
    that all columns of a frame are sampled.
    """
    total = sum(output.numel() for output in outputs)
    stride = -(-total // LARGEST_SAMPLE)
    while any(math.gcd(stride, output.shape[-1]) > 1 for output in outputs):
        stride += 1
    return torch.cat([output.detach().flatten()[::stride] for output in outputs]).float()
