"""ProfilingDiT (Ma et al., arXiv 2504.03140; github.com/GeekGuru123/ProfilingDiT, its Wan2.1 backend).

Some blocks attend to the foreground and some to the background, nearly independently of the prompt. After a warm-up (6
of 50 steps) every sixth step is computed in full; in between, only the foreground blocks run, and each group of
consecutive background blocks adds its residual of the last full step. The authors list 28 of the 40 blocks of
Wan2.1-14B as background.

The profile is measured here: the share of self-attention that goes to foreground tokens, divided by their share of all
tokens. Foreground tokens of the denoised latent are those whose distance from the median token exceeds the mean
distance; the authors' own segmentation was not available.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from diffusers import DiffusionPipeline
from torch import Tensor, nn

from galaxydit.eval.compare.identity import with_rules
from galaxydit.eval.compare.method import Attached, Method, Setting
from galaxydit.eval.compare.rules.decision import StepObservation, warm_ups
from galaxydit.eval.compare.rules.forward_hooks import Forward, ModuleHook, wan_transformer
from galaxydit.eval.compare.rules.rule_observer import Segment, under_rule
from galaxydit.families import blocks_of, family_of
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.runtime.hooks import HookSet

BACKGROUND_SHARE = 0.7  # of the blocks: the authors' value for Wan2.1-14B
PROBED_CALLS = 5  # attention is measured in one call of so many


class IntervalRule:
    """Compute the steps before `first`, and every `interval`-th step from there on."""

    def __init__(self, first: int, interval: int) -> None:
        self.first, self.interval = first, interval

    def decide(self, observation: StepObservation) -> bool:
        return observation.step >= self.first and (observation.step - self.first) % self.interval != 0


def background_blocks(foreground_attention: Sequence[float], share: float) -> list[int]:
    """Indices of the share of blocks, rounded, that attends least to the foreground, in ascending order."""
    by_attention = sorted(range(len(foreground_attention)), key=lambda block: foreground_attention[block])
    return sorted(by_attention[: round(share * len(foreground_attention))])


def consecutive_segments(blocks: Iterable[int]) -> list[Segment]:
    """Group block indices in ascending order into segments without gaps."""
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
    """Attention of each block to the foreground, relative to its share of tokens: 1 is no preference."""
    profiles = []
    for index, prompt in enumerate(prompts):
        latents = generate(pipe, prompt, generation, seed + index).latents
        with _AttentionProbe(pipe, foreground(latents, pipe.transformer.config.patch_size)) as probe:
            generate(pipe, prompt, generation, seed + index)
        profiles.append(probe.profile())
    return {"foreground_attention": torch.tensor(profiles).mean(dim=0).tolist()}


def foreground(latents: Tensor, patch_size: Sequence[int]) -> Tensor:
    """Foreground mask `(tokens,)`, in the transformer's order, of latents `(1, channels, frames, height, width)`."""
    tokens = nn.functional.avg_pool3d(latents.float(), tuple(patch_size), tuple(patch_size))[0].flatten(1)
    distance = torch.linalg.vector_norm(tokens - tokens.median(dim=1, keepdim=True).values, dim=0)
    return distance > distance.mean()


class _AttentionProbe:
    """Measures the self-attention of every block inside its context.

    Attention is linear in its values. So with the values 1 at foreground tokens and 0 elsewhere, the output is the
    share of attention that goes to the foreground, whichever kernel computes it.
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
        """For each block the share of attention to the foreground / the foreground's share of tokens."""
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
    """Run the pipeline with the background blocks reused between the full steps."""
    blocks = background_blocks(calibration["foreground_attention"], setting["share"])
    return under_rule(
        pipe,
        lambda: IntervalRule(setting["first"], setting["interval"]),
        segments=consecutive_segments(blocks),
    )


METHOD = Method("ProfilingDiT", "arXiv 2504.03140", settings, attach, calibrate, identity=with_rules(__file__))
