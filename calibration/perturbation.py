"""Measure error propagation: reuse a few steps of a recorded generation and see how far the final latent moves.

The sensitivity at a noise level is the rms change of the final latent / the rms error that reuse introduced there.
Before the first reused step, stored outputs stand in for the transformer calls.
"""

import math
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any

from diffusers import DiffusionPipeline
from torch import Tensor, nn

from galaxydit.calibration.recording import Recording, round_digits
from galaxydit.calibration.search import ScheduleError
from galaxydit.extrapolation import slope_ahead
from galaxydit.pipelines.generate import GeneratedVideo, generate
from galaxydit.profiles.evidence import ErrorPropagation
from galaxydit.runtime.outputs import build_output, tensors_of
from galaxydit.runtime.recognition import transformers_of
from galaxydit.runtime.registration import HookSet, PluginHook

INTERVALS = ((0.04, 0.16), (0.24, 0.4), (0.5, 0.8))  # shares of the steps
PRIOR = (24.0, 6.0, 2.2)  # sensitivity in each interval before anything is measured
PRIOR_SAMPLES = 4
SENSITIVITIES = (1e-4, 1e4)  # allowed range; beyond it an error has vanished or destroyed the video

Perturbation = tuple[int, float, float]
"""Index of the interval in `INTERVALS`, mean noise level of its reused steps, and the sensitivity measured there."""


@dataclass
class Outputs:
    """The outputs of all transformer calls of a generation, in CPU memory, and the step of each call."""

    tensors: list[tuple[Tensor, ...]] = field(default_factory=list)
    steps: Sequence[int] = ()  # filled after the generation
    kind: type = tuple

    def keep(self, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        output = forward(*args, **kwargs)
        kept = [tensor.detach().cpu() for tensor in tensors_of(output)]
        self.tensors.append(tuple(kept))
        self.kind = type(output)
        return output


class Replay:
    """Answers transformer calls: stored outputs before step `start`, order 1 in the steps `reused`, else the model.

    Order 1 extrapolates the last two full steps. The calls of a step are matched by their place within it.
    """

    def __init__(self, kept: Outputs, sigmas: Sequence[float], start: int, reused: Collection[int]) -> None:
        self.kept = kept
        self.sigmas = sigmas
        self.start = start
        self.reused = reused
        self.calls = 0
        # by the call's place, the step and the outputs of the last two
        self.full = defaultdict[int, deque[tuple[int, tuple[Tensor, ...]]]](lambda: deque(maxlen=2))

    def answer(self, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        call = self.calls
        self.calls += 1
        step = self.kept.steps[call]
        full = self.full[call - self.kept.steps.index(step)]
        if step in self.reused:
            (older, before), (newest, last) = full
            ahead = slope_ahead(self.sigmas[step], self.sigmas[newest], self.sigmas[older])
            predicted = []
            for a, b in zip(before, last, strict=True):
                predicted.append(b + ahead * (b - a))
            return build_output(tuple(predicted), self.kept.kind)
        if step < self.start:
            device = next(value.device for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
            tensors = tuple(tensor.to(device) for tensor in self.kept.tensors[call])
            output = build_output(tensors, self.kept.kind)
        else:
            output = forward(*args, **kwargs)
            tensors = tensors_of(output)
        full.append((step, tensors))
        return output


class _Hook(PluginHook):
    name = "galaxydit_replay"

    def __init__(self, answer: Callable[..., Any]) -> None:
        super().__init__()
        self.answer = answer

    def new_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        forward = self.fn_ref.original_forward
        if self.removed:
            return forward(*args, **kwargs)
        return self.answer(forward, *args, **kwargs)


@contextmanager
def answering(pipe: DiffusionPipeline, answer: Callable[..., Any]) -> Iterator[None]:
    """Within the context, `answer(forward, *args, **kwargs)` replaces `forward` of every transformer."""
    hooks = HookSet()
    for transformer in transformers_of(pipe).values():
        hooks.add(transformer, _Hook(answer), is_root=True)
    try:
        yield
    finally:
        hooks.remove()


def perturbed_schedule(steps: int, interval: tuple[float, float], switch: int = 0) -> tuple[int, ...]:
    """The full steps of a schedule that reuses every other step of `interval`, its ends as shares of the steps.

    The first two steps, the last and `switch`, the first one of a second transformer, are full.
    """
    first = min(max(2, round(interval[0] * steps)), steps - 2)
    end = min(max(first + 1, round(interval[1] * steps)), steps - 1)
    reused = set(range(first, end, 2))
    if switch in reused:
        reused.remove(switch)
        reused.add(switch + 1)
    return tuple(step for step in range(steps) if step not in reused)


def perturb(
    pipe: DiffusionPipeline, recording: Recording, plain: GeneratedVideo, outputs: Outputs, interval: int
) -> Perturbation:
    """Repeat a recorded generation with order 1 in `INTERVALS[interval]`, and measure the sensitivity there."""
    schedule = perturbed_schedule(recording.steps, INTERVALS[interval], recording.switch)
    reused = sorted(set(range(recording.steps)) - set(schedule))
    replay = Replay(outputs, recording.sigmas, reused[0], reused)
    with answering(pipe, replay.answer):
        changed = generate(pipe, recording.prompt, plain.settings, recording.seed, decode=False)
    final = float((changed.latents - plain.latents).square().mean())
    # The final latent is the first stream's.
    shares = (1.0, *[0.0] * len(recording.further))
    model = ScheduleError([recording], corrects=False, shares=shares)
    # Without propagation, this is the error that reuse introduces.
    introduced = float(model.final_error(schedule, ErrorPropagation())[0])
    sensitivity = 1.0
    if introduced > 0:
        sensitivity = math.sqrt(final / introduced)
    sigma = fmean(recording.sigmas[step] for step in reused)
    return interval, sigma, min(max(sensitivity, SENSITIVITIES[0]), SENSITIVITIES[1])


def propagation_of(perturbations: Sequence[Perturbation]) -> ErrorPropagation:
    """The sensitivity of each interval at its mean noise level; 1 at sigma 0, where no step is left.

    Samples differ by a factor of 30 and some sit on a fork, so the median of the logarithms counts, shrunk towards
    `PRIOR` as if that were `PRIOR_SAMPLES` samples. Intervals of one mean noise level count as one.
    """
    logs: dict[float, list[float]] = {0.0: [0.0]}
    for interval in {interval for interval, _, _ in perturbations}:
        sigmas = []
        measured = []
        for index, sigma, sensitivity in perturbations:
            if index == interval:
                sigmas.append(sigma)
                measured.append(math.log(sensitivity))
        # The prior counts as so many samples.
        prior = math.log(PRIOR[interval])
        shrunk = (len(measured) * median(measured) + PRIOR_SAMPLES * prior) / (len(measured) + PRIOR_SAMPLES)
        logs.setdefault(round_digits(fmean(sigmas)), []).append(shrunk)
    levels = sorted(logs, reverse=True)
    sensitivities = [round_digits(math.exp(fmean(logs[level])), 5) for level in levels]
    return ErrorPropagation(tuple(levels), tuple(sensitivities))
