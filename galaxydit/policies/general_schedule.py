"""The schedule for models without a profile: full steps are densest where errors cost most on Wan2.1."""

import numpy as np

from galaxydit.errors import check_count, check_number
from galaxydit.policies.budget import distinct_steps, full_step_count
from galaxydit.policies.schedule import Schedule

USUAL_STEPS = 50
"""The usual number of steps of video models, for which the schedule is planned. Other numbers stretch it."""
LATE = 0.15
"""Weight of the term that makes full steps denser late in the generation; the term for early steps has weight 1."""


def general_schedule(speedup: float, warmup_steps: int = 1) -> Schedule:
    """A schedule that computes the first `warmup_steps` of 50 steps, the last step, and more early and late steps than
    middle steps. Generations of other numbers of steps stretch it. `warmup_steps` is cut to one less than the number of
    full steps.

    An error of the output, made after the share u of the steps, is multiplied by g = 1.214 (1 - u)^3.832 + 0.246 until
    the end (measured on Wan2.1-T2V-1.3B, arXiv 2609.36433), and the output itself changes fastest in the last steps
    (arXiv 2609.39343). So the density of full steps, at most 1, is proportional to g^1.5 + LATE u^4. The power 1.5 was
    chosen by videos of the test model wan-tiny, LATE by the error that the planner of calibrated schedules predicts
    from the published curvature. `speedup` is the ratio of steps to full steps. Raises GalaxyDiTError for a speedup
    below 1 and for a negative warm-up.
    """
    check_number("speedup", speedup, 1.0)
    check_count("warmup_steps", warmup_steps, minimum=0)
    count = full_step_count(USUAL_STEPS, speedup)
    first = min(warmup_steps, count - 1)
    share = np.linspace(0, 1, USUAL_STEPS)
    density = (1.214 * (1 - share) ** 3.832 + 0.246) ** 1.5 + LATE * share**4
    density[:first] = 0.0
    low, high = 0.0, USUAL_STEPS / density.min(initial=np.inf, where=density > 0)
    for _ in range(50):
        scale = (low + high) / 2
        low, high = (low, scale) if np.minimum(1, scale * density).sum() >= count - first else (scale, high)
    reached = np.cumsum(np.minimum(1, high * density))
    places = [*range(first), *np.searchsorted(reached, np.arange(1, count - first + 1) - 1e-6).tolist()]
    levels = tuple(1 - step / USUAL_STEPS for step in range(USUAL_STEPS))
    return Schedule(speedup, tuple(levels[step] for step in distinct_steps(places, USUAL_STEPS)), planned_sigmas=levels)
