"""Decide a call: each sample of its batch independently of the others, or the whole batch as one sample.

A sample is one video of the batch. A batch of n samples has the rows of sample i at i, i + n, i + 2 n and so on: one
row for each guidance branch that the pipeline concatenates. A place is a position in `Call.samples`. The engine uses
one class of this file, `Samples`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from galaxydit.config import GalaxyDiTConfig
from galaxydit.context_parallel import agree, token_group
from galaxydit.families import CONCATENATED, FAMILIES, Family
from galaxydit.policies.policy import Controller, Observation
from galaxydit.proxies import PROXIES, distance_of
from galaxydit.runtime.call import Call, LeaveForward
from galaxydit.runtime.guidance import may_be_guided
from galaxydit.torch_compile import around_the_model, beside_the_model


class Samples:
    """Divides the batch of a call into samples, decides each sample, and computes the samples that need a full step.

    `pipe` is the pipeline, or the transformer itself where there is none. `confirm` is called with a decided call. With
    `whole_batches`, one decision serves the batch.
    """

    def __init__(
        self,
        transformer: nn.Module,
        family: Family,
        config: GalaxyDiTConfig,
        pipe: Any,
        confirm: Callable[[Call], None],
        *,
        whole_batches: bool,
    ) -> None:
        self._transformer, self._family, self._config, self._pipe = transformer, family, config, pipe
        self._proxy, self._confirm = PROXIES[config.proxy], confirm
        # Of an unknown family it is not known which rows are branches of one sample.
        is_known = family.class_name in FAMILIES
        self._by_sample = config.per_sample and config.policy.reads_proxy and is_known and not whole_batches

    def divide(self, call: Call, inputs: Mapping[str, Any]) -> bool:
        """Set three attributes of a call. `samples` are the indices of the samples with decisions of their own.
        `conditional_half` says whether distances are measured only on the second half of the batch, the conditional
        branch. `is_divisible`, which is also returned, says whether some samples can be computed without the others.

        `inputs` are the transformer's arguments by name. The number of samples is that of the generation's first call.
        If the decisions already made for the step are of another number of samples, one of them replaces all: to
        compute, if any of them is, else to reuse. Meant for policies that read a proxy.
        """
        latent, state = call.latent, call.state
        # Without guidance, equal latents are those of prompts with the same seed.
        is_joined = self._family.branches == CONCATENATED and may_be_guided(self._pipe)
        if is_joined and len(latent) % 2 == 0:
            # Guidance doubles the batch with the same latents, so the input itself shows whether there is guidance.
            first, second = latent.chunk(2)
            call.conditional_half = (first == second).all()
        if self._by_sample:
            state.samples = state.samples or (sample_count(latent) if is_joined else len(latent))
            if len(latent) % state.samples == 0:
                call.samples = tuple(range(state.samples))
        if call.decisions and len(call.decisions) != len(call.samples):
            call.decisions = (min(call.decisions, key=lambda decision: decision.reuse),) * len(call.samples)
        call.is_divisible = len(call.samples) == 1 or are_divisible(inputs, len(latent))
        return call.is_divisible

    def decide(self, call: Call, proxy: Tensor | None = None) -> None:
        """Decide the step for each sample of a call, and store the decisions and distances in the call.

        `proxy` is the proxy's tensor in this step; None for a policy that reads no proxy.
        """
        state, generation, is_joint = call.state, call.generation, call.scope != call.branch
        distances = None
        if proxy is not None:
            previous, state.proxies[call.scope] = state.proxies.get(call.scope), proxy
            distances = self._distances(call, proxy, previous)
        branches = self._expected_branches(call) if is_joint else {call.branch}
        comes_back = is_joint and call.is_guided is True and state.was_guided is False  # a branch without a full step
        due = {key: error for key, error in state.errors.items() if is_joint or key[0] == call.branch}
        call.distances, errors = _read(distances, due)
        decisions = []
        for sample, distance in zip(call.samples, call.distances or (None,) * len(call.samples), strict=True):
            key = (call.scope, sample)
            if key not in state.controllers:
                state.controllers[key] = Controller(self._config.policy, self._config.limits)
            observation = Observation(
                step=call.info.step,
                steps=call.info.steps,
                distance=distance,
                has_history=call.trajectory.is_certain and not comes_back and state.can_reuse(branches, sample),
                sigmas=generation.sigmas,
                error=max((error for (_, other), error in errors.items() if other == sample), default=None),
                first=generation.first,
            )
            decisions.append(state.controllers[key].decide(observation))
        agreed = tuple(decisions)
        if proxy is not None:
            agreed = agree(self._transformer, agreed, call.has_history)
        call.decisions = state.decisions[call.scope] = agreed
        for key in errors:
            del state.errors[key]
        self._confirm(call)

    @staticmethod
    def _expected_branches(call: Call) -> set[str]:
        """The branches that the step will have: those of the last steps, unless the pipeline says that it guides no
        more.
        """
        if call.is_guided is not False:
            return call.trajectory.expected_branches(call.component)
        return {branch for component, branch in call.trajectory.seen[-1] if component == call.component}

    def _distances(self, call: Call, current: Tensor, previous: Tensor | None) -> Tensor | None:
        """For each sample, the largest distance of the proxy among the sample's rows, on the device; where one decision
        serves the batch, among all rows.

        With `call.conditional_half`, only conditional rows count. None without a previous tensor of the same shape.
        """
        if previous is None or previous.shape != current.shape:
            return None
        distances, samples = (
            distance_of(self._proxy, current, previous, token_group(self._transformer)),
            len(call.samples),
        )
        if len(distances) % len(call.latent):
            return distances.max().expand(samples)
        rows = distances.view(len(call.latent), -1).amax(dim=1).view(-1, samples)
        largest = rows.amax(dim=0)
        if call.conditional_half is None or len(rows) == 1:
            return largest
        return torch.where(call.conditional_half.to(rows.device), rows[len(rows) // 2 :].amax(dim=0), largest)

    @staticmethod
    def leave_if_mixed(call: Call, first_output: Any, blocks_run: float) -> None:
        """Raise LeaveForward if only some samples are computed. The call then stores `first_output`, the output of the
        first block (None before it ran), and `blocks_run`, the number of blocks that ran.
        """
        if call.is_mixed:
            call.first_output, call.blocks_run = first_output, blocks_run
            raise LeaveForward

    @around_the_model
    def run_parts(
        self,
        call: Call,
        run: Callable[[Call, Callable[[], Any]], tuple[Tensor, ...]],
        forward: Callable[..., Any],
        inputs: Mapping[str, Any],
    ) -> tuple[Tensor, ...]:
        """The outputs of all rows of a call whose decisions (`call.decisions`) compute some samples and reuse others.

        The call is split into a call of the computed samples and one of the reused samples. For each of the two, `run`
        receives this smaller call and its forward pass, and returns its outputs. `forward` takes the `inputs` of the
        whole call by name.
        """
        reused, count = call.reused, len(call.latent)
        places = [[place for place, is_reused in enumerate(reused) if is_reused == kind] for kind in (False, True)]
        rows = [rows_of(each, len(reused), count) for each in places]
        call.parts = [_part_of(call, each) for each in places]
        call.first_output = None
        outputs = [
            run(part, partial(forward, **take_inputs(inputs, taken, count)))
            for part, taken in zip(call.parts, rows, strict=True)
        ]
        return join_rows(outputs, rows)


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
def _part_of(call: Call, places: list[int]) -> Call:
    """The call of the samples at these places alone, which are all computed or all reused."""
    rows, count = rows_of(places, len(call.samples), len(call.latent)), len(call.latent)
    return replace(
        call,
        latent=take_rows(call.latent, rows, count),
        samples=tuple(call.samples[place] for place in places),
        has_history=tuple(call.has_history[place] for place in places),
        decisions=tuple(call.decisions[place] for place in places),
        distances=tuple(call.distances[place] for place in places) if call.distances else (),
        first_output=None if call.reused[places[0]] else take_rows(call.first_output, rows, count),
        before=None,
        residual=None,
        parts=[],
    )


def sample_count(latent: Tensor) -> int:
    """Number of samples in `latent`: half of its rows if both halves of the batch are equal, else a third if the three
    thirds are equal, else all rows. Guidance with all branches in one batch repeats the samples in this way.
    """
    rows = len(latent)
    for branches in (2, 3):
        if rows % branches == 0:
            first, *others = latent.chunk(branches)
            if all(torch.equal(first, other) for other in others):
                return rows // branches
    return rows


def rows_of(places: Sequence[int], count: int, rows: int) -> list[int]:
    """Indices of the rows that belong to the samples at these places, in a batch of `count` samples and `rows` rows."""
    chosen = set(places)
    return [row for row in range(rows) if row % count in chosen]


def take_rows(value: Any, rows: list[int], count: int) -> Any:
    """Select rows of a tensor, or of each tensor of a tuple, in a batch of `count` rows; None if that is impossible.

    `rows` are indices. A tensor may hold several entries for each row of the batch, next to each other.
    """
    if isinstance(value, tuple):
        taken = tuple(take_rows(item, rows, count) for item in value)
        return None if any(item is None for item in taken) else taken
    if not isinstance(value, Tensor) or value.ndim == 0 or len(value) % count:
        return None
    index = torch.tensor(rows, device=value.device)
    return value.unflatten(0, (count, -1)).index_select(0, index).flatten(0, 1)


@beside_the_model
def take_inputs(inputs: Mapping[str, Any], rows: list[int], count: int) -> dict[str, Any]:
    """The inputs of a call for some rows of its batch: tensors with `count` rows keep only `rows`, a list of indices;
    other inputs are unchanged, and so are vectors whose names contain "indices", "rope", "rotary" or "scale", because
    these have entries for positions or layers.

    `encoder_hidden_states_image` may have several images for each row, next to each other, such as a first and a last
    frame; all images of the rows in `rows` are kept.
    """
    return {
        name: take_rows(value, rows, count)
        if (_has_rows(value, count) and not (value.ndim == 1 and _is_shared(name)))
        or (name == "encoder_hidden_states_image" and isinstance(value, Tensor) and len(value) % count == 0)
        else value
        for name, value in inputs.items()
    }


def are_divisible(inputs: Mapping[str, Any], count: int) -> bool:
    """Whether `take_inputs` can divide a batch of `count` rows: no list, tuple or mapping in `inputs` holds tensors of
    `count` rows, which `take_inputs` would not divide.

    Arguments whose names contain "indices", "rope", "rotary" or "scale" are exempt, because the first dimension of
    their tensors counts positions or layers.
    """
    for name, value in inputs.items():
        held = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
        if not _is_shared(name) and any(_has_rows(item, count) for item in held):
            return False
    return True


def join_samples(tensors: Sequence[Tensor]) -> Tensor:
    """Interleave the tensors of all samples, each `(branches, ...)`, into one batch."""
    return tensors[0] if len(tensors) == 1 else torch.stack(tuple(tensors), dim=1).flatten(0, 1)


@beside_the_model
def join_rows(parts: Sequence[Sequence[Tensor]], rows: Sequence[Sequence[int]]) -> tuple[Tensor, ...]:
    """Put the outputs of several calls back into the order of the batch; `rows` are the batch rows of each call."""
    order = torch.tensor([row for part in rows for row in part], device="cpu")
    outputs = [torch.cat(tensors) for tensors in zip(*parts, strict=True)]
    return tuple(output.index_select(0, order.argsort().to(output.device)) for output in outputs)


def _has_rows(value: Any, count: int) -> bool:
    return isinstance(value, Tensor) and value.ndim > 0 and len(value) == count


def _is_shared(name: str) -> bool:
    """Whether the first dimension of the transformer's argument `name` counts positions or layers, not batch rows."""
    return any(word in name for word in ("indices", "rope", "rotary", "scale"))
