"""Families of DiTs as data: where a transformer's blocks are, their arguments and outputs, and how the guidance
branches (conditional, unconditional) reach the transformer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from galaxydit.plugins import FAMILIES_GROUP, Registry

SEPARATE = "separate calls"
CONCATENATED = "concatenated batch"
NO_GUIDANCE = "no guidance"


@dataclass(frozen=True)
class OutputStream:
    """One output of a transformer: the argument that holds its latent, and the pipeline's scheduler that steps it.

    Where the pipeline lacks that scheduler, a copy of `scheduler` that is made in the call steps the stream.
    """

    input: str = "hidden_states"
    scheduler: str = "scheduler"


@dataclass(frozen=True)
class Family:
    """One kind of transformer: where the plugin attaches to it."""

    name: str  # for users
    class_name: str  # of diffusers; subclasses belong to the family, too
    branches: str  # SEPARATE, CONCATENATED (the conditional half second) or NO_GUIDANCE, as its pipelines usually call
    stacks: tuple[str, ...] = ("transformer_blocks",)  # attributes with lists of blocks, in order
    # each block returns one tensor, the next block's input, so that what the stack adds can be reused ("residual")
    is_chain: bool = False
    time_embedding: tuple[str, int] | None = ("temb", 2)  # name and position of the first block's argument, if any
    parts: Mapping[str, str] = field(default_factory=dict)  # paths of submodules of a block by role, for proxies
    plain_latent: bool = True  # `(batch, channels, frames, height, width)`, a linear mix of clean video and noise
    compares_latent: bool = True  # False if no value of the input may be one that `scheduler.step` returned
    moving: tuple[str, ...] = ()  # arguments that change from step to step, so that the user's changes are not seen
    streams: tuple[OutputStream, ...] = (OutputStream(),)  # one for each output, in the order of the outputs

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
_PICTURE_AND_SOUND = (OutputStream(), OutputStream("audio_hidden_states", "audio_scheduler"))
_chain = partial(Family, is_chain=True, parts=_PARTS)
_with_wan_parts = partial(Family, stacks=("blocks",), parts=_WAN_PARTS)
_like_wan = partial(_with_wan_parts, is_chain=True)
_without_plain_latent = partial(Family, plain_latent=False)
_ENTRIES = (
    _like_wan("Wan", "WanTransformer3DModel", SEPARATE),
    # The VACE blocks run before the main ones and hand a second stream on.
    Family(
        "Wan VACE", "WanVACETransformer3DModel", SEPARATE, ("vace_blocks", "blocks"), False, ("temb", 3), _WAN_PARTS
    ),
    _with_wan_parts("Wan Animate", "WanAnimateTransformer3DModel", SEPARATE),  # face adapters act between blocks
    _like_wan("SkyReels-V2", "SkyReelsV2Transformer3DModel", SEPARATE),
    _like_wan("ChronoEdit", "ChronoEditTransformer3DModel", SEPARATE),
    # Cross-attention and its norm see only the tokens that are denoised.
    _like_wan("Helios", "HeliosTransformer3DModel", SEPARATE, parts=_HELIOS_PARTS),
    _like_wan("AnyFlow", "AnyFlowTransformer3DModel", CONCATENATED, plain_latent=False, moving=("r_timestep",)),
    _chain(
        *("Cosmos", "CosmosTransformer3DModel", SEPARATE),
        time_embedding=("embedded_timestep", 2),
        compares_latent=False,  # Cosmos-Predict2 scales it in the pipeline
        moving=("block_controlnet_hidden_states",),
    ),
    Family("HunyuanVideo", "HunyuanVideoTransformer3DModel", NO_GUIDANCE, _TWO_STACKS),
    Family("HunyuanVideo Framepack", "HunyuanVideoFramepackTransformer3DModel", NO_GUIDANCE, _TWO_STACKS),
    Family("HunyuanVideo 1.5", "HunyuanVideo15Transformer3DModel", SEPARATE, moving=("timestep_r",)),
    Family("Motif-Video", "MotifVideoTransformer3DModel", SEPARATE, _TWO_STACKS),
    _without_plain_latent("CogVideoX", "CogVideoXTransformer3DModel", CONCATENATED),
    _without_plain_latent("ConsisID", "ConsisIDTransformer3DModel", CONCATENATED),
    # With a given image, the later frames are stepped, and packed anew.
    _chain("LTX-Video", "LTXVideoTransformer3DModel", CONCATENATED, plain_latent=False, compares_latent=False),
    _without_plain_latent(
        *("LTX-2", "LTX2VideoTransformer3DModel", CONCATENATED),
        compares_latent=False,  # with a given image
        moving=("audio_hidden_states", "audio_timestep", "sigma", "audio_sigma"),
        streams=_PICTURE_AND_SOUND,
        time_embedding=("temb", 4),
        parts=_PARTS,
    ),
    Family("Mochi", "MochiTransformer3DModel", CONCATENATED, parts={"self_attention": "attn1", "feed_forward": "ff"}),
    _without_plain_latent(
        *("Kandinsky 5", "Kandinsky5Transformer3DModel", SEPARATE, _VISUAL, True, ("time_embed", 2), _KANDINSKY_PARTS)
    ),
    _without_plain_latent(
        *("Kandinsky 6", "Kandinsky6Transformer3DModel", SEPARATE, _VISUAL, False, None),
        moving=("audio_hidden_states",),
        streams=_PICTURE_AND_SOUND,
    ),
    Family("EasyAnimate", "EasyAnimateTransformer3DModel", CONCATENATED),
    _chain("Allegro", "AllegroTransformer3DModel", CONCATENATED, plain_latent=False),
    # Spatial and temporal blocks alternate, on transposed hidden states.
    _without_plain_latent(
        *("Latte", "LatteTransformer3DModel", CONCATENATED, _ALTERNATING, False, ("timestep", 4), _PARTS)
    ),
    _chain(
        *("SANA-Video", "SanaVideoTransformer3DModel", CONCATENATED),
        moving=("controlnet_block_samples",),
        time_embedding=("timestep", 4),
    ),
    Family("SANA-WM", "SanaWMTransformer3DModel", CONCATENATED, ("blocks",), True, ("t", 2)),
    _without_plain_latent(
        *("MiniMax-H3", "MiniMaxH3Transformer3DModel", NO_GUIDANCE),
        compares_latent=False,  # its pipeline packs it into patches anew for each call
        moving=("audio_hidden_states", "timestep_indices"),
        streams=_PICTURE_AND_SOUND,
        is_chain=True,
        time_embedding=None,  # it has a row for each distinct timestep, so its shape changes
    ),
)
FAMILIES = Registry(Family, "class_name", FAMILIES_GROUP, {family.class_name: family for family in _ENTRIES})
"""All families by the name of their transformer's class; assign a new entry, or load a plugin, to add one."""
