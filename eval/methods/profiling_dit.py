"""ProfilingDiT (Ma et al., arXiv 2504.03140; github.com/GeekGuru123/ProfilingDiT, its Wan2.1 backend).

Some blocks attend to the foreground, nearly independently of the prompt. Between full steps only these blocks run, and
each run of consecutive background blocks adds its residual of the last full step. The authors reuse 28 of the 40 blocks
of Wan2.1-14B, and compute the first 6 of 50 steps and every sixth step, or those of a list.

The authors' lists of blocks are for 40 blocks, so the blocks are measured on the model: by the share of self-attention
that goes to foreground tokens / their share of all tokens. A token is in the foreground if its distance from the median
token exceeds the mean distance; the authors' segmentation was not available.

A setting holds the `share` of background blocks, and the full steps: their indices `full`, or the number of `first`
steps and the `interval` of later ones.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count, groupby
from typing import Any

import torch
from diffusers import DiffusionPipeline
from diffusers.hooks.hooks import StateManager
from torch import Tensor, nn

from galaxydit.eval.methods.accumulation import check_branches, share_of_steps, warm_ups
from galaxydit.eval.methods.caches import AdapterHook, BranchState, bytes_in, hooked, restored
from galaxydit.eval.methods.method import Setting, method
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.trial import Attached
from galaxydit.runtime.recognition import blocks_of, family_of

BACKGROUND_SHARE = 0.7  # of the blocks: the authors' 28 of 40
WARM_UP = 0.12  # of the steps: the authors' 6 of 50
LISTED = (6, 18, 26, 32, 38, 42, 46, 48)  # the authors' full steps after the warm-up, of 50
MEASURED_PROMPTS = 4  # the shares of attention hardly depend on the prompt
PROBED_CALLS = 5  # attention is measured in every fifth call of a block


class SegmentHook(AdapterHook):
    """Hook of one block: a full step runs it; in a reused step the segment's first block adds the residual.

    The hooks of a segment share `states`, which has for each branch the "step", the "input" of the segment in the
    current step, and its "residual", output - input in the last full step.
    """

    def __init__(self, states: StateManager, is_full: Callable[[int], bool], is_first: bool, is_last: bool) -> None:
        super().__init__()
        self.state_manager = states
        self.is_full = is_full
        self.is_first = is_first
        self.is_last = is_last

    def new_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        state = self.state_manager.get_state()
        hidden = args[0] if args else kwargs["hidden_states"]
        if self.is_first:
            state["step"] = state.get("step", -1) + 1
            state["input"] = hidden
        if "residual" in state and not self.is_full(state["step"]):
            if self.is_first:
                return hidden + state["residual"]
            return hidden
        output = self.fn_ref.original_forward(*args, **kwargs)
        if self.is_last:
            state["residual"] = output - state.pop("input")
        return output


def background_blocks(foreground_attention: Sequence[float], share: float) -> list[int]:
    """Ascending indices of the `share` of blocks with the least attention to the foreground."""
    by_attention = sorted(range(len(foreground_attention)), key=lambda block: foreground_attention[block])
    return sorted(by_attention[: round(share * len(foreground_attention))])


def consecutive_segments(blocks: Iterable[int]) -> list[list[int]]:
    """Runs of neighbouring blocks, whose index less the place in `blocks` is equal."""
    runs = groupby(enumerate(blocks), key=lambda pair: pair[1] - pair[0])
    return [[block for _, block in run] for _, run in runs]


def is_full(setting: Setting, step: int) -> bool:
    if "full" in setting:
        return step in setting["full"]
    beyond = step - setting["first"]
    return beyond < 0 or beyond % setting["interval"] == 0


def settings(steps: int) -> list[Setting]:
    """Candidate settings around the authors', with their warm-up and with one step."""
    grid: list[Setting] = []
    for first in warm_ups(steps, WARM_UP):
        for share in (0.4, BACKGROUND_SHARE, 0.85):
            for interval in (2, 3, 4, 6, 8, 12):
                grid.append({"first": first, "interval": interval, "share": share})
    return grid


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
    measured = []
    for index, prompt in enumerate(prompts[:MEASURED_PROMPTS]):
        latents = generate(pipe, prompt, generation, seed + index, decode=False).latents
        with probed(pipe, foreground(latents, pipe.transformer.config.patch_size)) as shares:
            generate(pipe, prompt, generation, seed + index, decode=False)
        measured.append(shares())
    return {"foreground_attention": torch.tensor(measured).mean(dim=0).tolist()}


def foreground(latents: Tensor, patch_size: Sequence[int]) -> Tensor:
    """Boolean mask `(tokens,)` of latents `(1, channels, frames, height, width)`, in the transformer's order.

    `patch_size`: latent frames, rows and columns of one token.
    """
    tokens = nn.functional.avg_pool3d(latents.float(), tuple(patch_size), tuple(patch_size))[0].flatten(1)
    # The background is the median token; what is farther from it than the mean distance is foreground.
    background = tokens.median(dim=1, keepdim=True).values
    distance = torch.linalg.vector_norm(tokens - background, dim=0)
    return distance > distance.mean()


@contextmanager
def probed(pipe: DiffusionPipeline, mask: Tensor) -> Iterator[Callable[[], list[float]]]:
    """Within the context, measures each block's self-attention to the tokens of `mask` `(tokens,)`.

    Yields a function that returns for each block the share of attention to the foreground / the foreground's share of
    tokens. Every PROBED_CALLS-th call of a block is measured. Attention is linear in its values: with values of 1 at
    foreground tokens and 0 elsewhere, its output is the share of attention that goes there, whichever kernel computes
    it.
    """
    check_branches(pipe)
    blocks = blocks_of(pipe.transformer, family_of(pipe.transformer))
    calls = [count() for _ in blocks]
    shares = [list[float]() for _ in blocks]
    share = float(mask.float().mean())

    def replace_values(layer: nn.Module, args: Any, values: Tensor) -> Tensor:
        return mask.to(values)[None, :, None].expand_as(values)

    def measure(index: int, attention: Any, args: Any, kwargs: Any) -> None:
        if next(calls[index]) % PROBED_CALLS:
            return

        def read(layer: nn.Module, args: Any) -> None:
            shares[index].append(float(args[0].float().mean()))

        with (
            attention.to_v.register_forward_hook(replace_values),
            attention.to_out[0].register_forward_pre_hook(read),
        ):
            attention.forward(*args, **kwargs)  # without the hooks of the attention itself, such as this one

    with ExitStack() as hooks:
        for index, block in enumerate(blocks):
            attention = block.get_submodule("attn1")
            hooks.enter_context(attention.register_forward_pre_hook(partial(measure, index), with_kwargs=True))
        yield lambda: [sum(found) / len(found) / share for found in shares]


@method("ProfilingDiT", "arXiv 2504.03140", settings, published=published_settings, calibrate=calibrate)
@contextmanager
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Iterator[Attached]:
    check_branches(pipe)
    blocks = blocks_of(pipe.transformer, family_of(pipe.transformer))
    segments = consecutive_segments(background_blocks(calibration["foreground_attention"], setting["share"]))
    managers = [StateManager(BranchState) for _ in segments]
    hooks = []
    for segment, manager in zip(segments, managers, strict=True):
        for index in segment:
            is_first = index == segment[0]
            is_last = index == segment[-1]
            hooks.append((blocks[index], SegmentHook(manager, partial(is_full, setting), is_first, is_last)))
    with restored(pipe), hooked(pipe.transformer, hooks):
        yield Attached(lambda: bytes_in([manager._state_cache for manager in managers]))
