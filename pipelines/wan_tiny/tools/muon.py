"""The optimizers of training: Muon (https://kellerjordan.github.io/posts/muon/) and AdamW."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from galaxydit.pipelines.wan_tiny.tools.machine import fast_dtype

MOMENTUM = 0.95
ORTHOGONALISATION_STEPS = 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the Newton-Schulz iteration, from the source


class Muon(torch.optim.Optimizer):
    """Muon for matrices and kernels, which become (out, in * kernel) matrices.

    PyTorch's Muon iterates in bfloat16 alone, one matrix at a time: on a CPU without bfloat16 that takes three times as
    long as the rest of a step. This one takes matrices of the same shape together, in the type that is fast.
    """

    def __init__(self, parameters: Iterable[Tensor], lr: float) -> None:
        super().__init__(list(parameters), {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_shape[parameter.flatten(1).shape].append(parameter)
            for (rows, columns), parameters in by_shape.items():
                momenta = [self._momentum(parameter, parameter.grad) for parameter in parameters]
                updates = orthogonalise(torch.stack(momenta))
                scale = math.sqrt(max(1.0, rows / columns))
                for parameter, update in zip(parameters, updates, strict=True):
                    parameter.sub_(update.view_as(parameter), alpha=group["lr"] * scale)

    def _momentum(self, parameter: Tensor, gradient: Any) -> Tensor:
        """Nesterov's momentum of the gradient, as a matrix."""
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        buffer = state["momentum_buffer"]
        buffer.lerp_(gradient, 1 - MOMENTUM)
        return torch.lerp(gradient, buffer, MOMENTUM).flatten(1)


def orthogonalise(matrices: Tensor) -> Tensor:
    """The matrices `(batch, rows, columns)` with singular values moved to about 1, by Newton-Schulz iteration."""
    a, b, c = COEFFICIENTS
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.to(fast_dtype(matrices.device))
    x = x.mT if is_tall else x
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(ORTHOGONALISATION_STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    x = x.mT if is_tall else x
    return x.to(matrices.dtype)


def optimizers_for(model: nn.Module, rate: float, adam_rate: float) -> list[torch.optim.Optimizer]:
    """Muon for hidden matrices and kernels, AdamW for embeddings, outer layers, gains and biases; rates are peaks."""
    matrices: list[Tensor] = []
    others: list[Tensor] = []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        edge = any(part in name for part in ("conv_in", "conv_out", "embed", "shared", "table", "proj_out", "bias"))
        is_matrix = parameter.ndim >= 2 and min(parameter.flatten(1).shape) > 1 and not edge
        (matrices if is_matrix else others).append(parameter)
    adam = torch.optim.AdamW(others, lr=adam_rate, betas=(0.9, 0.99), weight_decay=0.0)
    return [Muon(matrices, lr=rate), adam]
