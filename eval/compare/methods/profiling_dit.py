"""ProfilingDiT (Ma et al., arXiv 2504.03140; github.com/GeekGuru123/ProfilingDiT, its Wan2.1 backend).

Blocks differ in where they look: some attend to the foreground, some to the background, and that hardly depends on the
prompt. From the first steps on (6 of 50), every sixth step is computed in full; in between, the foreground's blocks run
and each group of neighbouring background blocks is replaced by what it added at the last full step. The authors' list
for Wan2.1-14B has 28 of its 40 blocks.

Which blocks are which is profiled here: the self-attention that goes to foreground tokens, over their share of all
tokens. Foreground are the tokens of the denoised latent that lie further than the mean from the median token; how the
authors segment is not told where we could read it.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from diffusers import DiffusionPipeline
from torch import Tensor, nn

from galaxydit.eval.arena.method import Attached, Method, Setting
from galaxydit.eval.arena.policies.attachment import Segment, under_policy
from galaxydit.eval.arena.policies.hooks import Forward, ModuleHook, wan_transformer
from galaxydit.eval.arena.policies.rule import Seen, warm_ups
from galaxydit.families import blocks_of, family_of
from galaxydit.hooks import HookSet
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings

BACKGROUND_SHARE = 0.7  # of the blocks, the authors' for Wan2.1-14B
PROBED_CALLS = 5  # one in so many calls is looked at


class IntervalRule:
    """The steps before `first` and every `interval`-th from there on are computed in full."""

    def __init__(self, first: int, interval: int) -> None:
        self.first, self.interval = first, interval

    def decide(self, seen: Seen) -> bool:
        return seen.step >= self.first and (seen.step - self.first) % self.interval != 0


def background_blocks(foreground_attention: Sequence[float], share: float) -> list[int]:
    """The share of the blocks, rounded, that attends least to the foreground, in the order they run."""
    by_attention = sorted(range(len(foreground_attention)), key=lambda block: foreground_attention[block])
    return sorted(by_attention[: round(share * len(foreground_attention))])


def groups_of_neighbours(blocks: Iterable[int]) -> list[Segment]:
    """Blocks in ascending order as segments without gaps."""
    segments: list[Segment] = []
    for block in blocks:
        if segments and segments[-1][1] == block - 1:
            segments[-1] = (segments[-1][0], block)
        else:
            segments.append((block, block))
    return segments


def settings(steps: int) -> list[Setting]:
    """The authors' interval and share of blocks among others, with their first steps and with one."""
    return [
        {"first": first, "interval": interval, "share": share}
        for first in warm_ups(steps, 0.12)
        for share in (0.4, BACKGROUND_SHARE, 0.85)
        for interval in (2, 3, 4, 6, 8, 12)
    ]


def calibrate(
    pipe: DiffusionPipeline, prompts: Sequence[str], generation: GenerationSettings, seed: int
) -> dict[str, list[float]]:
    """For each block how much it attends to the foreground: 1 is no preference."""
    profiles = []
    for index, prompt in enumerate(prompts):
        latents = generate(pipe, prompt, generation, seed + index).latents
        with _AttentionProbe(pipe, foreground(latents, pipe.transformer.config.patch_size)) as probe:
            generate(pipe, prompt, generation, seed + index)
        profiles.append(probe.profile())
    return {"foreground_attention": torch.tensor(profiles).mean(dim=0).tolist()}


def foreground(latents: Tensor, patch_size: Sequence[int]) -> Tensor:
    """Which tokens are foreground, `(tokens,)` in the transformer's order, of latents `(1, channels, frames, height,
    width)`.
    """
    tokens = nn.functional.avg_pool3d(latents.float(), tuple(patch_size), tuple(patch_size))[0].flatten(1)
    distance = torch.linalg.vector_norm(tokens - tokens.median(dim=1, keepdim=True).values, dim=0)
    return distance > distance.mean()


class _AttentionProbe:
    """A context in which the self-attention of every block is seen.

    Attention is linear in its values. So with 1 as the values of the foreground and 0 elsewhere its output is the share
    of attention that goes there, whatever computes it.
    """

    def __init__(self, pipe: DiffusionPipeline, mask: Tensor) -> None:
        self._transformer = wan_transformer(pipe)
        self._mask = mask
        self._values: Tensor | None = None
        self._shares: dict[int, list[float]] = {}
        self._hooks = HookSet()

    def __enter__(self) -> "_AttentionProbe":
        for index, block in enumerate(blocks_of(self._transformer, family_of(self._transformer))):
            self._shares[index] = []
            self._hooks.add(block.get_submodule("attn1.to_v"), ModuleHook(self._give_values))
            self._hooks.add(block.get_submodule("attn1.to_out.0"), ModuleHook(self._output_of(index)))
            self._hooks.add(block.get_submodule("attn1"), ModuleHook(self._attend_twice(index)))
        self._hooks.refresh(self._transformer)
        return self

    def __exit__(self, *_: Any) -> None:
        self._hooks.remove()

    def profile(self) -> list[float]:
        """For each block the attention that goes to the foreground, over the foreground's share of tokens."""
        share = float(self._mask.float().mean())
        return [sum(found) / len(found) / share for found in self._shares.values()]

    def _give_values(self, forward: Forward, args: Any, kwargs: Any) -> Any:
        values = forward(*args, **kwargs)
        if self._values is None:
            return values
        return self._values.to(values)[None, :, None].expand_as(values)

    def _output_of(self, index: int) -> Forward:
        def run(forward: Forward, args: Any, kwargs: Any) -> Any:
            if self._values is not None:
                self._shares[index].append(float(args[0].float().mean()))
            return forward(*args, **kwargs)

        return run

    def _attend_twice(self, index: int) -> Forward:
        calls = 0

        def run(forward: Forward, args: Any, kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if (calls - 1) % PROBED_CALLS == 0:
                self._values = self._mask
                try:
                    forward(*args, **kwargs)
                finally:
                    self._values = None
            return forward(*args, **kwargs)

        return run


def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    blocks = background_blocks(calibration["foreground_attention"], setting["share"])
    return under_policy(
        pipe,
        lambda: IntervalRule(setting["first"], setting["interval"]),
        segments=groups_of_neighbours(blocks),
    )


METHOD = Method("ProfilingDiT", "arXiv 2504.03140", settings, attach, calibrate)
