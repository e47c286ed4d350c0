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
    states = []
    for layer in _layers_with_adapters(transformer):
        # To six decimals, because pipelines that unscale round.
        scales = tuple((name, round(float(scale), 6)) for name, scale in layer.scaling.items())
        active = tuple(layer.active_adapters)
        states.append((active, scales, layer.disable_adapters, layer.merged, _versions(layer)))
    return tuple(states)


def adapter_scales(transformer: nn.Module) -> dict[str, float | str]:
    """Scales of the active adapters, 1 as trained and 0 while disabled; a text where layers differ."""
    scales: dict[str, set[float]] = {}
    for layer in _layers_with_adapters(transformer):
        for name in layer.active_adapters:
            if name in layer.scaling and layer.lora_alpha.get(name):
                scales.setdefault(name, set()).add(_relative_scale(layer, name))
    joined: dict[str, float | str] = {}
    for name, values in scales.items():
        joined[name] = min(values) if len(values) == 1 else str(sorted(values))
    return joined


def _relative_scale(layer: Any, name: str) -> float:
    """The scale of an adapter / the one it was trained with: alpha / rank, or alpha / sqrt(rank) with rsLoRA."""
    if layer.disable_adapters:
        return 0.0
    rank = layer.r[name]
    if layer.use_rslora.get(name):
        rank = rank**0.5
    return round(float(layer.scaling[name]) * rank / layer.lora_alpha[name], 4)


def adapter_sizes(transformer: nn.Module) -> Tensor | None:
    """Norms of the first adapter weights, in which alone PEFT's hotswap shows; None without adapters."""
    for layer in _layers_with_adapters(transformer):
        norms = [weight.detach().float().norm() for weight in _own_weights(layer)]
        if norms:
            return torch.stack(norms)
    return None


def _layers_with_adapters(transformer: nn.Module) -> list[Any]:
    if not getattr(transformer, "_hf_peft_config_loaded", False):
        return []
    return [layer for layer in transformer.modules() if isinstance(getattr(layer, "scaling", 0), dict)]


def _versions(layer: nn.Module) -> tuple[int, ...]:
    """How often each adapter weight was changed in place; PyTorch does not count that in inference mode."""
    return tuple(weight._version for weight in _own_weights(layer) if not weight.is_inference())


def _own_weights(layer: nn.Module) -> list[Tensor]:
    return [weight for name, weight in layer.named_parameters() if not name.startswith("base_layer")]
