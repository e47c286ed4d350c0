"""Measure how errors propagate: reuse a few steps of a recorded generation, and see how far its end has moved."""

import math
from collections.abc import Sequence
from statistics import fmean

from diffusers import DiffusionPipeline

from galaxydit.acceleration import Acceleration
from galaxydit.calibration.drift import Drift
from galaxydit.calibration.recording import Recording
from galaxydit.config import Config
from galaxydit.pipelines.generate import Generation, generate
from galaxydit.propagation import Propagation

ZONES = ((0.04, 0.16), (0.24, 0.4), (0.5, 0.8))  # shares of the steps; about 2.7 generations' time in all
GAINS = (1e-4, 1e4)  # an error that vanishes or explodes beyond these is as good as one that ends there

Disturbance = tuple[int, float, float]
"""Zone, noise level in its middle, gain measured there."""


def disturbed_schedule(steps: int, zone: tuple[float, float]) -> tuple[int, ...]:
    """The full steps when every other step of a zone is reused. The last stays, and the first two, for order 1."""
    first = min(max(2, round(zone[0] * steps)), steps - 2)
    reused = range(first, min(max(first + 1, round(zone[1] * steps)), steps - 1), 2)
    return tuple(step for step in range(steps) if step not in reused)


def disturb(pipe: DiffusionPipeline, recording: Recording, plain: Generation, zone: int, reuse: str) -> Disturbance:
    """Generate what was recorded once more with a disturbed zone; `plain` is the recorded generation itself."""
    schedule = disturbed_schedule(recording.steps, ZONES[zone])
    with Acceleration(pipe, Config(schedule=schedule, order=1, reuse=reuse)):
        changed = generate(pipe, recording.prompt, plain.settings, recording.seed, decode=False)
    ended = float((changed.latents - plain.latents).square().mean())
    made = float(Drift([recording]).at_the_end(schedule, Propagation())[0])
    gain = math.sqrt(ended / made) if made > 0 else 1.0
    reused = sorted(set(range(recording.steps)) - set(schedule))
    return zone, fmean(recording.sigmas[step] for step in reused), min(max(gain, GAINS[0]), GAINS[1])


def propagation_of(disturbances: Sequence[Disturbance]) -> Propagation:
    """The propagation that follows: for each zone the geometric mean of the gains found in it, and 1 at the end, where
    nothing can grow or fade any more.
    """
    levels = {0.0: 1.0}
    for zone in {zone for zone, _, _ in disturbances}:
        found = [(sigma, math.log(gain)) for number, sigma, gain in disturbances if number == zone]
        levels[fmean(sigma for sigma, _ in found)] = math.exp(fmean(log for _, log in found))
    sigmas = sorted(levels, reverse=True)
    return Propagation(
        tuple(float(f"{sigma:.7g}") for sigma in sigmas), tuple(float(f"{levels[sigma]:.5g}") for sigma in sigmas)
    )
