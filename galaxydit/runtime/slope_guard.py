"""Tell where predictions along the slope fail, so that they repeat the last full step instead."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from galaxydit.config import GalaxyDiTConfig
from galaxydit.context_parallel import sum_over, token_group
from galaxydit.extrapolation import CachedStep, predict
from galaxydit.runtime.history import History, StreamKey
from galaxydit.runtime.latents import HostCopy
from galaxydit.runtime.streams import Part
from galaxydit.runtime.work import Work
from galaxydit.torch_compile import beside_the_model

WORSE = 3.0  # times the error of order 0 (root mean square), from which on order 1 has failed at a full step
FAILURES = 3  # so many of them, and the slope is not followed
AMONG = 8  # last full steps among which failures are counted
SAMPLED = 2**16  # values of a cached tensor
GIVEN_UP = (
    f"predictions of order 1 erred more than {WORSE:g} times as much as those of order 0 at {FAILURES} of "
    f"{AMONG} full steps, so reused steps repeat the last full step until it does so less often"
)


class SlopeGuard:
    """Compares predictions of full steps of order 1 and 0, for each stream by itself."""

    def __init__(self, transformer: nn.Module, config: GalaxyDiTConfig) -> None:
        self._transformer = transformer
        self._config = config

    @beside_the_model
    def allows(self, work: Work, video: int, stream: int = 0) -> bool:
        """Whether predictions may follow the slope: it failed at less than `FAILURES` of the last `AMONG` full steps of
        each branch in the scope. The host waits for the errors of the newest full step only where they decide.
        """
        newest = work.history.steps[work.call.branch, video][-1].step
        # Errors that were read already may decide; each further reading makes the host wait.
        for until in (0, newest, work.call.info.step):
            _judge(work.history, until)
            if _most_failures(work, video, stream) < FAILURES:
                return True
        return False

    def measure(
        self, work: Work, past: tuple[CachedStep, ...], rows: Tensor, video: int, parts: Sequence[Part]
    ) -> None:
        """Keep the errors with which the steps before predict `rows`, the tensor of a full step."""
        of_parts = [self._errors(work, past, rows, part) for part in parts]
        errors = sum_over(token_group(self._transformer), torch.stack(of_parts))
        keys = tuple((work.call.branch, video, part.stream) for part in parts)
        work.history.slope_errors.append((work.call.info.step, keys, HostCopy(errors)))

    def _errors(self, work: Work, past: tuple[CachedStep, ...], rows: Tensor, part: Part) -> Tensor:
        """Squared errors of predictions of one stream of order 1 and 0, summed over sampled values, `(2,)`."""
        config = self._config
        sampled = tuple(step._replace(tensor=_sampled(step.tensor)) for step in part.history(past))
        sigma = part.sigma(work.call.info)
        sloped = predict(sampled, sigma, 1, config.slope, config.largest_ahead)
        repeated = predict(sampled, sigma, 0)
        errors = torch.stack([sloped, repeated]) - _sampled(part.of(rows))
        return errors.square().sum(1)


def _most_failures(work: Work, video: int, stream: int) -> int:
    """Number of failures in one branch of the scope, the largest, if all full steps that are not judged failed."""
    failed = work.history.slope_failures
    unread: list[StreamKey] = []
    for step, keys, _ in work.history.slope_errors:
        if step < work.call.info.step:
            unread.extend(keys)
    most = 0
    for key in {*failed, *unread}:
        branch, other_video, other_stream = key
        if (other_video, other_stream) != (video, stream):
            continue
        if work.is_joint or branch == work.call.branch:
            most = max(most, sum(failed.get(key, ())) + unread.count(key))
    return most


def _judge(history: History, until: int) -> None:
    """Read the errors of the full steps before the step `until`."""
    due = [entry for entry in history.slope_errors if entry[0] < until]
    if not due:
        return
    history.slope_errors = history.slope_errors[len(due) :]
    judged: list[StreamKey] = []
    tensors = []
    for _, keys, copy in due:
        judged.extend(keys)
        tensors.append(copy.tensor())
    errors = torch.cat(tensors).tolist()  # read at once
    for key, (sloped, repeated) in zip(judged, errors, strict=True):
        failed = sloped > WORSE**2 * repeated
        history.slope_failures[key] = (*history.slope_failures.get(key, ()), failed)[-AMONG:]


def _sampled(tensor: Tensor) -> Tensor:
    """At most `SAMPLED` values, flat, in float32; the stride is coprime to the last axis to sample all columns."""
    stride = -(-tensor.numel() // SAMPLED)
    while math.gcd(stride, tensor.shape[-1]) > 1:
        stride += 1
    return tensor.detach().flatten()[::stride].float()
