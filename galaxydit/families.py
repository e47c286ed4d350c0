"""DiT families as data: where a transformer's blocks are, what they take and return, how guidance branches arrive.

A family is one entry of `FAMILIES`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import nn

from galaxydit.errors import GalaxyDiTError

SEPARATE = "separate calls"
CONCATENATED = "concatenated batch"
NO_GUIDANCE = "no guidance"


@dataclass(frozen=True)
class Family:
    """One kind of transformer.

    Attributes:
        name: shown to users.
        class_name: the diffusers class; its subclasses belong to the family, too.
        stacks: attributes that hold the block lists, in the order they run.
        branches: how guidance reaches the transformer: SEPARATE, CONCATENATED (the conditional half is the second) or
            NO_GUIDANCE.
        returns_tensor: whether a block returns one tensor (then the stack's residual can be reused) or a tuple.
        time_embedding: name and position of the block's argument that carries the time embedding; None without one.
        parts: submodules of a block by what they are ("self_attention", "cross_attention", "feed_forward"), for the
            proxies inside a block.
        plain_latent: whether the latent is `(batch, channels, frames, height, width)` and a linear mix of clean video
            and noise, as the proxy filtered_latent needs it.
    """

    name: str
    class_name: str
    stacks: tuple[str, ...]
    branches: str
    returns_tensor: bool
    time_embedding: tuple[str, int] | None
    parts: Mapping[str, str] = field(default_factory=dict)
    plain_latent: bool = True


_WAN_PARTS = {"self_attention": "attn1", "cross_attention": "attn2", "feed_forward": "ffn"}
_LTX_PARTS = {"self_attention": "attn1", "cross_attention": "attn2", "feed_forward": "ff"}
_ENTRIES = (
    Family("Wan", "WanTransformer3DModel", ("blocks",), SEPARATE, True, ("temb", 2), _WAN_PARTS),
    Family(
        "LTX-Video",
        "LTXVideoTransformer3DModel",
        ("transformer_blocks",),
        CONCATENATED,
        True,
        ("temb", 2),
        _LTX_PARTS,
        plain_latent=False,
    ),
    Family(
        "CogVideoX",
        "CogVideoXTransformer3DModel",
        ("transformer_blocks",),
        CONCATENATED,
        False,
        ("temb", 2),
        plain_latent=False,
    ),
    Family(
        "HunyuanVideo",
        "HunyuanVideoTransformer3DModel",
        ("transformer_blocks", "single_transformer_blocks"),
        NO_GUIDANCE,
        False,
        ("temb", 2),
    ),
)
FAMILIES: dict[str, Family] = {family.class_name: family for family in _ENTRIES}
"""All families by the name of their diffusers class; assign a new entry to add one."""


def family_of(transformer: nn.Module) -> Family:
    """The family of a transformer; raises GalaxyDiTError naming the class and what is supported."""
    for base in type(transformer).__mro__:
        if base.__name__ in FAMILIES:
            return FAMILIES[base.__name__]
    raise GalaxyDiTError(
        f"transformer={type(transformer).__name__} is not supported: expected one of {', '.join(FAMILIES)}; choose one "
        "of these, or add its family, one entry of galaxydit.families.FAMILIES"
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
