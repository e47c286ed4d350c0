"""DiT families as data: where a transformer's blocks are, what they take and return, how guidance branches arrive."""

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
        name: for people.
        class_name: the diffusers class.
        stacks: attributes holding the block lists, in the order they run.
        branches: how guidance reaches the transformer. In a concatenated batch the conditional half is the second.
        returns_tensor: whether blocks hand on one tensor (then the stack's residual can be reused), or a tuple.
        time_embedding: the block's argument that carries the time embedding, its name and position; None where there is
            none.
        parts: submodules of a block for the proxies inside it; a proxy whose part is absent is not offered.
        plain_latent: whether the latent is `(batch, channels, frames, height, width)` and a straight mix of clean and
            noise, as the proxy filtered_latent needs it.
    """

    name: str
    class_name: str
    stacks: tuple[str, ...]
    branches: str
    returns_tensor: bool
    time_embedding: tuple[str, int] | None
    parts: Mapping[str, str] = field(default_factory=dict)
    plain_latent: bool = True

    @property
    def proxies(self) -> tuple[str, ...]:
        """Names of the proxies that this family offers."""
        inside = {"modulated_input": "self_attention"}
        names = ["noisy_latent", "block_input", "block_residual", "block_output"]
        names += ["filtered_latent"] if self.plain_latent else []
        names += ["time_embedding"] if self.time_embedding else []
        names += [
            name
            for name in ("modulated_input", "self_attention", "cross_attention", "feed_forward")
            if inside.get(name, name) in self.parts
        ]
        return tuple(names)


_WAN_PARTS = {"self_attention": "attn1", "cross_attention": "attn2", "feed_forward": "ffn"}
_LTX_PARTS = {"self_attention": "attn1", "cross_attention": "attn2", "feed_forward": "ff"}
FAMILIES = (
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


def family_of(transformer: nn.Module) -> Family:
    """The family of a transformer; raises GalaxyDiTError naming the class and what is supported."""
    names = [base.__name__ for base in type(transformer).__mro__]
    for family in FAMILIES:
        if family.class_name in names:
            return family
    supported = ", ".join(family.class_name for family in FAMILIES)
    raise GalaxyDiTError(
        f"transformer={type(transformer).__name__} is not supported; supported are {supported}. "
        "A new family is one entry of galaxydit/families.py"
    )


def blocks_of(transformer: nn.Module, family: Family) -> list[nn.Module]:
    """All blocks of a transformer in the order they run; raises GalaxyDiTError where there is none."""
    blocks = [block for stack in family.stacks for block in getattr(transformer, stack)]
    if not blocks:
        raise GalaxyDiTError(f"transformer={type(transformer).__name__} has no blocks in {', '.join(family.stacks)}")
    return blocks
