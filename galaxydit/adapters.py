"""Adapters (LoRA) of a transformer: which are active, and with which scales."""

from collections.abc import Mapping
from typing import Any

from torch import nn


def adapters_of(transformer: nn.Module) -> tuple[str, ...]:
    """Names of the active adapters, sorted; empty without adapters."""
    if not getattr(transformer, "_hf_peft_config_loaded", False):
        return ()
    return tuple(sorted(transformer.active_adapters()))  # type: ignore[operator]


def adapter_states(transformer: nn.Module) -> tuple[Any, ...]:
    """For each layer with adapters a tuple of four: names of its active adapters, `scales_of` the layer, whether its
    adapters are disabled, and whether any are merged into the weights. Empty without adapters.

    The states are read layer by layer because LoRA scales may differ from block to block.
    """
    if not getattr(transformer, "_hf_peft_config_loaded", False):
        return ()
    layers: list[Any] = [layer for layer in transformer.modules() if isinstance(getattr(layer, "scaling", 0), dict)]
    return tuple(
        (tuple(layer.active_adapters), scales_of(layer), layer.disable_adapters, layer.merged) for layer in layers
    )


def adapter_scale(inputs: Mapping[str, Any]) -> Any:
    """The scale in the `attention_kwargs` of a call, which diffusers multiplies all adapters by within the call; None
    without it. `inputs` are the arguments of the call by name.
    """
    given = inputs.get("attention_kwargs")
    return given.get("scale") if isinstance(given, Mapping) else None


def scales_of(layer: Any) -> tuple[tuple[str, float], ...]:
    """(name, scale) of each adapter of a PEFT layer, active or not. `layer` must be a PEFT layer: it has `scaling`.

    Scales are rounded to six decimals, because pipelines that scale and unscale round.
    """
    return tuple((name, round(scale, 6)) for name, scale in layer.scaling.items())
