"""The schedule for models without a profile: full steps are densest at the noise levels where errors cost most."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from galaxydit.errors import check_count, check_number, plain_fields
from galaxydit.policies.policy import Observation
from galaxydit.policies.schedule import Schedule, distinct_steps, moved_to

FLOW_SHIFT = 5.0  # at which the growth of errors was measured
POWER = 1.5  # of the growth of errors
LATE = 0.15  # weight of the late term
HALVINGS = 50  # of the interval that holds the scale of the density
GENERAL_FASTEST = 4.0
"""Largest speedup at which videos show what the schedule is worth (eval/results/compare)."""


@dataclass(frozen=True)
class GeneralSchedule(Schedule):
    """Full steps with a fixed density over noise levels, whatever the model, the scheduler and its flow shift.

    An error of the output, made after the share u of 50 steps at flow shift 5, grows by g until the end (measured on
    Wan2.1-T2V-1.3B, arXiv 2609.36433), and the output changes fastest in the last steps (arXiv 2609.39343). The power
    and the weight of the late term were chosen by videos of wan-tiny.
    """

    sigmas: tuple[float, ...] = ()  # none, because the density places the steps
    warmup_steps: int = 1  # first steps that are always computed, at most all full steps but one

    def __post_init__(self) -> None:
        plain_fields(self)
        check_number("speedup", self.speedup, 1.0)
        check_count("warmup_steps", self.warmup_steps, minimum=0)
        check_count("fewest_steps", self.fewest_steps, minimum=0)

    def planned(self, observation: Observation, count: int, switch: int) -> tuple[int, ...]:
        levels = np.array(observation.noise_levels[observation.first :])
        warm_up = min(max(self.warmup_steps, observation.warmup_steps), count - 1)
        # Share of the steps that reach the noise level at flow shift 5: u = 1 - s.
        share = 1 - levels
        if observation.sigmas:
            share = 1 - unshifted(levels, FLOW_SHIFT)
        growth = 1.214 * (1 - share) ** 3.832 + 0.246
        width = np.diff(share, append=1.0).clip(min=1e-9)
        density = (growth**POWER + LATE * share**4) * width
        density[:warm_up] = 0.0
        wanted = count - warm_up
        reached = np.cumsum(_scaled(density, wanted))
        places = np.searchsorted(reached, np.arange(1, wanted + 1) - 1e-6).tolist()
        return moved_to(switch, distinct_steps([*range(warm_up), *places], len(levels)))


def _scaled(density: NDArray[np.float64], total: int) -> NDArray[np.float64]:
    """The density times a scale, at most 1 a step, with the sum `total`; the scale is found by bisection."""
    low = 0.0
    high = len(density) / density[density > 0].min(initial=np.inf)
    for _ in range(HALVINGS):
        scale = (low + high) / 2
        if np.minimum(1, scale * density).sum() >= total:
            high = scale
        else:
            low = scale
    return np.asarray(np.minimum(1, high * density))


def unshifted(levels: NDArray[np.float64], shift: float) -> NDArray[np.float64]:
    """The noise levels s that a flow shift moves to `levels` = shift s / (1 + (shift - 1) s)."""
    return levels / (shift - (shift - 1) * levels)


def general_schedule(speedup: float, warmup_steps: int = 1) -> Schedule:
    """A schedule for any model, whose full steps are the number of steps divided by `speedup`.

    It computes the first `warmup_steps` steps (at most all full steps but one) and the last step. Raises
    GalaxyDiTError for a speedup below 1 and for a negative warm-up.
    """
    return GeneralSchedule(speedup, warmup_steps=warmup_steps)
