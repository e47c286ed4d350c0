"""Guided predictions: which guidance branches a transformer's output holds, and how a pipeline combines them."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from galaxydit.families import CONCATENATED, Family

CONDITIONAL, UNCONDITIONAL = "cond", "uncond"
_NAMES = {"call 0": CONDITIONAL, "call 1": UNCONDITIONAL}  # where a pipeline names no branch


def guidance_of(pipe: Any, component: str = "transformer") -> float:
    """The guidance scale of the generation under way; 1 for a pipeline without guidance, and for a bare transformer.

    The component "transformer_2" may have a scale of its own.
    """
    own = getattr(pipe, "_guidance_scale_2", None) if component == "transformer_2" else None
    scale = getattr(pipe, "_guidance_scale", None) if own is None else own
    return float(scale) if isinstance(scale, int | float) else 1.0


def may_be_guided(pipe: Any) -> bool:
    """Whether the generation under way may have guidance: what the pipeline's `do_classifier_free_guidance` says, else
    whether its guidance scale is above 1. A bare transformer and a pipeline of unknown scale may be guided.
    """
    own, scale = says_guided(pipe), getattr(pipe, "_guidance_scale", None)
    if own is not None:
        return own
    return not isinstance(scale, int | float) or scale > 1


def says_guided(pipe: Any) -> bool | None:
    """Whether the pipeline says that it guides the step under way; None where it does not say."""
    own = getattr(pipe, "do_classifier_free_guidance", None)
    return own if isinstance(own, bool) else None


def branches_of(output: Tensor, branch: str, family: Family, scale: float) -> dict[str, Tensor]:
    """The rows of each guidance branch, "cond" or "uncond", in the output `(rows, ...)` of one call.

    If the family concatenates both branches in one batch and the guidance scale `scale` is above 1, the first half is
    unconditional. All rows of any other call belong to `branch`, the call's branch; of the unnamed branches, "call 0"
    becomes "cond" and "call 1" becomes "uncond".
    """
    if family.branches == CONCATENATED and scale > 1 and len(output) % 2 == 0:
        return dict(zip((UNCONDITIONAL, CONDITIONAL), output.chunk(2), strict=True))
    return {_NAMES.get(branch, branch): output}


def weights_of(branches: Mapping[str, Tensor], scale: float) -> dict[str, float] | None:
    """Weights, by branch name, of the outputs in the guided prediction u + s (c - u) of unconditional u and conditional
    c, where s is `scale`.

    `branches` holds the output of each branch by its name; only the names count. None unless they are "cond" and
    "uncond" and the scale is above 1, because other branches are not known to be combined in this way.
    """
    if branches.keys() == {CONDITIONAL, UNCONDITIONAL} and scale > 1:
        return {CONDITIONAL: scale, UNCONDITIONAL: 1 - scale}
    return None


def guided(branches: Mapping[str, Tensor], scale: float) -> Tensor:
    """The guided prediction `(values,)` from the flat output `(values,)` of each branch, by the branch's name.

    It is all outputs one after the other, `(branches * values,)`, if `weights_of` knows no weights for these branches.
    """
    weights = weights_of(branches, scale)
    if weights is None:
        return torch.cat([branches[name] for name in sorted(branches)])
    conditional, unconditional = branches[CONDITIONAL], branches[UNCONDITIONAL]
    return unconditional + scale * (conditional - unconditional)
