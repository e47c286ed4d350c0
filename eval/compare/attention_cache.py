"""Adapters for diffusers' caches of attention layers, Pyramid Attention Broadcast and FasterCache.

Both assume that a pipeline puts both guidance branches into one batch and that one state serves all calls. Wan's
pipelines call the transformer once per branch, so an adapter hook above the cache separates or joins the branches. The
published timestep windows assume timesteps that fall evenly from 1000 to 0; Wan's flow shift bends them, so the windows
are applied to the share of steps that is left.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from diffusers import DiffusionPipeline
from diffusers.hooks.hooks import BaseState, HookRegistry, ModelHook, StateManager
from torch import nn

from galaxydit.eval.compare.method import Attached
from galaxydit.eval.compare.third_party import enabled, tensors_in_hooks
from galaxydit.families import SEPARATE, family_of

ADAPTER_HOOK = "galaxydit_compare_adapter"


class BranchState(BaseState):
    """The states of all hooks below the transformer in one branch, by index of the hook."""

    def __init__(self) -> None:
        super().__init__()
        self.of_hook: dict[int, Any] = {}

    def reset(self) -> None:
        self.of_hook.clear()


class AdapterHook(ModelHook):
    """A stateful hook on the transformer with one `BranchState` for each cache context."""

    _is_stateful = True

    def __init__(self) -> None:
        super().__init__()
        self.state_manager = StateManager(BranchState)

    def reset_state(self, module: nn.Module) -> None:
        self.state_manager.reset()


def timestep_left(pipe: DiffusionPipeline) -> Callable[[], float]:
    """Return a function that gives the share of steps left as a timestep: 1000 at the first step, falling evenly."""
    last: tuple[Any, float] = (None, 1000.0)

    def left() -> float:
        nonlocal last
        timestep = pipe.current_timestep  # the same object throughout a step, in which every layer asks
        if timestep is not last[0]:
            timesteps = pipe.scheduler.timesteps
            step = int((timesteps == timestep).nonzero()[0])
            last = (timestep, 1000.0 * (1 - step / len(timesteps)))
        return last[1]

    return left


@contextmanager
def adapted(pipe: DiffusionPipeline, config: Any, adapter: Callable[[], AdapterHook]) -> Iterator[Attached]:
    """Enable a diffusers cache, with the adapter above it if the guidance branches are separate calls."""
    transformer = pipe.transformer
    with enabled(pipe, config):
        registry = HookRegistry.check_if_exists_or_initialize(transformer)
        separate = family_of(transformer).branches == SEPARATE
        if separate:
            registry.register_hook(adapter(), ADAPTER_HOOK)
            registry.invalidate_child_registries_cache()
        try:
            yield Attached(tensors_in_hooks(transformer))
        finally:
            if separate:
                registry.remove_hook(ADAPTER_HOOK, recurse=False)
