"""Proxies: cheap tensors of a step whose change foretells how much the model's output is about to change.

Each is read at one place and costs a share of one DiT block when the step is then reused: what must run before it is
known.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from galaxydit.ranks import sum_over


@dataclass(frozen=True)
class Proxy:
    """A tensor to watch.

    Attributes:
        name: how settings and reports call it.
        place: where it is read: "transformer" (its inputs), "first block input", "inside first block" or "first block
            output".
        cost: share of one block that runs before it is known, in [0, 1]. Inside the block: the multiply-adds of Wan's
            parts.
        source: the method that used it first.
    """

    name: str
    place: str
    cost: float
    source: str


_ALL = (
    Proxy("time_embedding", "first block input", 0.0, "TeaCache, arXiv 2411.19108"),
    Proxy("noisy_latent", "transformer", 0.0, "EasyCache, arXiv 2507.02860"),
    Proxy("filtered_latent", "transformer", 0.0, "SeaCache, arXiv 2602.18993"),
    Proxy("block_input", "first block input", 0.0, "TeaCache, arXiv 2411.19108"),
    Proxy("modulated_input", "inside first block", 0.0, "TeaCache, arXiv 2411.19108"),
    Proxy("self_attention", "inside first block", 0.4, "GalaxyDiT, arXiv 2512.03451"),
    Proxy("cross_attention", "inside first block", 0.6, "GalaxyDiT, arXiv 2512.03451"),
    Proxy("feed_forward", "inside first block", 1.0, "GalaxyDiT, arXiv 2512.03451"),
    Proxy("block_residual", "first block output", 1.0, "First Block Cache (ParaAttention); DiCache, arXiv 2508.17356"),
    Proxy("block_output", "first block output", 1.0, "DiCache, arXiv 2508.17356"),
)
PROXIES: Mapping[str, Proxy] = MappingProxyType({proxy.name: proxy for proxy in _ALL})

# Elements of a sample that a distance looks at in one go: on a CPU what its cache holds, else enough to outweigh the
# launches.
PIECE_ON_CPU = 2**20
PIECE = 2**24


LARGEST_DISTANCE = 2.0


def relative_l1(current: Tensor, previous: Tensor, group: Any | None = None) -> Tensor:
    """Relative L1 distance of each sample, `(batch,)`: mean |current - previous| / mean |previous|, from 0
    to 2: a step away from next to nothing (the filtered latent at sigma 1) must not drown all others in a sum.
    Over all ranks of `group` where they share the tokens.

    Source: TeaCache, arXiv 2411.19108, equation 4. Computed in the tensors' own precision, summed in float32, and piece
    by piece: what is allocated meanwhile is one piece and no copy of the hidden states, and a piece stays in the cache.
    """
    size = PIECE_ON_CPU if current.device.type == "cpu" else PIECE
    change = scale = torch.zeros(current.shape[0], dtype=torch.float32, device=current.device)
    pieces = zip(current.flatten(1).split(size, dim=1), previous.flatten(1).split(size, dim=1), strict=True)
    for now, before in pieces:
        change = change + (now - before).abs_().sum(dim=1, dtype=torch.float32)
        scale = scale + before.abs().sum(dim=1, dtype=torch.float32)
    change, scale = sum_over(group, torch.stack([change, scale]))
    return (change / scale.clamp_min(torch.finfo(torch.float32).tiny)).clamp_max(LARGEST_DISTANCE)


def relative_l2(tensor: Tensor, reference: Tensor, group: Any | None = None) -> Tensor:
    """Root mean square of tensor - reference over that of `tensor`, a scalar of at least 0: what PSNR measures."""
    norms = [torch.linalg.vector_norm(part, dtype=torch.float32) for part in (tensor - reference, tensor)]
    change, scale = sum_over(group, torch.stack(norms).square()).sqrt()
    return change / scale.clamp_min(torch.finfo(torch.float32).tiny)


def filter_latent(latent: Tensor, sigma: float, power: float = 3.0) -> Tensor:
    """The part of a noisy latent `(batch, channels, frames, height, width)` that is signal, by a Wiener filter.

    For a flow-matching latent x = (1 - sigma) clean + sigma noise and a clean spectrum S(f) = f^-power, the best linear
    guess of the clean part weighs each frequency by (1-sigma)^2 S / ((1-sigma)^2 S + sigma^2). sigma in [0, 1].
    Source of the idea and of power 3: SeaCache, arXiv 2602.18993.
    """
    axes = (-3, -2, -1)
    spectrum = torch.fft.rfftn(latent.float(), dim=axes)
    frames, height, width = latent.shape[-3:]
    squares = (
        torch.fft.fftfreq(frames, device=latent.device)[:, None, None] ** 2
        + torch.fft.fftfreq(height, device=latent.device)[:, None] ** 2
        + torch.fft.rfftfreq(width, device=latent.device) ** 2
    )
    signal = (1 - sigma) ** 2 * squares.clamp_min(1.0 / max(frames, height, width) ** 2) ** (-power / 2)
    weight = signal / (signal + sigma**2 + torch.finfo(torch.float32).tiny)
    return torch.fft.irfftn(spectrum * weight, s=(frames, height, width), dim=axes)
