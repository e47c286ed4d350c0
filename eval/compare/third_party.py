"""Other projects' methods: run diffusers' caches, restore the pipeline afterwards, and measure what their hooks keep.

diffusers' caches key their state by the name of the cache context, so the two guidance branches of Wan have separate
states; a pipeline resets them when a generation ends.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from diffusers import DiffusionPipeline
from diffusers.hooks.hooks import ModelHook
from torch import nn

from galaxydit.eval.compare.method import Attached, Calibrate, Method, Setting

REGISTRY = "_diffusers_hook"  # diffusers creates this attribute on every module that it inspects


@contextmanager
def restored(pipe: DiffusionPipeline) -> Iterator[None]:
    """Restore all attributes of the pipeline and of its transformer's modules when the block ends.

    Caches remove their hooks, but leave changed forward methods, flags or bookkeeping on the modules.
    """
    owners = [pipe, *pipe.transformer.modules()]
    before = [dict(vars(owner)) for owner in owners]
    try:
        yield
    finally:
        for owner, attributes in zip(owners, before, strict=True):
            for name in set(vars(owner)) - set(attributes) - {REGISTRY}:
                del vars(owner)[name]
            vars(owner).update(attributes)


def hooks_in(transformer: nn.Module, wanted: str | None = None) -> list[ModelHook]:
    """The diffusers hooks of all modules, or those of the wanted name."""
    registries = [getattr(module, REGISTRY) for module in transformer.modules() if hasattr(module, REGISTRY)]
    return [hook for registry in registries for name, hook in registry.hooks.items() if wanted in (None, name)]


def tensors_in_hooks(transformer: nn.Module) -> Callable[[], int]:
    """Return a function that counts the bytes of all tensors in the states of the transformer's diffusers hooks."""
    hooks = hooks_in(transformer)

    def held() -> int:
        found: dict[int, int] = {}
        collect_tensors([value for hook in hooks for name, value in vars(hook).items() if "state" in name], found)
        return sum(found.values())

    return held


def collect_tensors(value: Any, found: dict[int, int]) -> None:
    """Add every tensor inside containers and state objects to `found`, bytes by address, so that none counts twice."""
    if isinstance(value, torch.Tensor):
        found[value.data_ptr()] = value.numel() * value.element_size()
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            collect_tensors(item, found)
    elif hasattr(value, "__dict__") and not isinstance(value, nn.Module | type) and not callable(value):
        collect_tensors(vars(value), found)


@contextmanager
def enabled(pipe: DiffusionPipeline, config: Any) -> Iterator[Attached]:
    """Run the pipeline's transformer with a diffusers cache."""
    transformer = pipe.transformer
    with restored(pipe):
        transformer.enable_cache(config)
        try:
            yield Attached(tensors_in_hooks(transformer))
        finally:
            transformer.disable_cache()


def cache_method(
    name: str,
    source: str,
    settings: Callable[[int], Sequence[Setting]],
    config: Callable[[DiffusionPipeline, Setting, Any], Any],
    calibrate: Calibrate | None = None,
) -> Method:
    """A method that enables the cache which `config` returns for pipeline, setting and calibration."""

    def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
        return enabled(pipe, config(pipe, setting, calibration))

    return Method(name, source, settings, attach, calibrate)
