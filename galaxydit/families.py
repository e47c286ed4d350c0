"""Families of DiTs as data: where a transformer's blocks are, their arguments and outputs, and how the guidance
branches (conditional, unconditional) reach the transformer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

SEPARATE = "separate calls"
CONCATENATED = "concatenated batch"
NO_GUIDANCE = "no guidance"


@dataclass(frozen=True)
class Family:
    """One kind of transformer: where the plugin attaches to it.

    Attributes:
        name: the name that users see.
        class_name: the diffusers class; its subclasses belong to the family, too.
        branches: how guidance usually reaches the transformer: SEPARATE (a call for each branch), CONCATENATED (one
            batch of all branches, the conditional half second) or NO_GUIDANCE (one branch alone).
        stacks: names of the transformer's attributes that hold lists of blocks; the first block of the first list runs
            first.
        is_chain: whether each block returns one tensor that is the next block's input and nothing between two blocks
            changes it, so that what the stack adds to its input can be reused (`reuse="residual"`).
        time_embedding: name and position (from 0) of the first block's argument that carries the time embedding; None
            if there is no such argument.
        parts: paths of the first block's submodules by their role ("self_attention", "cross_attention_norm",
            "cross_attention", "feed_forward"), for the proxies inside a block.
        plain_latent: whether the latent is `(batch, channels, frames, height, width)` and a linear mix of clean video
            and noise, as the proxy filtered_latent needs it.
        shares_latent: whether all guidance branches of a step receive equal latents. If so, a call with another latent
            belongs to another window or another generation.
        moving: names of the transformer's arguments, beside latent and timestep, that change from step to step, so that
            the user's own changes of them are not seen.
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
    moving: tuple[str, ...] = ()

    def time_embedding_of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any | None:
        """The time embedding, from the arguments of a call of the first block; None if the block takes none."""
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
    _like_wan(name="Wan", class_name="WanTransformer3DModel", branches=SEPARATE),
    # The VACE blocks run before the main ones and hand a second stream on.
    Family(
        name="Wan VACE",
        class_name="WanVACETransformer3DModel",
        branches=SEPARATE,
        stacks=("vace_blocks", "blocks"),
        is_chain=False,
        time_embedding=("temb", 3),
        parts=_WAN_PARTS,
    ),
    # Face adapters add to the hidden states between blocks.
    Family(
        name="Wan Animate",
        class_name="WanAnimateTransformer3DModel",
        branches=SEPARATE,
        stacks=("blocks",),
        parts=_WAN_PARTS,
    ),
    _like_wan(name="SkyReels-V2", class_name="SkyReelsV2Transformer3DModel", branches=SEPARATE),
    _like_wan(name="ChronoEdit", class_name="ChronoEditTransformer3DModel", branches=SEPARATE),
    # Cross-attention and its norm see only the tokens that are denoised.
    _like_wan(name="Helios", class_name="HeliosTransformer3DModel", branches=SEPARATE, parts=_HELIOS_PARTS),
    _like_wan(
        name="AnyFlow",
        class_name="AnyFlowTransformer3DModel",
        branches=CONCATENATED,
        plain_latent=False,
        moving=("r_timestep",),
    ),
    _chain(
        name="Cosmos",
        class_name="CosmosTransformer3DModel",
        branches=SEPARATE,
        time_embedding=("embedded_timestep", 2),
        shares_latent=False,
        moving=("block_controlnet_hidden_states",),
    ),
    Family(name="HunyuanVideo", class_name="HunyuanVideoTransformer3DModel", branches=NO_GUIDANCE, stacks=_TWO_STACKS),
    Family(
        name="HunyuanVideo Framepack",
        class_name="HunyuanVideoFramepackTransformer3DModel",
        branches=NO_GUIDANCE,
        stacks=_TWO_STACKS,
    ),
    Family(
        name="HunyuanVideo 1.5",
        class_name="HunyuanVideo15Transformer3DModel",
        branches=SEPARATE,
        moving=("timestep_r",),
    ),
    Family(name="Motif-Video", class_name="MotifVideoTransformer3DModel", branches=SEPARATE, stacks=_TWO_STACKS),
    _without_plain_latent(name="CogVideoX", class_name="CogVideoXTransformer3DModel", branches=CONCATENATED),
    _without_plain_latent(name="ConsisID", class_name="ConsisIDTransformer3DModel", branches=CONCATENATED),
    _chain(name="LTX-Video", class_name="LTXVideoTransformer3DModel", branches=CONCATENATED, plain_latent=False),
    _without_plain_latent(
        name="LTX-2",
        class_name="LTX2VideoTransformer3DModel",
        branches=CONCATENATED,
        moving=("audio_hidden_states", "audio_timestep", "sigma", "audio_sigma"),
        time_embedding=("temb", 4),
        parts=_PARTS,
    ),
    Family(
        name="Mochi",
        class_name="MochiTransformer3DModel",
        branches=CONCATENATED,
        parts={"self_attention": "attn1", "feed_forward": "ff"},
    ),
    _without_plain_latent(
        name="Kandinsky 5",
        class_name="Kandinsky5Transformer3DModel",
        branches=SEPARATE,
        stacks=_VISUAL,
        is_chain=True,
        time_embedding=("time_embed", 2),
        parts=_KANDINSKY_PARTS,
    ),
    _without_plain_latent(
        name="Kandinsky 6",
        class_name="Kandinsky6Transformer3DModel",
        branches=SEPARATE,
        moving=("audio_hidden_states",),
        stacks=_VISUAL,
        time_embedding=None,
    ),
    Family(name="EasyAnimate", class_name="EasyAnimateTransformer3DModel", branches=CONCATENATED),
    _chain(name="Allegro", class_name="AllegroTransformer3DModel", branches=CONCATENATED, plain_latent=False),
    # Spatial and temporal blocks alternate, on transposed hidden states.
    _without_plain_latent(
        name="Latte",
        class_name="LatteTransformer3DModel",
        branches=CONCATENATED,
        stacks=_ALTERNATING,
        time_embedding=("timestep", 4),
        parts=_PARTS,
    ),
    _chain(
        name="SANA-Video",
        class_name="SanaVideoTransformer3DModel",
        branches=CONCATENATED,
        moving=("controlnet_block_samples",),
        time_embedding=("timestep", 4),
    ),
    Family(
        name="SANA-WM",
        class_name="SanaWMTransformer3DModel",
        branches=CONCATENATED,
        stacks=("blocks",),
        is_chain=True,
        time_embedding=("t", 2),
    ),
    _without_plain_latent(
        name="MiniMax-H3",
        class_name="MiniMaxH3Transformer3DModel",
        branches=NO_GUIDANCE,
        moving=("audio_hidden_states", "timestep_indices"),
        is_chain=True,
        time_embedding=("temb", 1),
    ),
)
FAMILIES: dict[str, Family] = {family.class_name: family for family in _ENTRIES}
"""All families by the name of their diffusers class; assign a new entry to add one."""
