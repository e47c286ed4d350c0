"""The guidance of the generation under way, as the pipeline says it, and its formula."""

from typing import Any

from torch import Tensor

from galaxydit.errors import is_number, plain_number

# Names of guidance branches in diffusers' pipelines.
CONDITIONAL = "cond"
UNCONDITIONAL = "uncond"


def guide(conditional: Tensor, unconditional: Tensor | None, scale: float) -> Tensor:
    """The guided prediction u + s (c - u); c without an unconditional branch."""
    if unconditional is None:
        return conditional
    return unconditional + scale * (conditional - unconditional)


def guidance_of(pipe: Any, component: str = "transformer") -> float:
    """The guidance scale; 1 without guidance, and for a bare transformer. "transformer_2" may have one of its own."""
    scale = None
    if component == "transformer_2":
        scale = getattr(pipe, "_guidance_scale_2", None)
    if scale is None:
        scale = getattr(pipe, "_guidance_scale", None)
    guider = getattr(pipe, "guider", None)  # of modular pipelines
    if scale is None and getattr(guider, "_enabled", True):
        scale = getattr(guider, "guidance_scale", None)
    scale = plain_number(scale)
    return float(scale) if is_number(scale) else 1.0


def may_be_guided(pipe: Any) -> bool:
    """Whether the generation may have guidance, as the pipeline or its scale says; True where neither does."""
    is_guided = says_guided(pipe)
    if is_guided is not None:
        return is_guided
    scale = plain_number(getattr(pipe, "_guidance_scale", None))
    return not is_number(scale) or scale > 1


def says_guided(pipe: Any) -> bool | None:
    """Whether the pipeline says that it guides the step under way; None where it does not say."""
    is_guided = getattr(pipe, "do_classifier_free_guidance", None)
    return is_guided if isinstance(is_guided, bool) else None
