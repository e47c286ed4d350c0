"""What the compared methods that run on the plugin's engine share: summed changes, the reused difference, attaching."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from diffusers import DiffusionPipeline
from torch import Tensor

from galaxydit import GalaxyDiTConfig, Reuse, Threshold
from galaxydit.acceleration import Acceleration
from galaxydit.errors import refusal
from galaxydit.extrapolation import CachedStep
from galaxydit.families import SEPARATE
from galaxydit.pipelines.compute_counter import only_transformer
from galaxydit.pipelines.trial import Attached
from galaxydit.policies.policy import Observation, Policy
from galaxydit.runtime.call import Call
from galaxydit.runtime.recognition import family_of


@dataclass(frozen=True)
class Accumulation(Threshold):
    """Reuse while the costs since the last full step sum to less than `threshold`.

    `cost` returns the cost of reusing a step; below 0 counts as 0, and None computes the step. The first `first` and
    the last `last` steps are computed.
    """

    first: int = 1
    last: int = 0
    cost: Callable[[Observation], float | None] = lambda observation: observation.known_distance

    def change(self, observation: Observation) -> float | None:
        if observation.step < self.first or observation.step >= observation.steps - self.last:
            return None
        cost = self.cost(observation)
        return None if cost is None else max(0.0, cost)


class Difference(Reuse):
    """Adds output - latent of the last full step to the latent."""

    def side(self, call: Call) -> Tensor:
        return call.latent.detach()

    def predict(self, call: Call, past: Sequence[CachedStep]) -> Tensor:
        return call.latent.detach() + (past[-1].tensor - past[-1].side)


@contextmanager
def attached(pipe: DiffusionPipeline, policy: Policy, **options: Any) -> Iterator[Attached]:
    """Within the context, a WanPipeline generates under a policy without limits, correction and order, but with these
    `options` of `GalaxyDiTConfig`; by default a reused step adds the block stack's last residual.

    Raises GalaxyDiTError for two transformers, branches in one call, and a transformer that has a cache already.
    """
    check_branches(pipe)
    # The plugin's own limits would change when a compared method computes.
    free = {"warmup": 0.0, "keep_last": 0, "max_consecutive": None, "few_steps": 0, "per_sample": False}
    config = GalaxyDiTConfig(policy, **{**free, "reuse": "residual", "order": 0, "correction": False, **options})
    with Acceleration(pipe, config) as acceleration:
        yield Attached(lambda: acceleration.reports[-1].bytes_held if acceleration.reports else 0)


def check_branches(pipe: DiffusionPipeline) -> None:
    """Raise GalaxyDiTError for two transformers, and for guidance branches that are computed in one call."""
    transformer = only_transformer(pipe)
    if family_of(transformer).branches != SEPARATE:
        expected = "one that is called once per guidance branch, such as Wan's"
        raise refusal("transformer", type(transformer).__name__, expected, "leave this method out")


def mean_size(tensor: Tensor) -> float:
    return float(tensor.abs().mean(dtype=torch.float32))


def share_of_steps(steps: int, share: float) -> int:
    """The number of steps nearest to a share of `steps`, at least 1; it scales numbers given for 50 steps."""
    return max(1, round(steps * share))


def warm_ups(steps: int, share: float) -> list[int]:
    """Candidate numbers of first steps that are computed, largest first: the authors' share of the steps, and 1."""
    return sorted({share_of_steps(steps, share), 1}, reverse=True)
