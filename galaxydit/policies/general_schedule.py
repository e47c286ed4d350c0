"""The schedule for models that nobody calibrated: full steps where errors of Wan2.1 were found to grow most."""

import numpy as np

from galaxydit.errors import check_number
from galaxydit.policies.budget import distinct_steps, full_step_count
from galaxydit.policies.schedule import Schedule

USUAL_STEPS = 50
"""Of video models; other numbers stretch the schedule."""


def general_schedule(speedup: float, warmup_steps: int = 1) -> Schedule:
    """Compute the first `warmup_steps` of 50 steps, the last one, and the others as densely as early errors cost.

    An error of the prediction at a share u of the steps has grown by g = 1.214 (1 - u)^3.832 + 0.246 at the end
    (measured on Wan2.1-T2V-1.3B, arXiv 2609.36433). The number of full steps per step is proportional to g^1.5 and at
    most 1. Of the powers 1, 1.5 and 2, this one served the worst of 12 prompts of wan-tiny best at 1.5, 2.5 and 3x.
    Raises GalaxyDiTError for a speedup below 1.
    """
    check_number("speedup", speedup, 1.0)
    count = full_step_count(USUAL_STEPS, speedup)
    first = min(warmup_steps, count - 1)
    growth = (1.214 * (1 - np.linspace(0, 1, USUAL_STEPS)) ** 3.832 + 0.246) ** 1.5
    growth[:first] = 0.0
    low, high = 0.0, USUAL_STEPS / growth.max()
    for _ in range(50):
        scale = (low + high) / 2
        low, high = (low, scale) if np.minimum(1, scale * growth).sum() >= count - first else (scale, high)
    reached = np.cumsum(np.minimum(1, high * growth))
    places = [*range(first), *np.searchsorted(reached, np.arange(1, count - first + 1) - 1e-6).tolist()]
    levels = tuple(1 - step / USUAL_STEPS for step in range(USUAL_STEPS))
    return Schedule(speedup, tuple(levels[step] for step in distinct_steps(places, USUAL_STEPS)), planned_sigmas=levels)
