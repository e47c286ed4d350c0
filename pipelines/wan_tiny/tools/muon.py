"""The optimizers of training: Muon (https://kellerjordan.github.io/posts/muon/, in PyTorch from 2.9) and AdamW."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn


class Muon(torch.optim.Muon):
    """PyTorch's Muon, which takes matrices alone; kernels become (out, in * kernel) matrices in the same memory."""

    def __init__(self, parameters: Iterable[Tensor], lr: float) -> None:
        self._parameters = list(parameters)
        matrices = [nn.Parameter(parameter.detach().flatten(1)) for parameter in self._parameters]
        super().__init__(matrices, lr=lr, weight_decay=0.0)

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for parameter, matrix in zip(self._parameters, self.param_groups[0]["params"], strict=True):
            matrix.grad = None if parameter.grad is None else parameter.grad.flatten(1)
        super().step(closure)


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
