"""The decision of a call: its samples, their distances, and a controller for each, which asks the policy."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from galaxydit.families import CONCATENATED, Family
from galaxydit.policies.config import Controller, GalaxyDiTConfig
from galaxydit.proxies import relative_l1
from galaxydit.runtime.call import Call
from galaxydit.runtime.samples import are_divisible, sample_count
from galaxydit.torch_compile import beside_the_model


def divide(call: Call, family: Family, inputs: Mapping[str, Any], *, by_sample: bool) -> bool:
    """Find the samples and the conditional half of a call whose proxy is read.

    Returns whether some samples can be computed without the others. Their number is that of the first call of the
    generation.
    """
    latent, state = call.latent, call.state
    if family.branches == CONCATENATED and len(latent) % 2 == 0:
        # Guidance doubles the batch with the same latents, so the input itself shows whether there is guidance.
        call.conditional_half = torch.equal(*latent.chunk(2))
    if by_sample:
        state.samples = state.samples or sample_count(latent, family)
        if len(latent) % state.samples == 0:
            call.samples = tuple(range(state.samples))
    if call.decisions and len(call.decisions) != len(call.samples):
        call.decisions = (min(call.decisions, key=lambda decision: decision.reuse),) * len(call.samples)
    call.is_divisible = len(call.samples) == 1 or are_divisible(inputs, len(latent))
    return call.is_divisible


def distances_of(call: Call, current: Tensor, previous: Tensor | None, group: Any | None) -> tuple[float, ...]:
    """The largest distance in the rows of each sample; where one decision serves all, that of the hardest sample.

    Empty without a previous tensor of the same shape.
    """
    if previous is None or previous.shape != current.shape:
        return ()
    distances, samples = relative_l1(current, previous, group), len(call.samples)
    if len(distances) % len(call.latent):
        return (float(distances.max()),) * samples
    rows = distances.view(len(call.latent), -1).amax(dim=1).view(-1, samples)
    if call.conditional_half and len(rows) > 1:
        rows = rows[len(rows) // 2 :]
    return tuple(rows.amax(dim=0).tolist())


@beside_the_model
def decide(call: Call, config: GalaxyDiTConfig, distances: tuple[float, ...]) -> None:
    """Decide the step for each sample of a call; without `distances` none was measured."""
    state, generation, is_joint = call.state, call.generation, call.scope != call.branch
    branches = {branch for branch, _ in state.history if is_joint} or {call.branch}
    errors = {key: error for key, error in state.errors.items() if is_joint or key[0] == call.branch}
    decisions = []
    for sample, distance in zip(call.samples, distances or (None,) * len(call.samples), strict=True):
        controller = state.controllers.setdefault((call.scope, sample), Controller(config))
        has_history = all(state.history.get((branch, sample)) for branch in branches)
        error = max((error for (_, other), error in errors.items() if other == sample), default=None)
        decision = controller.decide(
            call.info.step, call.info.steps, distance, has_history, generation.sigmas, error, generation.first
        )
        decisions.append(decision)
    call.distances = distances
    call.decisions = state.decisions[call.scope] = tuple(decisions)
    for key in errors:
        del state.errors[key]
