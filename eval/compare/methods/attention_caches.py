"""Caches of attention layers that come with diffusers: Pyramid Attention Broadcast and FasterCache.

Both were written for pipelines that put both guidance branches into one batch and keep one state for all calls. On
pipelines that call the transformer once a branch, such as Wan's, the first hands one branch's attention to the other
and the second fails. So here the first gets a state for each branch, and for the second both branches are computed in
one batch. Their timestep windows were published for timesteps that fall evenly from 1000 to 0; Wan's flow shift bends
timesteps, so the windows are applied to the share of steps that is left.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from diffusers import DiffusionPipeline, FasterCacheConfig, PyramidAttentionBroadcastConfig
from diffusers.hooks.hooks import BaseState, HookRegistry, ModelHook, StateManager
from torch import Tensor, nn

from galaxydit.eval.arena.attach import REGISTRY, leaving_no_trace, tensors_in_hooks
from galaxydit.eval.arena.diffusers_caches import enabled
from galaxydit.eval.arena.method import Attached, Method, Setting
from galaxydit.families import SEPARATE, family_of

PAB_HOOK = "pyramid_attention_broadcast"
ADAPTER_HOOK = "galaxydit_arena_adapter"


def timestep_left(pipe: DiffusionPipeline) -> Callable[[], float]:
    """1000 at the first step, falling evenly: the share of steps that is left, as a timestep."""
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


class _BranchState(BaseState):
    """The states of all hooks in one branch."""

    def __init__(self) -> None:
        super().__init__()
        self.of_hook: dict[int, Any] = {}

    def reset(self) -> None:
        self.of_hook.clear()


class BranchStates(ModelHook):
    """On the transformer: before each call, gives the hooks below the states that they have in this branch."""

    _is_stateful = True

    def __init__(self, hooks: list[ModelHook]) -> None:
        super().__init__()
        self.state_manager = StateManager(_BranchState)
        self._hooks = hooks

    def pre_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        states = self.state_manager.get_state().of_hook
        for index, hook in enumerate(self._hooks):
            hook.state = states.setdefault(index, type(hook.state)())
        return args, kwargs

    def reset_state(self, module: nn.Module) -> None:
        self.state_manager.reset()


class JoinedBranches(ModelHook):
    """On the transformer: computes both branches in one batch, unconditional half first, when the conditional one is
    asked for, and hands out the other half when the unconditional one is.

    It needs the unconditional text before the pipeline passes it, so it listens where texts are encoded.
    """

    _is_stateful = True

    def __init__(self, pipe: DiffusionPipeline) -> None:
        super().__init__()
        self.state_manager = StateManager(_BranchState)
        self.negative: Tensor | None = None
        self._unconditional: Tensor | None = None
        encode = pipe.encode_prompt

        def listen(*args: Any, **kwargs: Any) -> Any:
            texts = encode(*args, **kwargs)
            self.negative = texts[1]
            return texts

        pipe.encode_prompt = listen

    def new_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        context = self.state_manager.context.name
        if self.negative is None:
            raise ValueError("guidance is off, allowed are guidance scales above 1: FasterCache predicts one branch")
        if context == "uncond":
            return (self._unconditional,)
        text = kwargs["encoder_hidden_states"]
        kwargs = kwargs | {
            "hidden_states": torch.cat([kwargs["hidden_states"]] * 2),
            "timestep": torch.cat([kwargs["timestep"]] * 2),
            "encoder_hidden_states": torch.cat([self.negative.to(text), text]),
        }
        output = self.fn_ref.original_forward(*args, **kwargs)
        self._unconditional, conditional = output[0].chunk(2)
        return (conditional,)

    def reset_state(self, module: nn.Module) -> None:
        self.state_manager.reset()
        self._unconditional = None


@contextmanager
def _adapted(pipe: DiffusionPipeline, config: Any, adapter: Callable[[], ModelHook]) -> Iterator[Attached]:
    """A diffusers cache, and above it, where branches are separate calls, what makes it fit."""
    transformer = pipe.transformer
    with leaving_no_trace(pipe), enabled(pipe, config):
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


def _pab_settings(steps: int) -> list[Setting]:
    ranges = [(None, 2), (None, 4), (2, 2), (2, 4), (3, 6), (4, 8), (6, 12), (None, 12), (10, 25)]
    return [
        {"self_attention": own, "cross_attention": cross, "window": window}
        for window in ([100, 800], [30, 950])
        for own, cross in ranges
    ]


@contextmanager
def _attach_pab(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Iterator[Attached]:
    window = tuple(setting["window"])
    config = PyramidAttentionBroadcastConfig(
        spatial_attention_block_skip_range=setting["self_attention"],
        cross_attention_block_skip_range=setting["cross_attention"],
        spatial_attention_timestep_skip_range=window,
        cross_attention_timestep_skip_range=window,
        current_timestep_callback=timestep_left(pipe),
    )

    def branch_states() -> BranchStates:
        registries = [getattr(m, REGISTRY) for m in pipe.transformer.modules() if hasattr(m, REGISTRY)]
        return BranchStates([registry.hooks[PAB_HOOK] for registry in registries if PAB_HOOK in registry.hooks])

    with _adapted(pipe, config, branch_states) as attached:
        yield attached


def _faster_cache_settings(steps: int) -> list[Setting]:
    return [
        {"unconditional_every": every, "attention_every": attention, "from": start, "alpha": alpha}
        for alpha in (1.0, 1.1)
        for every, attention in ((2, 2), (3, 2), (5, 2), (5, 4), (10, 4), (20, 6))
        for start in (681, 901)
    ]


@contextmanager
def _attach_faster_cache(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Iterator[Attached]:
    left = timestep_left(pipe)
    window = (-1, setting["from"])
    config = FasterCacheConfig(
        spatial_attention_block_skip_range=setting["attention_every"],
        spatial_attention_timestep_skip_range=window,
        unconditional_batch_skip_range=setting["unconditional_every"],
        unconditional_batch_timestep_skip_range=window,
        alpha_low_frequency=setting["alpha"],
        alpha_high_frequency=setting["alpha"],
        attention_weight_callback=lambda _: 1 - left() / 1000,  # grows from 0 to 1 over the steps, as published
        current_timestep_callback=left,
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.meshgrid")
        with _adapted(pipe, config, lambda: JoinedBranches(pipe)) as attached:
            yield attached


METHODS = (
    Method("PAB", "Pyramid Attention Broadcast, arXiv 2408.12588; diffusers", _pab_settings, _attach_pab),
    Method("FasterCache", "FasterCache, arXiv 2410.19355; diffusers", _faster_cache_settings, _attach_faster_cache),
)
