"""Identify a transformer call by its inputs: its step, its guidance branch, its latent and its conditions."""

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from diffusers.hooks.hooks import CacheContext
from torch import Tensor, nn

from galaxydit.adapters import adapter_sizes, adapter_states
from galaxydit.families import Family
from galaxydit.runtime.clean import weights_of_input
from galaxydit.runtime.guidance import guidance_of
from galaxydit.runtime.source import Source
from galaxydit.runtime.step import StepInfo, locate, timesteps_address

ALWAYS_MOVING = ("hidden_states", "timestep", "return_dict")


class UnknownCallError(Exception):
    """A call cannot be accelerated; the text is a note for the report. Never raised outside the plugin. `latent` is
    given where the step is unknown, because another loop may make the call."""

    def __init__(self, text: str, latent: Tensor | None = None) -> None:
        super().__init__(text)
        self.latent = latent


@dataclass(frozen=True, eq=False)
class CallIdentity:
    """What is known of a call before it is decided; `branch` and `scheduler` are None where unknown.

    Attributes:
        weights: weights of clean video and noise in the latent.
        shares_latent: whether the branches of a step receive equal latents.
        conditions: arguments that stay the same in all steps of a branch, and the states of the adapters.
    """

    component: str
    branch: str | None
    info: StepInfo
    weights: tuple[float, float]
    latent: Tensor
    shares_latent: bool
    guidance_scale: float
    conditions: Mapping[str, Any]
    timesteps_address: int | None
    scheduler: Any | None

    @property
    def timesteps(self) -> Tensor | None:
        return getattr(self.scheduler, "timesteps", None)

    def changed(self, known: Mapping[str, "KnownValue"]) -> list[str]:
        """Names of the conditions that differ from those `known` of an earlier call."""
        both = self.conditions.keys() & known.keys()
        return sorted(self.conditions.keys() ^ known.keys()) + [
            name for name in sorted(both) if not known[name].is_unchanged(self.conditions[name])
        ]


def identify(
    component: str,
    transformer: nn.Module,
    family: Family,
    source: Source,
    context: CacheContext | None,
    inputs: Mapping[str, Any],
) -> CallIdentity:
    """The identity of a call. Raises UnknownCallError where the call has to be computed in full."""
    latent, timestep = inputs.get("hidden_states"), inputs.get("timestep")
    if not isinstance(latent, Tensor):
        raise UnknownCallError("the transformer was called without hidden_states, so it is computed in full")
    tensors = [value for value in inputs.values() if isinstance(value, Tensor)]
    if torch.is_grad_enabled() and any(one.requires_grad for one in (*tensors, *transformer.parameters())):
        raise UnknownCallError(
            "gradients are recorded through this call, and a prediction has none, so it is computed in full; call "
            "inside torch.no_grad() to reuse steps"
        )
    scheduler = source.scheduler_of(context, timestep)
    info = locate(context, scheduler, timestep)
    if info is None:
        raise UnknownCallError(
            "the step of this call is unknown (frames at different noise levels have none), so it is computed in "
            "full; accelerate the pipeline, pass scheduler=..., or call the transformer inside cache_context(name, "
            "step_index=..., num_inference_steps=..., sigma=..., timestep=...)",
            latent,
        )
    conditions = {name: value for name, value in inputs.items() if name not in {*ALWAYS_MOVING, *family.moving}}
    return CallIdentity(
        component=component,
        branch=context.name if context else None,
        info=info,
        weights=weights_of_input(scheduler, info) or (1 - info.sigma, info.sigma),
        latent=latent,
        shares_latent=family.shares_latent,
        guidance_scale=guidance_of(source.pipe, component),
        conditions=conditions | {"adapters": (hash(adapter_states(transformer)), adapter_sizes(transformer))},
        timesteps_address=timesteps_address(timestep, context.timestep if context else None),
        scheduler=scheduler,
    )


class KnownValue:
    """An argument of a call, compared by object and version, else by values; `copies` detects any change in place."""

    def __init__(self, value: Any, *, copies: bool = False) -> None:
        self._parts = {name: KnownValue(part) for name, part in _parts_of(value).items()}
        self._value: Any = None if self._parts else value
        if isinstance(value, Tensor):
            self._object, self._version = weakref.ref(value), _version_of(value)
            self._value = value.detach().clone() if copies or value.is_inference() else value.detach()
            self._kept_version = _version_of(self._value)

    @property
    def tensor(self) -> Tensor:
        return self._value

    def is_unchanged(self, value: Any) -> bool:
        parts, known = _parts_of(value), self._value
        if self._parts or parts:
            same = parts.keys() == self._parts.keys()
            return same and all(known.is_unchanged(parts[name]) for name, known in self._parts.items())
        if not isinstance(known, Tensor) or not isinstance(value, Tensor):
            return known is value or (type(known) is type(value) and _are_equal(known, value))
        if value is self._object() and self._version is not None and _version_of(value) == self._version:
            return True
        if _version_of(known) != self._kept_version:
            return False
        same_kind = value.shape == known.shape and value.dtype == known.dtype and value.device == known.device
        return same_kind and torch.equal(value, known)


def _parts_of(value: Any) -> dict[Any, Any]:
    """The values in a list, tuple or mapping; empty for any other value."""
    if isinstance(value, Mapping):
        return dict(value)
    return dict(enumerate(value)) if isinstance(value, list | tuple) and not isinstance(value, torch.Size) else {}


def _are_equal(known: Any, value: Any) -> bool:
    try:
        return bool(known == value)
    except Exception:  # arrays, for example, have no single answer
        return False


def _version_of(tensor: Tensor) -> int | None:
    """Number of changes in place of a tensor; None in inference mode, where PyTorch does not count them."""
    return None if tensor.is_inference() else tensor._version
