"""Proxies: cheap tensors of a step whose change predicts how much the model's output is about to change."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Literal

import torch
from torch import Tensor

from galaxydit.context_parallel import sum_over
from galaxydit.errors import did_you_mean, refusal
from galaxydit.families import Family
from galaxydit.plugins import PROXIES_GROUP, Registry


class Place(Enum):
    """Positions at which proxies are read, in the order of the forward pass, with the arguments of `Proxy.tensor`."""

    LATENT = "transformer input"
    """`(latent, sigma)`: the transformer's `hidden_states`, and the noise level in [0, 1]."""
    MODULE = "output of a module before the blocks"
    """`(output,)`: the output of the module at the path `Proxy.part`."""
    BLOCK_INPUT = "first block input"
    """`(hidden, time_embedding)`: the block's input `(batch, tokens, dim)`, and its time embedding or None."""
    PART_INPUT = "input of a part of the first block"
    """`(hidden,)`: the input of the part named by `Proxy.part`."""
    PART_OUTPUT = "output of a part of the first block"
    """`(hidden,)`: the output of the part named by `Proxy.part`."""
    BLOCK_OUTPUT = "first block output"
    """`(hidden, output)`: the block's input and output, both `(batch, tokens, dim)`."""


@dataclass(frozen=True)
class Proxy:
    """A tensor whose relative change from step to step is measured.

    Attributes:
        name: unique among `galaxydit.PROXIES`.
        place: where it is read; `Place` says which tensors its function gets.
        cost: share of the first block, in [0, 1], that a reused step runs to know the proxy, estimated from
            multiply-adds of Wan's block.
        source: published method that used it first.
        tensor: function from the tensors of `place` to the proxy. It must return a new tensor, because CUDA graphs
            overwrite the model's at the next step.
        part: key in `Family.parts`, for places inside the block; for `Place.MODULE`, a path below the transformer.
        offered: whether a family that has the part offers the proxy.
        differs_by_sample: False for a proxy that is equal for every video; it is never chosen.
        needs_block_input: `tensor` also gets the first block's input, last.
        distance: "l1" or another of `proxies.DISTANCES`, or a function from the tensor and that of the step before to
            a number a row, `(batch,)`.
        tensor_name: name of the proxy with the same tensor and the L1 distance; by default its own.
    """

    name: str
    place: Place
    cost: float
    source: str
    tensor: Callable[..., Tensor]
    part: str | None = None
    offered: Callable[[Family], bool] = lambda family: True
    differs_by_sample: bool = True
    needs_block_input: bool = False
    distance: str | Callable[[Tensor, Tensor], Tensor] = "l1"
    tensor_name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "tensor_name", self.tensor_name or self.name)


SPECTRAL_POWER = 3.0
"""Power with which the spectrum of clean latents is assumed to fall with frequency (SeaCache)."""


def filter_latent(latent: Tensor, sigma: float) -> Tensor:
    """The signal of a noisy latent `(batch, channels, frames, height, width)` by a Wiener filter, float32.

    For x = (1 - sigma) clean + sigma noise and a clean spectrum S(f) = f^-3, each frequency is multiplied by
    (1-sigma)^2 S / ((1-sigma)^2 S + sigma^2) (SeaCache, arXiv 2602.18993).
    """
    axes = (-3, -2, -1)
    spectrum = torch.fft.rfftn(latent.float(), dim=axes)
    frames, height, width = latent.shape[-3:]
    squares = (
        torch.fft.fftfreq(frames, device=latent.device)[:, None, None] ** 2
        + torch.fft.fftfreq(height, device=latent.device)[:, None] ** 2
        + torch.fft.rfftfreq(width, device=latent.device) ** 2
    )
    signal = (1 - sigma) ** 2 * squares.clamp_min(1.0 / max(frames, height, width) ** 2) ** (-SPECTRAL_POWER / 2)
    weight = signal / (signal + sigma**2 + torch.finfo(torch.float32).tiny)
    return torch.fft.irfftn(spectrum * weight, s=(frames, height, width), dim=axes)


TEACACHE, SEACACHE = "TeaCache, arXiv 2411.19108", "SeaCache, arXiv 2602.18993"
EASYCACHE, DICACHE = "EasyCache, arXiv 2507.02860", "DiCache, arXiv 2508.17356"
FIRST_BLOCK_CACHE = f"First Block Cache (ParaAttention); {DICACHE}"
OWN = "this project"  # GalaxyDiT, arXiv 2512.03451, reads the first block, but its candidate list is not public


def _same(tensor: Tensor, *_: Any) -> Tensor:
    return tensor.clone()


def _second(_: Tensor, tensor: Tensor) -> Tensor:
    return tensor.clone()


def _has_time(family: Family) -> bool:
    return family.time_embedding is not None


_BEFORE_CROSS, _SELF, _CROSS, _FEED = "cross_attention_norm", "self_attention", "cross_attention", "feed_forward"
_TENSORS = (
    Proxy("time_embedding", Place.BLOCK_INPUT, 0.0, TEACACHE, _second, offered=_has_time, differs_by_sample=False),
    Proxy("noisy_latent", Place.LATENT, 0.0, EASYCACHE, _same),
    Proxy("filtered_latent", Place.LATENT, 0.0, SEACACHE, filter_latent, offered=lambda family: family.plain_latent),
    Proxy("block_input", Place.BLOCK_INPUT, 0.0, TEACACHE, _same),
    Proxy("modulated_input", Place.PART_INPUT, 0.0, TEACACHE, _same, _SELF),
    Proxy("self_attention", Place.PART_OUTPUT, 0.4, OWN, _same, _SELF),
    Proxy("after_self_attention", Place.PART_INPUT, 0.4, OWN, _same, _BEFORE_CROSS),
    Proxy("gated_self_attention", Place.PART_INPUT, 0.4, OWN, torch.sub, _BEFORE_CROSS, needs_block_input=True),
    Proxy("cross_attention", Place.PART_OUTPUT, 0.6, OWN, _same, _CROSS),
    Proxy("modulated_feed_forward_input", Place.PART_INPUT, 0.6, OWN, _same, _FEED),
    Proxy("feed_forward", Place.PART_OUTPUT, 1.0, OWN, _same, _FEED),
    Proxy("block_residual", Place.BLOCK_OUTPUT, 1.0, FIRST_BLOCK_CACHE, torch.rsub),  # output - input
    Proxy("block_output", Place.BLOCK_OUTPUT, 1.0, DICACHE, _second),
)
DISTANCES = ("l1", "l2", "cosine")
ProxyName = Literal[
    "time_embedding",
    "time_embedding_l2",
    "time_embedding_cosine",
    "noisy_latent",
    "noisy_latent_l2",
    "noisy_latent_cosine",
    "filtered_latent",
    "filtered_latent_l2",
    "filtered_latent_cosine",
    "block_input",
    "block_input_l2",
    "block_input_cosine",
    "modulated_input",
    "modulated_input_l2",
    "modulated_input_cosine",
    "self_attention",
    "self_attention_l2",
    "self_attention_cosine",
    "after_self_attention",
    "after_self_attention_l2",
    "after_self_attention_cosine",
    "gated_self_attention",
    "gated_self_attention_l2",
    "gated_self_attention_cosine",
    "cross_attention",
    "cross_attention_l2",
    "cross_attention_cosine",
    "modulated_feed_forward_input",
    "modulated_feed_forward_input_l2",
    "modulated_feed_forward_input_cosine",
    "feed_forward",
    "feed_forward_l2",
    "feed_forward_cosine",
    "block_residual",
    "block_residual_l2",
    "block_residual_cosine",
    "block_output",
    "block_output_l2",
    "block_output_cosine",
]
"""The names of `PROXIES` without plugins. One's own proxy is passed as a `Proxy`, so that a checker finds typos."""
_BUILT_IN = {
    proxy.name if distance == "l1" else f"{proxy.name}_{distance}": proxy
    if distance == "l1"
    else replace(proxy, name=f"{proxy.name}_{distance}", distance=distance, tensor_name=proxy.name)
    for proxy in _TENSORS
    for distance in DISTANCES
}
PROXIES = Registry(Proxy, "name", PROXIES_GROUP, _BUILT_IN)
"""All proxies by name, each tensor with each distance; assign a new entry, or load a plugin, to add one."""


def check_proxy(name: Any) -> None:
    """Raise GalaxyDiTError unless a proxy has this name."""
    if not isinstance(name, str) or name not in PROXIES:
        known = f"one of {', '.join(map(repr, PROXIES))}, or of a plugin that is loaded"
        cure = f"choose one of these, or load the plugin that has it{did_you_mean(name, PROXIES)}"
        raise refusal("proxy", name, known, cure)


def proxies_of(family: Family) -> tuple[str, ...]:
    entries = PROXIES.values()
    return tuple(p.name for p in entries if (p.part is None or p.part in family.parts) and p.offered(family))


# Elements of a sample per piece: on a CPU few enough to stay in its cache, else enough to outweigh kernel launches.
PIECE_ON_CPU = 2**20
PIECE = 2**24


def relative_l1(current: Tensor, previous: Tensor, group: Any | None = None) -> Tensor:
    """mean |current - previous| / mean |previous| of each row, `(batch,)` in [0, 2] (arXiv 2411.19108, eq. 4).

    Limited, because a change from almost zero (the filtered latent at sigma 1) would dominate the sum over steps. The
    means are over all ranks of `group`, and taken piece by piece, so that no copy of the hidden states is allocated.
    """
    size = PIECE_ON_CPU if current.device.type == "cpu" else PIECE
    change = scale = torch.zeros(current.shape[0], dtype=torch.float32, device=current.device)
    pieces = zip(current.flatten(1).split(size, dim=1), previous.flatten(1).split(size, dim=1), strict=True)
    for now, before in pieces:
        change = change + (now - before).abs_().sum(dim=1, dtype=torch.float32)
        scale = scale + before.abs().sum(dim=1, dtype=torch.float32)
    change, scale = sum_over(group, torch.stack([change, scale]))
    return (change / scale.clamp_min(torch.finfo(torch.float32).tiny)).clamp_max(2.0)


def distance_of(proxy: Proxy, current: Tensor, previous: Tensor, group: Any | None = None) -> Tensor:
    """Relative L1, relative L2 or 1 - cosine of each row, `(batch,)` in [0, 2], of tensors `(batch, ...)`.

    Over all ranks of the process group `group`.
    """
    if callable(proxy.distance):
        return proxy.distance(current, previous)
    if proxy.distance == "l1":
        return relative_l1(current, previous, group)
    now, before = current.flatten(1).float(), previous.flatten(1).float()
    tiny = torch.finfo(torch.float32).tiny
    if proxy.distance == "l2":
        change, scale = sum_over(group, torch.stack([(now - before).square().sum(1), before.square().sum(1)]))
        return (change / scale.clamp_min(tiny)).sqrt().clamp_max(2.0)
    products = torch.stack([(now * before).sum(1), now.square().sum(1), before.square().sum(1)])
    product, first, second = sum_over(group, products)
    return 1 - (product / (first * second).sqrt().clamp_min(tiny)).clamp(-1.0, 1.0)


def relative_l2(actual: Tensor, predicted: Tensor, group: Any | None = None) -> Tensor:
    """|actual - predicted| / |actual| in the L2 norm over all ranks of `group`, a float32 scalar tensor."""
    dtype = torch.promote_types(actual.dtype, torch.float32)  # vector_norm refuses to narrow float64
    norms = [torch.linalg.vector_norm(part, dtype=dtype) for part in (actual - predicted, actual)]
    change, scale = sum_over(group, torch.stack(norms).float().square()).sqrt()
    return change / scale.clamp_min(torch.finfo(torch.float32).tiny)
