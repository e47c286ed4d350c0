"""Muon (Keller Jordan, https://kellerjordan.github.io/posts/muon/): momentum whose update matrices are orthogonalised.

torch.optim.Muon takes matrices alone; this also takes convolution kernels as (out, in * kernel) matrices.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


def orthogonalise(matrices: Tensor, steps: int = 5) -> Tensor:
    """Nearly orthogonal matrices with the singular vectors of `(count, rows, columns)`, by Newton-Schulz iterations."""
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = (x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)).bfloat16()
    a, b, c = NEWTON_SCHULZ
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).to(matrices.dtype)


class Muon(torch.optim.Optimizer):
    """Muon for matrices and kernels; every other parameter belongs to another optimizer."""

    def __init__(self, parameters: Iterable[Tensor], lr: float, momentum: float = 0.95) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            alike: dict[tuple[int, ...], list[Tensor]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    alike.setdefault(parameter.flatten(1).shape, []).append(parameter)
            for (rows, columns), parameters in alike.items():  # one batched product instead of many small ones
                gradients = [parameter.grad.flatten(1) for parameter in parameters if parameter.grad is not None]
                momenta = [self._momentum(parameter).flatten(1) for parameter in parameters]
                torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
                updates = orthogonalise(torch.stack(gradients).lerp(torch.stack(momenta), group["momentum"]))
                rate = group["lr"] * max(1.0, rows / columns) ** 0.5
                for parameter, update in zip(parameters, updates, strict=True):
                    parameter.add_(update.view_as(parameter), alpha=-rate)

    def _momentum(self, parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
        momentum: Tensor = state["momentum"]
        return momentum


def optimizers_for(model: torch.nn.Module, rate: float, adam_rate: float) -> list[torch.optim.Optimizer]:
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
    optimizers: list[torch.optim.Optimizer] = [Muon(matrices, lr=rate), adam]
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return optimizers


def set_rate(optimizers: list[torch.optim.Optimizer], share: float) -> None:
    """Set every optimizer of `optimizers_for` to a share, from 0 to 1, of its peak learning rate."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = share * group["peak"]
