"""Find the place of a transformer call: its loop, and its step, branch and conditions there."""

from collections.abc import Mapping
from typing import Any

import torch
from diffusers.hooks.hooks import CacheContext
from torch import Tensor, nn

from galaxydit.adapters import adapter_sizes, adapter_states
from galaxydit.context_parallel import token_group
from galaxydit.families import Family
from galaxydit.runtime.call import Call
from galaxydit.runtime.guidance import guidance_of, says_guided
from galaxydit.runtime.loop import Loop
from galaxydit.runtime.source import Source
from galaxydit.runtime.undeclared import UndeclaredError
from galaxydit.runtime.window import Window

ALWAYS_MOVING = ("hidden_states", "timestep", "return_dict")


def place(
    loop: Loop,
    component: str,
    transformer: nn.Module,
    family: Family,
    source: Source,
    context: CacheContext | None,
    inputs: Mapping[str, Any],
) -> tuple[Call, Window]:
    """A call with its window. Raises UndeclaredError where the call has to be computed in full."""
    latent = inputs.get("hidden_states")
    if not isinstance(latent, Tensor):
        raise UndeclaredError("the transformer was called without hidden_states, so it is computed in full")
    latents = []
    for stream in family.streams:
        tensor = inputs.get(stream.input)
        if isinstance(tensor, Tensor):
            latents.append(tensor)
    moving = {*ALWAYS_MOVING, *family.moving}
    conditions = {name: value for name, value in inputs.items() if name not in moving}
    # Other adapters or scales change predictions as another prompt does.
    conditions["adapters"] = (hash(adapter_states(transformer)), adapter_sizes(transformer))
    guidance_scale = guidance_of(source.pipe, component)
    group = token_group(transformer)
    window, branch, info, changed = loop.call(
        component, context, inputs.get("timestep"), latents, conditions, guidance_scale, group
    )
    if records_gradients(transformer, inputs):
        raise UndeclaredError(
            "gradients are recorded through this call, and a prediction has none, so it is computed in full; call "
            "inside torch.no_grad() to reuse steps"
        )
    is_guided = None
    if source.may_be_running:  # else the pipeline speaks of its last video
        is_guided = says_guided(source.pipe)
    call = Call(
        component=component,
        window=window.name,
        branch=branch,
        info=info,
        latent=latent,
        inputs=inputs,
        changed=changed,
        is_guided=is_guided,
        guidance_scale=window.guidance_scale,
    )
    return call, window


def records_gradients(transformer: nn.Module, inputs: Mapping[str, Any]) -> bool:
    if not torch.is_grad_enabled():
        return False
    tensors = [value for value in inputs.values() if isinstance(value, Tensor)]
    return any(tensor.requires_grad for tensor in (*tensors, *transformer.parameters()))
