"""ProfilingDiT (Ma et al., arXiv 2504.03140; github.com/GeekGuru123/ProfilingDiT, its Wan2.1 backend).

Some blocks attend to the foreground, nearly independently of the prompt. Between full steps only these blocks run, and
each run of consecutive background blocks adds its residual of the last full step. The authors reuse 28 of the 40 blocks
of Wan2.1-14B, and compute the first 6 of 50 steps and every sixth step, or those of a list.

The authors' lists of blocks are for 40 blocks, so the blocks are profiled on the model: by the share of self-attention
that goes to foreground tokens / their share of all tokens. A token is in the foreground if its distance from the median
token exceeds the mean distance; the authors' segmentation was not available.

A setting holds the `share` of background blocks, and the full steps: their indices `full`, or the number of `first`
steps and the `interval` of later ones.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from diffusers import DiffusionPipeline
from diffusers.hooks.hooks import BaseState, HookRegistry, ModelHook, StateManager
from torch import Tensor, nn

from galaxydit.eval.methods.accumulation import check_branches, share_of_steps, warm_ups
from galaxydit.eval.methods.caches import bytes_in, restored
from galaxydit.eval.methods.method import Setting, method
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.trial import Attached
from galaxydit.runtime.recognition import blocks_of, family_of

HOOK = "galaxydit_compare_background"
BACKGROUND_SHARE = 0.7  # of the blocks: the authors' 28 of 40
WARM_UP = 0.12  # of the steps: the authors' 6 of 50
LISTED = (6, 18, 26, 32, 38, 42, 46, 48)  # the authors' full steps after the warm-up, of 50
PROFILED_PROMPTS = 4  # the profile hardly depends on the prompt
PROBED_CALLS = 5  # attention is measured in every fifth call of a block


class SegmentState(BaseState):
    """State of consecutive background blocks in one branch.

    entered: their input in the current step; residual: their output - input in the last full step; None before it.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.step = -1
        self.entered: Tensor | None = None
        self.residual: Tensor | None = None


class SegmentHook(ModelHook):
    """Hook of one block: a full step runs it; in a reused step the segment's first block adds the residual.

    The hooks of a segment share `manager`, which has a `SegmentState` for each branch.
    """

    _is_stateful = True

    def __init__(self, manager: StateManager, is_full: Callable[[int], bool], is_first: bool, is_last: bool) -> None:
        super().__init__()
        self.state_manager, self.is_full, self.is_first, self.is_last = manager, is_full, is_first, is_last

    def new_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        state = self.state_manager.get_state()
        hidden = args[0] if args else kwargs["hidden_states"]
        if self.is_first:
            state.step, state.entered = state.step + 1, hidden
        if state.residual is not None and not self.is_full(state.step):
            return hidden + state.residual if self.is_first else hidden
        output = self.fn_ref.original_forward(*args, **kwargs)
        if self.is_last:
            state.residual, state.entered = output - state.entered, None
        return output

    def reset_state(self, module: nn.Module) -> None:
        self.state_manager.reset()


def background_blocks(foreground_attention: Sequence[float], share: float) -> list[int]:
    """Ascending indices of the `share` of blocks with the least attention to the foreground."""
    by_attention = sorted(range(len(foreground_attention)), key=lambda block: foreground_attention[block])
    return sorted(by_attention[: round(share * len(foreground_attention))])


def consecutive_segments(blocks: Iterable[int]) -> list[list[int]]:
    segments: list[list[int]] = []
    for block in blocks:
        if segments and segments[-1][-1] == block - 1:
            segments[-1].append(block)
        else:
            segments.append([block])
    return segments


def is_full(setting: Setting, step: int) -> bool:
    if "full" in setting:
        return step in setting["full"]
    beyond = step - setting["first"]
    return beyond < 0 or beyond % setting["interval"] == 0


def settings(steps: int) -> list[Setting]:
    """Candidate settings around the authors', with their warm-up and with one step."""
    return [
        {"first": first, "interval": interval, "share": share}
        for first in warm_ups(steps, WARM_UP)
        for share in (0.4, BACKGROUND_SHARE, 0.85)
        for interval in (2, 3, 4, 6, 8, 12)
    ]


def published_settings(steps: int) -> list[Setting]:
    """The authors' listed steps, and their interval of 6; both compute 14 of 50 steps in full (2.01x)."""
    warm_up = range(share_of_steps(steps, WARM_UP))
    listed = {step * steps // 50 for step in LISTED}
    every_sixth = range(len(warm_up), steps, 6)
    return [{"full": sorted({*warm_up, *later}), "share": BACKGROUND_SHARE} for later in (listed, every_sixth)]


def calibrate(
    pipe: DiffusionPipeline, prompts: Sequence[str], generation: GenerationSettings, seed: int
) -> dict[str, list[float]]:
    """`foreground_attention` of each block, mean over the first prompts; 1 is a block without a preference."""
    profiles = []
    for index, prompt in enumerate(prompts[:PROFILED_PROMPTS]):
        latents = generate(pipe, prompt, generation, seed + index, decode=False).latents
        with AttentionProbe(pipe, foreground(latents, pipe.transformer.config.patch_size)) as probe:
            generate(pipe, prompt, generation, seed + index, decode=False)
        profiles.append(probe.profile())
    return {"foreground_attention": torch.tensor(profiles).mean(dim=0).tolist()}


def foreground(latents: Tensor, patch_size: Sequence[int]) -> Tensor:
    """Boolean mask `(tokens,)` of latents `(1, channels, frames, height, width)`, in the transformer's order.

    `patch_size`: latent frames, rows and columns of one token.
    """
    tokens = nn.functional.avg_pool3d(latents.float(), tuple(patch_size), tuple(patch_size))[0].flatten(1)
    distance = torch.linalg.vector_norm(tokens - tokens.median(dim=1, keepdim=True).values, dim=0)
    return distance > distance.mean()


class AttentionProbe(ExitStack):
    """Measures each block's self-attention to the tokens of `mask` `(tokens,)` during generations.

    Every PROBED_CALLS-th call of a block is measured. Attention is linear in its values: with values of 1 at foreground
    tokens and 0 elsewhere, its output is the share of attention that goes there, whichever kernel computes it.
    """

    def __init__(self, pipe: DiffusionPipeline, mask: Tensor) -> None:
        super().__init__()
        check_branches(pipe)
        self._mask, self._is_probing = mask, False
        blocks = blocks_of(pipe.transformer, family_of(pipe.transformer))
        self._calls, self._shares = [0] * len(blocks), [list[float]() for _ in blocks]
        for index, block in enumerate(blocks):
            attention = block.get_submodule("attn1")
            self.enter_context(attention.register_forward_pre_hook(partial(self._attend, index), with_kwargs=True))
            self.enter_context(attention.get_submodule("to_v").register_forward_hook(self._replace_values))
            output = attention.get_submodule("to_out.0")
            self.enter_context(output.register_forward_pre_hook(partial(self._read, index)))

    def profile(self) -> list[float]:
        """For each block the share of attention to the foreground / the foreground's share of tokens."""
        share = float(self._mask.float().mean())
        return [sum(shares) / len(shares) / share for shares in self._shares]

    def _attend(self, index: int, attention: nn.Module, args: Any, kwargs: Any) -> None:
        if self._is_probing:
            return
        self._calls[index] += 1
        if (self._calls[index] - 1) % PROBED_CALLS == 0:
            self._is_probing = True
            try:
                attention(*args, **kwargs)
            finally:
                self._is_probing = False

    def _replace_values(self, layer: nn.Module, args: Any, values: Tensor) -> Tensor | None:
        return self._mask.to(values)[None, :, None].expand_as(values) if self._is_probing else None

    def _read(self, index: int, layer: nn.Module, args: Any) -> None:
        if self._is_probing:
            self._shares[index].append(float(args[0].float().mean()))


@method("ProfilingDiT", "arXiv 2504.03140", settings, published=published_settings, calibrate=calibrate)
@contextmanager
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Iterator[Attached]:
    check_branches(pipe)
    blocks = blocks_of(pipe.transformer, family_of(pipe.transformer))
    segments = consecutive_segments(background_blocks(calibration["foreground_attention"], setting["share"]))
    managers = [StateManager(SegmentState) for _ in segments]
    registries = [HookRegistry.check_if_exists_or_initialize(block) for block in blocks]
    with restored(pipe):
        for segment, manager in zip(segments, managers, strict=True):
            for index in segment:
                hook = SegmentHook(manager, partial(is_full, setting), index == segment[0], index == segment[-1])
                registries[index].register_hook(hook, HOOK)
        HookRegistry.check_if_exists_or_initialize(pipe.transformer).invalidate_child_registries_cache()
        try:
            yield Attached(lambda: bytes_in([manager._state_cache for manager in managers]))
        finally:
            for index in (index for segment in segments for index in segment):
                registries[index].remove_hook(HOOK, recurse=False)
