"""Muon (Keller Jordan, https://kellerjordan.github.io/posts/muon/): momentum whose update matrices are orthogonalised.

torch.optim.Muon takes matrices alone; this one also takes convolution kernels, seen as (out, in * kernel) matrices,
where it makes the autoencoder learn several times faster than AdamW.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


def orthogonalise(matrix: Tensor, steps: int = 5) -> Tensor:
    """An approximately orthogonal matrix with the singular vectors of `matrix` `(rows, columns)`."""
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = (x / (x.norm() + 1e-7)).bfloat16()
    a, b, c = NEWTON_SCHULZ
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.T if tall else x).to(matrix.dtype)


class Muon(torch.optim.Optimizer):
    """Muon for matrices and kernels; every other parameter of the model belongs to another optimizer."""

    def __init__(self, parameters: Iterable[Tensor], lr: float, momentum: float = 0.95) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(parameter)
                state["momentum"].lerp_(parameter.grad, 1 - group["momentum"])
                update = parameter.grad.lerp(state["momentum"], group["momentum"]).flatten(1)
                scale = max(1.0, update.shape[0] / update.shape[1]) ** 0.5
                parameter.add_(orthogonalise(update).view_as(parameter), alpha=-group["lr"] * scale)


def optimizers_for(model: torch.nn.Module, rate: float, adam_rate: float) -> list[torch.optim.Optimizer]:
    """Muon for the hidden matrices and kernels of a model, AdamW for embeddings, edges, gains and biases."""
    matrices: list[Tensor] = []
    others: list[Tensor] = []
    for name, parameter in model.named_parameters():
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
    """Put every optimizer to this share of its peak learning rate."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = share * group["peak"]
