"""Recognise the transformers of a pipeline, their families and their blocks."""

import inspect
import warnings
from typing import Any

from torch import nn

from galaxydit.errors import GalaxyDiTError, UnknownFamilyWarning, refusal
from galaxydit.families import CONCATENATED, FAMILIES, Family
from galaxydit.unsupported import refuse_unsupported

COMPONENTS = ("transformer", "transformer_2")


def family_of(transformer: nn.Module) -> Family:
    """The family of a transformer; for an unknown class a new one, with an `UnknownFamilyWarning`.

    In an unknown class, a `ModuleList` of modules of one class that holds more than half of all parameters is taken for
    the blocks. Proxies inside a block, the time embedding and `reuse="residual"` are not available then. Raises
    GalaxyDiTError for an unknown class without such a list and, with the reason, for a class that is known not to work.
    """
    refuse_unsupported(transformer)
    known = _known_family(transformer)
    if known is not None:
        return known
    kind = type(transformer).__name__
    name = _stack_of(transformer)
    if name is not None:
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


def class_names(module: Any) -> list[str]:
    """Names of an object's class and of its bases, nearest first."""
    return [base.__name__ for base in type(module).__mro__]


def _known_family(module: nn.Module) -> Family | None:
    for name in class_names(module):
        if name in FAMILIES:
            return FAMILIES[name]
    return None


def _stack_of(module: nn.Module) -> str | None:
    """Name of the child that is a list of modules of one class and holds more than half of all parameters, or None."""
    for name, child in module.named_children():
        if not isinstance(child, nn.ModuleList) or len(child) < 2:
            continue
        kinds = {type(block) for block in child}
        if len(kinds) == 1 and 2 * _size(child) > _size(module):
            return name
    return None


def _size(module: nn.Module) -> int:
    """Number of parameters."""
    return sum(parameter.numel() for parameter in module.parameters())


def blocks_of(transformer: nn.Module, family: Family) -> list[nn.Module]:
    """All blocks of a transformer, list by list as in `Family.stacks`. Raises GalaxyDiTError if there are none."""
    blocks: list[nn.Module] = []
    for stack in family.stacks:
        blocks.extend(getattr(transformer, stack))
    if not blocks:
        raise GalaxyDiTError(
            f"transformer={type(transformer).__name__} has no blocks in {', '.join(family.stacks)}: expected at least "
            "one; correct the `stacks` of its family"
        )
    return blocks


def transformers_of(pipe: Any) -> dict[str, nn.Module]:
    """The denoising transformers of a pipeline, without torch.compile wrappers, by component name, "transformer" first.
    A bare transformer `pipe` is called "transformer".

    Beside the components "transformer" and "transformer_2", these are the components of a known family, and those of an
    unknown one that take `hidden_states` and `timestep` and have a stack of blocks, except ControlNets.
    Raises GalaxyDiTError for a pipeline without a transformer and, with the reason, for a pipeline known not to work.
    """
    if isinstance(pipe, nn.Module):
        return {"transformer": unwrap_compiled(pipe)}
    refuse_unsupported(pipe)
    components = {name: getattr(pipe, name, None) for name in COMPONENTS}  # they may be properties
    components |= getattr(pipe, "__dict__", {})
    transformers: dict[str, nn.Module] = {}
    for name, component in components.items():
        if not isinstance(component, nn.Module):
            continue
        module = unwrap_compiled(component)
        if any(module is known for known in transformers.values()):
            continue
        if name in COMPONENTS or _known_family(module) is not None or _denoises(name, module):
            transformers[name] = module
    if not transformers:
        cure = "call its load_components() first" if hasattr(pipe, "load_components") else "pass one of these"
        raise GalaxyDiTError(
            f"pipe={type(pipe).__name__} has no transformer: expected a diffusers video pipeline or its transformer",
            cure,
        )
    return transformers


def _denoises(name: str, module: nn.Module) -> bool:
    """Whether a component of an unknown class looks like a transformer that denoises."""
    inputs = inspect.signature(type(module).forward).parameters
    if "control" in f"{name} {type(module).__name__}".lower():
        return False  # a ControlNet has the inputs and blocks of a transformer, but its outputs go into one
    return "hidden_states" in inputs and "timestep" in inputs and _stack_of(module) is not None


def unwrap_compiled(module: nn.Module) -> nn.Module:
    """The module inside a torch.compile wrapper; a module without a wrapper as it is."""
    return getattr(module, "_orig_mod", module)
