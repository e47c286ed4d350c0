"""Identify the generation, step and guidance branch of a transformer call from its inputs."""

import weakref
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from diffusers.hooks.hooks import CacheContext
from torch import Tensor, nn

from galaxydit.adapters import adapter_scale, adapter_states
from galaxydit.families import Family
from galaxydit.runtime.step import StepInfo, locate, timesteps_address


class UnknownCallError(Exception):
    """A call cannot be accelerated; the text is a note for the report. Never raised outside the plugin."""


@dataclass(frozen=True)
class Signature:
    """Shape, dtype and device of the latent, and the states of the adapters (`adapter_states`, `adapter_scale`), which
    all calls of one transformer share within a generation.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    adapters: tuple[Any, ...]

    def switches_guidance(self, other: "Signature") -> bool:
        """Whether the signatures differ only by a factor of 2 in the batch size, as when guidance with both branches in
        one batch is switched off or on.
        """
        small, large = sorted((self.shape[0], other.shape[0]))
        return 2 * small == large and replace(other, shape=(self.shape[0], *other.shape[1:])) == self


@dataclass(frozen=True)
class CallIdentity:
    """Properties of a call that identify its generation.

    Attributes:
        component: name of the transformer in the pipeline.
        branch: guidance branch; None where the pipeline names none.
        info: step, number of steps and noise level.
        signature: shape, dtype, device and adapters, which all calls of the generation share.
        text: text embeddings, `(batch, tokens, dim)`; None where the call has none.
        latent: the transformer's input; None where the branches of a step do not share it.
        timesteps_address: memory address of the pipeline's tensor of timesteps; None where the call's timestep is no
            view of this tensor.
        scheduler: the scheduler that drives the call; None where it is unknown.
    """

    component: str
    branch: str | None
    info: StepInfo
    signature: Signature
    text: Tensor | None
    latent: Tensor | None
    timesteps_address: int | None = None
    scheduler: Any | None = None


def identify(
    component: str,
    transformer: nn.Module,
    family: Family,
    context: CacheContext | None,
    scheduler: Any | None,
    inputs: Mapping[str, Any],
) -> CallIdentity:
    """The identity of a call. Raises UnknownCallError where the call has to be computed in full.

    `component` is the transformer's name in the pipeline, and `family` says whether guidance branches share latents.
    `context` is diffusers' cache context of the call, and `scheduler` drives the call; both are None where unknown.
    `inputs` are the arguments of the call by name.
    """
    latent, text, timestep = (inputs.get(name) for name in ("hidden_states", "encoder_hidden_states", "timestep"))
    if not isinstance(latent, Tensor):
        raise UnknownCallError("the transformer was called without hidden_states, so it is computed in full")
    if _records_gradients(transformer, inputs):
        raise UnknownCallError(
            "gradients are recorded through this call, and a prediction has none, so it is computed in full; call "
            "inside torch.no_grad() to reuse steps"
        )
    adapters = adapter_states(transformer)
    if adapters:
        adapters = (*adapters, adapter_scale(inputs))
    info = locate(context, scheduler, timestep)
    if info is None:
        raise UnknownCallError(
            "the step of this call is unknown (frames at different noise levels have none), so it is computed in "
            "full; accelerate the pipeline, pass scheduler=..., or call the transformer inside cache_context(name, "
            "step_index=..., num_inference_steps=..., sigma=..., timestep=...)"
        )
    return CallIdentity(
        component=component,
        branch=context.name if context else None,
        info=info,
        signature=Signature(tuple(latent.shape), latent.dtype, latent.device, adapters),
        text=text if isinstance(text, Tensor) else None,
        latent=latent if family.shares_latent else None,
        timesteps_address=timesteps_address(timestep, context.timestep if context else None),
        scheduler=scheduler,
    )


def _records_gradients(transformer: nn.Module, inputs: Mapping[str, Any]) -> bool:
    """Whether the output of a call with these inputs is part of a graph for backward."""
    if not torch.is_grad_enabled():
        return False
    tensors = (value for value in inputs.values() if isinstance(value, Tensor))
    return any(tensor.requires_grad for tensor in (*tensors, *transformer.parameters()))


class KnownInput:
    """An input tensor of an earlier call; later inputs are compared with it to tell apart generations that alternate on
    one transformer.

    The tensor holds the text embeddings of a branch, which are the same in all steps, or the latent, which all calls of
    a step share.
    """

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = weakref.ref(tensor)
        self._values = tensor.detach()
        self._version = _version_of(tensor)

    def equals(self, tensor: Tensor | None) -> bool:
        """Whether `tensor` is the known tensor, or has the same values; False for None."""
        values = self._values
        if tensor is None or tensor is self._tensor():
            return tensor is not None
        same_kind = tensor.shape == values.shape and tensor.dtype == values.dtype and tensor.device == values.device
        return same_kind and torch.equal(tensor, values)

    def goes_on_as(self, tensor: Tensor | None) -> bool:
        """Whether a call with `tensor` belongs to the known tensor's generation: `tensor` is the known tensor, not
        changed in place since, or, if the known tensor has been freed, has the same values. False for None.

        Pipelines pass the same tensor in every step. A loop that makes a new tensor for each call has freed the known
        tensor by then. So while the known tensor is alive, any other tensor belongs to another generation, whatever its
        values.
        """
        known = self._tensor()
        if known is None:
            return self.equals(tensor)
        return tensor is known and _version_of(known) == self._version


def _version_of(tensor: Tensor) -> int | None:
    """Number of changes in place of a tensor; None in inference mode, where PyTorch does not count them."""
    return None if tensor.is_inference() else tensor._version
