"""Measure error propagation: reuse a few steps of a recorded generation and see how far the final latent moves.

The sensitivity at a noise level is the rms change of the final latent / the rms error that reuse introduced there.
"""

import math
from collections.abc import Sequence
from statistics import fmean, median

from diffusers import DiffusionPipeline

from galaxydit.calibration.recording import Recording, round_digits
from galaxydit.calibration.replay import Outputs, Replay, answering
from galaxydit.calibration.schedule_error import ScheduleError
from galaxydit.pipelines.generate import GeneratedVideo, generate
from galaxydit.profiles.evidence import ErrorPropagation

INTERVALS = ((0.04, 0.16), (0.24, 0.4), (0.5, 0.8))  # shares of the steps
PRIOR = (24.0, 6.0, 2.2)  # sensitivity in each interval before anything is measured
PRIOR_SAMPLES = 4
SENSITIVITIES = (1e-4, 1e4)  # allowed range; beyond it an error has vanished or destroyed the video

Perturbation = tuple[int, float, float]
"""Index of the interval in `INTERVALS`, mean noise level of its reused steps, and the sensitivity measured there."""


def perturbed_schedule(steps: int, interval: tuple[float, float], switch: int = 0) -> tuple[int, ...]:
    """The full steps of a schedule that reuses every other step of `interval`, its ends as shares of the steps.

    The first two steps, the last and `switch`, the first one of a second transformer, are full.
    """
    first = min(max(2, round(interval[0] * steps)), steps - 2)
    reused = range(first, min(max(first + 1, round(interval[1] * steps)), steps - 1), 2)
    places = {step + 1 if step == switch else step for step in reused}
    return tuple(step for step in range(steps) if step not in places)


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
    introduced = float(ScheduleError([recording], corrects=False).final_error(schedule, ErrorPropagation())[0])
    sensitivity = math.sqrt(final / introduced) if introduced > 0 else 1.0
    sigma = fmean(recording.sigmas[step] for step in reused)
    return interval, sigma, min(max(sensitivity, SENSITIVITIES[0]), SENSITIVITIES[1])


def propagation_of(perturbations: Sequence[Perturbation]) -> ErrorPropagation:
    """The sensitivity of each interval at its mean noise level; 1 at sigma 0, where no step is left.

    Samples differ by a factor of 30 and some sit on a fork, so the median of the logarithms counts, shrunk towards
    `PRIOR` as if that were `PRIOR_SAMPLES` samples. Intervals of one mean noise level count as one.
    """
    logs: dict[float, list[float]] = {0.0: [0.0]}
    for interval in {interval for interval, _, _ in perturbations}:
        measured = [(sigma, math.log(value)) for index, sigma, value in perturbations if index == interval]
        own, prior = median(log for _, log in measured), math.log(PRIOR[interval])
        shrunk = (len(measured) * own + PRIOR_SAMPLES * prior) / (len(measured) + PRIOR_SAMPLES)
        logs.setdefault(round_digits(fmean(sigma for sigma, _ in measured)), []).append(shrunk)
    levels = sorted(logs, reverse=True)
    return ErrorPropagation(tuple(levels), tuple(round_digits(math.exp(fmean(logs[level])), 5) for level in levels))
