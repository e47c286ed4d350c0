"""Run diffusers' caches, restore the pipeline afterwards, and measure what their hooks keep.

Most caches key their state by the cache context, so Wan's branches have separate states.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from diffusers import DiffusionPipeline
from diffusers.hooks.hooks import BaseState, HookRegistry, ModelHook, StateManager
from torch import nn

from galaxydit.families import SEPARATE
from galaxydit.pipelines.trial import Attached
from galaxydit.runtime.recognition import family_of

HOOK = "galaxydit_compare"
REGISTRY = "_diffusers_hook"  # diffusers creates this attribute on every module that it inspects


@contextmanager
def restored(pipe: DiffusionPipeline) -> Iterator[None]:
    """Restore all attributes of the pipeline and of its transformer's modules when the context ends.

    Caches remove their hooks, but leave changed forward methods, flags or bookkeeping.
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
    """The diffusers hooks of all modules of the transformer, or only those of one name."""
    hooks = []
    for module in transformer.modules():
        if not hasattr(module, REGISTRY):
            continue
        for name, hook in getattr(module, REGISTRY).hooks.items():
            if wanted in (None, name):
                hooks.append(hook)
    return hooks


def bytes_in(value: Any) -> int:
    """Bytes of all tensors inside nested containers and objects; each tensor counts once."""
    by_address = {tensor.data_ptr(): tensor.nbytes for tensor in _tensors_in(value)}
    return sum(by_address.values())


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _tensors_in(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors_in(item)
    elif hasattr(value, "__dict__") and not isinstance(value, nn.Module | type) and not callable(value):
        yield from _tensors_in(vars(value))


class BranchState(BaseState, dict[Any, Any]):
    """Whatever an `AdapterHook` keeps for one guidance branch; cleared at a reset."""

    def reset(self) -> None:
        self.clear()


class AdapterHook(ModelHook):
    """Base class of hooks; `state_manager.get_state()` is the state of the branch.

    Subclasses override `new_forward`, which replaces the module's forward.
    """

    _is_stateful = True

    def __init__(self) -> None:
        super().__init__()
        self.state_manager = StateManager(BranchState)

    def reset_state(self, module: nn.Module) -> None:
        self.state_manager.reset()


@contextmanager
def hooked(transformer: nn.Module, hooks: Sequence[tuple[nn.Module, ModelHook]]) -> Iterator[None]:
    """Within the context, each of these modules of the transformer has its hook."""
    registries = [HookRegistry.check_if_exists_or_initialize(module) for module, _ in hooks]
    for registry, (_, hook) in zip(registries, hooks, strict=True):
        registry.register_hook(hook, HOOK)
    HookRegistry.check_if_exists_or_initialize(transformer).invalidate_child_registries_cache()
    try:
        yield
    finally:
        for registry in registries:
            registry.remove_hook(HOOK, recurse=False)


@contextmanager
def enabled(
    pipe: DiffusionPipeline, config: Any, adapter: Callable[[], AdapterHook] | None = None
) -> Iterator[Attached]:
    """Within the context, the transformer runs with a diffusers cache of this configuration.

    `adapter` returns a hook around the cache for guidance branches that are separate calls.
    """
    transformer = pipe.transformer
    with restored(pipe), ExitStack() as stack:
        transformer.enable_cache(config)
        stack.callback(transformer.disable_cache)
        if adapter is not None and family_of(transformer).branches == SEPARATE:
            stack.enter_context(hooked(transformer, [(transformer, adapter())]))
        hooks = hooks_in(transformer)
        yield Attached(lambda: bytes_in([_states_of(hook) for hook in hooks]))


def _states_of(hook: ModelHook) -> list[Any]:
    """The attributes in which diffusers' hooks keep states."""
    return [value for name, value in vars(hook).items() if "state" in name]


def timestep_left(pipe: DiffusionPipeline) -> Callable[[], float]:
    """Function that returns 1000 times the share of steps that are left, the current one included.

    FasterCache's published windows assume timesteps that fall evenly; Wan's flow shift bends them.
    """

    last: tuple[Any, float] = (None, 1000.0)

    def left() -> float:
        nonlocal last
        timestep = pipe.current_timestep  # the same object throughout a step, in which every layer asks
        if timestep is not last[0]:
            timesteps = pipe.scheduler.timesteps  # not every scheduler counts its steps
            step = int((timesteps == timestep).nonzero()[0])
            last = (timestep, 1000.0 * (1 - step / len(timesteps)))
        return last[1]

    return left
