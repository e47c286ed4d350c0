"""Decide a call: each sample, which is one video of the batch, independently of the others, or the batch as a whole.
A place is a position in `Call.samples`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from galaxydit.context_parallel import agree, token_group
from galaxydit.families import CONCATENATED, FAMILIES, Family
from galaxydit.policies.policy import Controller, Observation
from galaxydit.proxies import distance_of
from galaxydit.runtime.call import Call
from galaxydit.runtime.full_compute import confirm_continuity
from galaxydit.runtime.guidance import may_be_guided
from galaxydit.runtime.rows import are_divisible, rows_of, sample_count, take_rows
from galaxydit.runtime.session import Session
from galaxydit.torch_compile import beside_the_model


class Samples:
    """Divides the batch of a call into samples, and decides each; with `whole_batches`, one decision serves all."""

    def __init__(self, transformer: nn.Module, family: Family, session: Session, *, whole_batches: bool) -> None:
        self._transformer, self._family, self._session, self._config = transformer, family, session, session.config
        # Of an unknown family it is not known which rows are branches of one sample.
        is_known, reads_proxy = family.class_name in FAMILIES, self._config.policy.reads_proxy
        is_own = not isinstance(self._config.reuse, str)
        self._by_sample = self._config.per_sample and reads_proxy and is_known and not is_own and not whole_batches

    def _joins_branches(self) -> bool:
        """Whether a batch may hold several branches. Without guidance, equal latents are those of prompts with the same
        seed."""
        source = self._session.source
        return self._family.branches == CONCATENATED and (not source.may_be_running or may_be_guided(source.pipe))

    def divide(self, call: Call, inputs: Mapping[str, Any]) -> None:
        """Set `samples` and `is_divisible` of a call. Decisions made for another number of samples become one: to
        compute, if any of them is."""
        latent, state = call.latent, call.state
        if self._by_sample:
            state.samples = state.samples or (sample_count(latent) if self._joins_branches() else len(latent))
            if len(latent) % state.samples == 0:
                call.samples = tuple(range(state.samples))
        if call.decisions and len(call.decisions) != len(call.samples):
            call.decisions = (min(call.decisions, key=lambda decision: decision.reuse),) * len(call.samples)
        call.is_divisible = len(call.samples) == 1 or are_divisible(inputs, len(latent))
        if not call.is_divisible:
            self._session.warn_and_note(
                "it is not known how to divide the inputs of this model among the samples of a batch, so a step that "
                "one sample needs is computed for all"
            )

    def decide(self, call: Call, proxy: Tensor | None = None) -> None:
        """Decide the step for each sample of a call; `proxy` is None for a policy that reads none."""
        state, generation, is_joint = call.state, call.generation, call.is_joint
        distances = None
        if proxy is not None:
            previous, state.proxies[call.scope] = state.proxies.get(call.scope), proxy
            distances = self._distances(call, proxy, previous)
        branches = {call.branch}
        if is_joint and call.is_guided is not False:
            branches = call.trajectory.expected_branches(call.component)
        elif is_joint:  # the pipeline says that it guides no more
            branches = call.trajectory.branches(call.component, 1)
        comes_back = is_joint and call.is_guided is True and state.was_guided is False  # a branch without a full step
        due = {key: error for key, error in state.errors.items() if is_joint or key[0] == call.branch}
        call.distances, errors = _read(distances, due)
        decisions = []
        for sample, distance in zip(call.samples, call.distances or (None,) * len(call.samples), strict=True):
            own = state.history.get((call.branch, sample))
            new = Controller(self._config.policy, self._config.limits)
            observation = Observation(
                step=call.info.step,
                steps=call.info.steps,
                distance=distance,
                has_history=call.trajectory.is_certain and not comes_back and state.can_reuse(branches, sample),
                sigmas=generation.sigmas,
                error=max((error for (_, other), error in errors.items() if other == sample), default=None),
                first=generation.first,
                branch=call.branch,
                guidance_scale=call.trajectory.guidance_scale,
                measured=own[-1].measured if own else {},
            )
            decisions.append(state.controllers.setdefault((call.scope, sample), new).decide(observation))
        agreed = tuple(decisions)
        if proxy is not None:
            agreed = agree(self._transformer, agreed, call.has_history)
        call.decisions = state.decisions[call.scope] = agreed
        for key in errors:
            del state.errors[key]
        confirm_continuity(self._session, call)

    def _distances(self, call: Call, current: Tensor, previous: Tensor | None) -> Tensor | None:
        """For each sample, the largest distance of the proxy among its (conditional) rows, on the device; where one
        decision serves the batch, among all rows. None without a previous tensor of the same shape."""
        if previous is None or previous.shape != current.shape:
            return None
        distances = distance_of(self._config.watched, current, previous, token_group(self._transformer))
        samples = len(call.samples)
        if len(distances) % len(call.latent):
            return distances.max().expand(samples)
        rows = distances.view(len(call.latent), -1).amax(dim=1).view(-1, samples)
        if len(rows) == 1 or len(call.latent) % 2 or not self._joins_branches():
            return rows.amax(dim=0)
        # Guidance doubles the batch with the same latents, so the input itself shows whether there is guidance.
        first, second = call.latent.chunk(2)
        is_guided = (first == second).all().to(rows.device)
        return torch.where(is_guided, rows[len(rows) // 2 :].amax(dim=0), rows.amax(dim=0))


def _read(
    distances: Tensor | None, errors: Mapping[tuple[str, int], Tensor]
) -> tuple[tuple[float, ...], dict[tuple[str, int], float]]:
    """The values of both, for which the host waits once; no distances for None."""
    parts = [] if distances is None else [distances]
    parts += [error.to(parts[0].device if parts else error.device).reshape(1) for error in errors.values()]
    values = torch.cat(parts).tolist() if parts else []
    count = len(values) - len(errors)
    return tuple(values[:count]), dict(zip(errors, values[count:], strict=True))


@beside_the_model
def split(call: Call) -> list[tuple[Call, list[int]]]:
    """The call of the computed samples and that of the reused samples of a mixed batch, with the batch rows of each."""
    parts, count = [], len(call.latent)
    for is_reused in (False, True):
        places = [place for place, reused in enumerate(call.reused) if reused is is_reused]
        rows = rows_of(places, len(call.samples), count)
        part = replace(
            call,
            latent=take_rows(call.latent, rows, count),
            samples=tuple(call.samples[place] for place in places),
            has_history=tuple(call.has_history[place] for place in places),
            decisions=tuple(call.decisions[place] for place in places),
            distances=tuple(call.distances[place] for place in places) if call.distances else (),
            first_output=None if is_reused else take_rows(call.first_output, rows, count),
            block_input=None,
            residual=None,
            parts=[],
        )
        parts.append((part, rows))
    call.parts, call.first_output = [part for part, _ in parts], None
    return parts
