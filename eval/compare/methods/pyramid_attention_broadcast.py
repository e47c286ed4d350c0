"""Pyramid Attention Broadcast (PAB, arXiv 2408.12588): reuse attention outputs for a fixed number of steps."""

from contextlib import AbstractContextManager
from typing import Any

from diffusers import DiffusionPipeline, PyramidAttentionBroadcastConfig
from diffusers.hooks.hooks import ModelHook
from torch import nn

from galaxydit.eval.compare.method import Attached, Method, Setting
from galaxydit.eval.compare.third_party import AdapterHook, enabled, hooks_in, timestep_left


class SeparateBranches(AdapterHook):
    """Gives the hooks below the transformer the states of the current branch before each call."""

    def __init__(self, hooks: list[ModelHook]) -> None:
        super().__init__()
        self._hooks = hooks

    def pre_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        states = self.state_manager.get_state()
        for index, hook in enumerate(self._hooks):
            hook.state = states.setdefault(index, type(hook.state)())
        return args, kwargs


def _settings(steps: int) -> list[Setting]:
    ranges = [(None, 2), (None, 4), (2, 2), (2, 4), (3, 6), (4, 8), (6, 12), (None, 12), (10, 25)]
    return [
        {"self_attention": own, "cross_attention": cross, "window": window}
        for window in ([100, 800], [30, 950])
        for own, cross in ranges
    ]


def _attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    window = tuple(setting["window"])
    config = PyramidAttentionBroadcastConfig(
        spatial_attention_block_skip_range=setting["self_attention"],
        cross_attention_block_skip_range=setting["cross_attention"],
        spatial_attention_timestep_skip_range=window,
        cross_attention_timestep_skip_range=window,
        current_timestep_callback=timestep_left(pipe),
    )
    return enabled(pipe, config, lambda: SeparateBranches(hooks_in(pipe.transformer, "pyramid_attention_broadcast")))


METHOD = Method("PAB", "Pyramid Attention Broadcast, arXiv 2408.12588; diffusers", _settings, _attach)
