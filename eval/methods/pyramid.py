"""Pyramid Attention Broadcast (arXiv 2408.12588): reuse the outputs of self- and cross-attention at fixed intervals.

diffusers' cache has one state per layer. WanPipeline calls the transformer once per branch, so a hook around the cache
gives each branch its own.
"""

from typing import Any

from diffusers import DiffusionPipeline, PyramidAttentionBroadcastConfig
from diffusers.hooks.pyramid_attention_broadcast import PyramidAttentionBroadcastState
from torch import nn

from galaxydit.eval.methods.caches import AdapterHook, enabled, hooks_in, timestep_left
from galaxydit.eval.methods.method import Context, Setting, method


class StatesOfBranch(AdapterHook):
    """Passes the layers' states of the branch to the cache before each call of the transformer."""

    def new_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        states = self.state_manager.get_state()
        for hook in hooks_in(module, "pyramid_attention_broadcast"):
            hook.state = states.setdefault(id(hook), PyramidAttentionBroadcastState())
        return self.fn_ref.original_forward(*args, **kwargs)


def _settings(steps: int) -> list[Setting]:
    """diffusers' default window and almost all steps; self- and cross-attention every so many steps, from the authors'
    2 and 6.
    """
    listed: list[Setting] = []
    for first, last in ((800, 100), (960, -1)):
        for every, cross in ((2, 2), (2, 6), (3, 6), (4, 8), (6, 12), (10, 20)):
            listed.append({"self_every": every, "cross_every": cross, "first": first, "last": last})
    return listed


@method("Pyramid Attention Broadcast", "PAB, arXiv 2408.12588; diffusers", _settings)
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Context:
    window = (setting["last"], setting["first"])  # exclusive, in 1000ths of the steps that are left
    config = PyramidAttentionBroadcastConfig(
        spatial_attention_block_skip_range=setting["self_every"],
        cross_attention_block_skip_range=setting["cross_every"],
        spatial_attention_timestep_skip_range=window,
        cross_attention_timestep_skip_range=window,
        current_timestep_callback=timestep_left(pipe),
    )
    return enabled(pipe, config, StatesOfBranch)
