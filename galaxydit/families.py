"""DiT families as data: where a transformer's blocks are, what they take and return, how guidance branches arrive."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import nn

from galaxydit.errors import GalaxyDiTError, UnknownFamilyWarning, refusal
from galaxydit.unsupported import refuse_unsupported

SEPARATE = "separate calls"
CONCATENATED = "concatenated batch"
NO_GUIDANCE = "no guidance"
COMPONENTS = ("transformer", "transformer_2")


@dataclass(frozen=True)
class Family:
    """One kind of transformer.

    Attributes:
        name: shown to users.
        class_name: the diffusers class; its subclasses belong to the family, too.
        branches: how guidance usually reaches the transformer: SEPARATE, CONCATENATED (the conditional half is the
            second) or NO_GUIDANCE.
        stacks: attributes that hold the block lists; the first block of the first list runs first.
        is_chain: whether each block returns one tensor that is the next block's input and nothing between two blocks
            changes it, so that what the stack adds to its input can be reused (`reuse="residual"`).
        time_embedding: name and position of the first block's argument that carries the time embedding; None without.
        parts: submodules of the first block by what they are ("self_attention", "cross_attention_norm",
            "cross_attention", "feed_forward"), for the proxies inside a block.
        plain_latent: whether the latent is `(batch, channels, frames, height, width)` and a linear mix of clean video
            and noise, as the proxy filtered_latent needs it.
        shares_latent: whether the unnamed branches of a step receive equal latents, which tells interleaved
            generations apart.
    """

    name: str
    class_name: str
    branches: str
    stacks: tuple[str, ...] = ("transformer_blocks",)
    is_chain: bool = False
    time_embedding: tuple[str, int] | None = ("temb", 2)
    parts: Mapping[str, str] = field(default_factory=dict)
    plain_latent: bool = True
    shares_latent: bool = True

    def time_embedding_of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any | None:
        """The time embedding in the arguments of the first block; None where the family has none."""
        if self.time_embedding is None:
            return None
        name, position = self.time_embedding
        return args[position] if len(args) > position else kwargs[name]


_WAN_PARTS = {
    "self_attention": "attn1",
    "cross_attention_norm": "norm2",
    "cross_attention": "attn2",
    "feed_forward": "ffn",
}
_HELIOS_PARTS = {part: path for part, path in _WAN_PARTS.items() if part != "cross_attention_norm"}
_PARTS = {"self_attention": "attn1", "cross_attention": "attn2", "feed_forward": "ff"}
_KANDINSKY_PARTS = {part: part for part in _PARTS}
_TWO_STACKS = ("transformer_blocks", "single_transformer_blocks")
_ALTERNATING = ("transformer_blocks", "temporal_transformer_blocks")
_VISUAL = ("visual_transformer_blocks",)
_chain = partial(Family, is_chain=True, parts=_PARTS)
_like_wan = partial(_chain, stacks=("blocks",), parts=_WAN_PARTS)
_without_plain_latent = partial(Family, plain_latent=False)
_ENTRIES = (
    _like_wan("Wan", "WanTransformer3DModel", SEPARATE),
    # The VACE blocks run before the main ones and hand a second stream on.
    Family(
        "Wan VACE", "WanVACETransformer3DModel", SEPARATE, ("vace_blocks", "blocks"), False, ("temb", 3), _WAN_PARTS
    ),
    # Face adapters add to the hidden states between blocks.
    Family("Wan Animate", "WanAnimateTransformer3DModel", SEPARATE, ("blocks",), parts=_WAN_PARTS),
    _like_wan("SkyReels-V2", "SkyReelsV2Transformer3DModel", SEPARATE),
    _like_wan("ChronoEdit", "ChronoEditTransformer3DModel", SEPARATE),
    # Cross-attention and its norm see only the tokens that are denoised.
    _like_wan("Helios", "HeliosTransformer3DModel", SEPARATE, parts=_HELIOS_PARTS),
    _like_wan("AnyFlow", "AnyFlowTransformer3DModel", CONCATENATED, plain_latent=False),
    _chain(
        "Cosmos", "CosmosTransformer3DModel", SEPARATE, time_embedding=("embedded_timestep", 2), shares_latent=False
    ),
    Family("HunyuanVideo", "HunyuanVideoTransformer3DModel", NO_GUIDANCE, _TWO_STACKS),
    Family("HunyuanVideo Framepack", "HunyuanVideoFramepackTransformer3DModel", NO_GUIDANCE, _TWO_STACKS),
    Family("HunyuanVideo 1.5", "HunyuanVideo15Transformer3DModel", SEPARATE),
    Family("Motif-Video", "MotifVideoTransformer3DModel", SEPARATE, _TWO_STACKS),
    _without_plain_latent("CogVideoX", "CogVideoXTransformer3DModel", CONCATENATED),
    _without_plain_latent("ConsisID", "ConsisIDTransformer3DModel", CONCATENATED),
    _chain("LTX-Video", "LTXVideoTransformer3DModel", CONCATENATED, plain_latent=False),
    _without_plain_latent(
        "LTX-2", "LTX2VideoTransformer3DModel", CONCATENATED, time_embedding=("temb", 4), parts=_PARTS
    ),
    Family("Mochi", "MochiTransformer3DModel", CONCATENATED, parts={"self_attention": "attn1", "feed_forward": "ff"}),
    _without_plain_latent(
        "Kandinsky 5", "Kandinsky5Transformer3DModel", SEPARATE, _VISUAL, True, ("time_embed", 2), _KANDINSKY_PARTS
    ),
    _without_plain_latent("Kandinsky 6", "Kandinsky6Transformer3DModel", SEPARATE, _VISUAL, time_embedding=None),
    Family("EasyAnimate", "EasyAnimateTransformer3DModel", CONCATENATED),
    _chain("Allegro", "AllegroTransformer3DModel", CONCATENATED, plain_latent=False),
    # Spatial and temporal blocks alternate, on transposed hidden states.
    _without_plain_latent(
        "Latte", "LatteTransformer3DModel", CONCATENATED, _ALTERNATING, time_embedding=("timestep", 4), parts=_PARTS
    ),
    _chain("SANA-Video", "SanaVideoTransformer3DModel", CONCATENATED, time_embedding=("timestep", 4)),
    Family("SANA-WM", "SanaWMTransformer3DModel", CONCATENATED, ("blocks",), True, ("t", 2)),
    _without_plain_latent(
        "MiniMax-H3", "MiniMaxH3Transformer3DModel", NO_GUIDANCE, is_chain=True, time_embedding=("temb", 1)
    ),
)
FAMILIES: dict[str, Family] = {family.class_name: family for family in _ENTRIES}
"""All families by the name of their diffusers class; assign a new entry to add one."""


def family_of(transformer: nn.Module) -> Family:
    """The family of a transformer; for an unknown class a new one, with an `UnknownFamilyWarning`.

    The blocks of an unknown class are the one list of equal blocks that holds most of its parameters. Nothing else is
    assumed: no part of a block, no time embedding and no residual. Raises GalaxyDiTError without such a list, and with
    the reason for a class that is known not to work.
    """
    refuse_unsupported(transformer)
    for base in type(transformer).__mro__:
        if base.__name__ in FAMILIES:
            return FAMILIES[base.__name__]
    kind = type(transformer).__name__
    total = sum(parameter.numel() for parameter in transformer.parameters())
    for name, child in transformer.named_children():
        size = sum(parameter.numel() for parameter in child.parameters())
        is_stack = isinstance(child, nn.ModuleList) and len(child) > 1 and len({type(block) for block in child}) == 1
        if is_stack and 2 * size > total:
            warnings.warn(
                f"galaxydit: {kind} is no family that galaxydit knows; {name} is taken for its blocks, so compare a "
                "video with the plain one before you rely on it",
                UnknownFamilyWarning,
                stacklevel=3,
            )
            return Family(kind, kind, CONCATENATED, (name,), time_embedding=None, plain_latent=False)
    raise refusal(
        "transformer",
        kind,
        f"one of {', '.join(FAMILIES)}, or a class with one list of equal blocks that holds most of its parameters",
        "add its family, one entry of galaxydit.families.FAMILIES",
    )


def blocks_of(transformer: nn.Module, family: Family) -> list[nn.Module]:
    """All blocks of a transformer in the order they run; raises GalaxyDiTError where there is none."""
    blocks = [block for stack in family.stacks for block in getattr(transformer, stack)]
    if not blocks:
        raise GalaxyDiTError(
            f"transformer={type(transformer).__name__} has no blocks in {', '.join(family.stacks)}: expected at least "
            "one; correct the `stacks` of its family"
        )
    return blocks


def transformers_of(pipe: Any) -> dict[str, nn.Module]:
    """The denoising transformers of a pipeline by component name; a bare transformer is called "transformer"."""
    if isinstance(pipe, nn.Module):
        return {"transformer": unwrap_compiled(pipe)}
    refuse_unsupported(pipe)
    found = {name: getattr(pipe, name, None) for name in COMPONENTS}
    transformers = {name: unwrap_compiled(module) for name, module in found.items() if isinstance(module, nn.Module)}
    if transformers.get("transformer") is transformers.get("transformer_2"):
        transformers.pop("transformer_2", None)
    if not transformers:
        raise GalaxyDiTError(
            f"pipe={type(pipe).__name__} has no {' or '.join(COMPONENTS)}: expected a diffusers video pipeline or its "
            "transformer; pass one of these"
        )
    return transformers


def unwrap_compiled(module: nn.Module) -> nn.Module:
    """The module inside a torch.compile wrapper."""
    return getattr(module, "_orig_mod", module)
