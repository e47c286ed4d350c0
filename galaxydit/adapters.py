"""Adapters (LoRA) of a transformer: which are active, and with which scales."""

from typing import Any

import torch
from torch import Tensor, nn


def adapters_of(transformer: nn.Module) -> tuple[str, ...]:
    """Names of the active adapters, sorted; empty without adapters."""
    if not getattr(transformer, "_hf_peft_config_loaded", False):
        return ()
    return tuple(sorted(transformer.active_adapters()))  # type: ignore[operator]


def adapter_states(transformer: nn.Module) -> tuple[Any, ...]:
    """For each layer with adapters: active names, scales, whether disabled, whether merged, versions of the weights.

    Layer by layer, because LoRA scales may differ from block to block.
    """
    if not getattr(transformer, "_hf_peft_config_loaded", False):
        return ()
    layers: list[Any] = [layer for layer in transformer.modules() if isinstance(getattr(layer, "scaling", 0), dict)]
    versions = [tuple(each._version for each in _own_weights(layer) if not each.is_inference()) for layer in layers]
    return tuple(
        (tuple(layer.active_adapters), scales_of(layer), layer.disable_adapters, layer.merged, version)
        for layer, version in zip(layers, versions, strict=True)
    )


def scales_of(layer: Any) -> tuple[tuple[str, float], ...]:
    """`(name, scale)` of each adapter of a PEFT layer, to six decimals, because pipelines that unscale round."""
    return tuple((name, round(float(scale), 6)) for name, scale in layer.scaling.items())


def adapter_sizes(transformer: nn.Module) -> Tensor | None:
    """Norms of the first adapter weights, in which alone PEFT's hotswap shows; None without adapters."""
    if not getattr(transformer, "_hf_peft_config_loaded", False):
        return None
    layers = (layer for layer in transformer.modules() if isinstance(getattr(layer, "scaling", 0), dict))
    own = (_own_weights(layer) for layer in layers)
    weights = next((found for found in own if found), [])
    return torch.stack([weight.detach().float().norm() for weight in weights]) if weights else None


def _own_weights(layer: nn.Module) -> list[Tensor]:
    return [weight for name, weight in layer.named_parameters() if not name.startswith("base_layer")]
