"""Failures that are injected into the plugin, to see whether its guard keeps them from harming a video.

The guard gives up the slope where it predicts full steps badly (`StepReuse.follows_slope`). The plugin attaches an
`Engine` to each transformer, which computes or predicts the transformer's calls; two failures are mixins for `Engine`.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from diffusers import DiffusionPipeline
from torch import Tensor

from galaxydit import FixedSteps, GalaxyDiTConfig
from galaxydit.acceleration import Acceleration
from galaxydit.runtime.call import Call
from galaxydit.runtime.engine import Engine
from galaxydit.runtime.generation import Generation
from galaxydit.runtime.outputs import build_output, tensors_of
from galaxydit.runtime.window import Window
from galaxydit.runtime.work import Work

NOISE = 0.03  # of the root mean square of each output; guidance of 5 makes it 0.2 of the guided output
SEED = 0
TAYLORSEER_STEPS = (0, 1, *range(2, 50, 3))  # of 50, arXiv 2609.36433


class UnguardedEngine(Engine):
    """An `Engine` whose predictions follow the slope also where it fails."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.reuse.follows_slope = lambda *_: True


class WrongSigmas:
    """Mixin for `Engine`: the engine sees random, sorted noise levels, so the distances between them are wrong."""

    seed = SEED

    def _decide_before(self, call: Call, window: Window, generation: Generation) -> Work:
        drawn = np.random.default_rng(self.seed).uniform(size=call.info.steps)
        levels = tuple(float(level) for level in np.sort(drawn)[::-1])
        generation.clocks[0].sigmas = levels
        call = replace(call, info=replace(call.info, sigma=levels[call.info.step]))
        work: Work = super()._decide_before(call, window, generation)  # type: ignore[misc]
        return work


class NoisyOutputs:
    """Mixin for `Engine`: adds white noise, drawn anew for each call, to each computed output of the transformer.

    The noise has 3 % of the output's root mean square.
    """

    def __init__(self, *arguments: Any) -> None:
        self._generator = torch.Generator().manual_seed(SEED)
        super().__init__(*arguments)

    def run(
        self,
        call: Call,
        window: Window,
        generation: Generation,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        def noisy(*args: Any, **kwargs: Any) -> Any:
            output = forward(*args, **kwargs)
            tensors = (_with_noise(tensor, self._generator) for tensor in tensors_of(output))
            return build_output(tuple(tensors), type(output))

        return super().run(call, window, generation, noisy, args, kwargs)  # type: ignore[misc]


def _with_noise(tensor: Tensor, generator: torch.Generator) -> Tensor:
    size = NOISE * tensor.float().square().mean().sqrt()
    drawn = torch.randn(tensor.shape, generator=generator).to(tensor.device)
    return (tensor + size * drawn).to(tensor.dtype)


@dataclass(frozen=True)
class Failure:
    """A failure of the engine or of the choice of full steps; with neither `mixin` nor `steps`, nothing fails.

    Attributes:
        mixin: base class that makes an `Engine` fail, such as `WrongSigmas`.
        steps: indices of the full steps that replace the policy of the configuration; empty keeps the policy.
    """

    name: str
    mixin: type | None = None
    steps: tuple[int, ...] = ()

    def attach(
        self, pipe: DiffusionPipeline, config: GalaxyDiTConfig, *, guarded: bool
    ) -> AbstractContextManager[Acceleration]:
        """Attach the plugin with this configuration and the failure until the returned context manager ends.

        The context manager yields the `Acceleration`. Without `guarded`, no slope is given up.
        """
        if self.steps:
            config = replace(config, policy=FixedSteps(self.steps))
        bases = (Engine,) if guarded else (UnguardedEngine,)
        kind = type("FailingEngine", (self.mixin, *bases), {}) if self.mixin else bases[0]
        return Acceleration(pipe, config, engine=partial(kind))


NONE = Failure("none")
FAILURES = (
    Failure("wrong sigmas", WrongSigmas),
    Failure("noise", NoisyOutputs),
    Failure("TaylorSeer's steps", steps=TAYLORSEER_STEPS),
)
