"""The tensor of a reused step, extrapolated in sigma from the full steps before it, and what full steps correct."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from galaxydit.torch_compile import beside_the_model


class CachedStep(NamedTuple):
    """A full step: its number, its noise level, and its tensor."""

    step: int
    sigma: float
    tensor: Tensor


DAMPING = 0.85
"""Share of the last slope that is followed unless a profile has its own (damped trend, Gardner and McKenzie 1985,
doi:10.1287/mnsc.31.10.1237).

The outputs are rounded and their path bends, so the whole slope overshoots over long intervals.
`python -m galaxydit.eval.studies.predictions` compares other shares.
"""

LARGEST_AHEAD = 10.0
"""Most times that the difference between two full steps is added unless a profile has its own limit: more than the
longest gap of a calibrated schedule asks for. Where two noise levels almost coincide, more would multiply rounding
errors.
"""

CORRECTED = (1.0, 0.5)
"""By order, the share of the estimated error of a reuse interval that is corrected unless a profile has its own.

At order 1 errors grow faster than linearly within an interval, so the estimate is too large.
"""


def remember(history: tuple[CachedStep, ...], step: CachedStep, count: int) -> tuple[CachedStep, ...]:
    """The newest `count` full steps, oldest first."""
    return (*history, step)[-count:]


def slope_ahead(
    sigma: float, newest: float, older: float, slope: float = DAMPING, largest: float = LARGEST_AHEAD
) -> float:
    """How many times the difference between two full steps, at the noise levels `newest` and `older`, is added to the
    newest one to predict the step at `sigma` at order 1, which follows the share `slope` of the last slope; at most
    `largest` times, and 0 where both levels are equal.
    """
    ahead = 0.0 if newest == older else slope * (sigma - newest) / (newest - older)
    return max(-largest, min(ahead, largest))


@beside_the_model
def predict(
    history: tuple[CachedStep, ...],
    sigma: float,
    order: int,
    slope: float = DAMPING,
    largest: float = LARGEST_AHEAD,
    share: float = 1.0,
) -> Tensor:
    """The tensor at `sigma`, in the shape and dtype of the cached steps: at `order` 0 the newest one repeated, at 1 it
    follows the share `slope` of the slope of the last two, where there are two, at most `largest` times their
    difference far, and `share` of that.

    The result is a new tensor, which the caller may overwrite.
    """
    _, newest_sigma, newest = history[-1]
    if order == 0 or len(history) < 2 or share == 0:
        return newest.clone()
    _, older_sigma, older = history[-2]
    return newest.lerp(older, -share * slope_ahead(sigma, newest_sigma, older_sigma, slope, largest))


def missed(sigmas: Sequence[float] | None, response: Sequence[float] | None, newest: int, step: int) -> float:
    """What the steps reused between the full steps `newest` and `step` missed together, divided by the error that reuse
    would have had at `step` itself.

    The error grows from 0 at `newest` in proportion to the distance in sigma, and `response` is that of the final
    latent to each output (`scheduler_response`). Without known sigmas or response all steps count alike, which gives
    n / 2 for n steps. The result is 0 where `step` has no response of its own, and lies within 2 n, because a `step`
    of little response would be changed beyond recognition.
    """
    reused, limit = range(newest + 1, step), 2.0 * (step - newest - 1)
    if sigmas is None or response is None:
        return len(reused) / 2
    grown = sum(response[step] * (sigmas[newest] - sigmas[step]) for step in reused)
    distance = (sigmas[newest] - sigmas[step]) * response[step]
    return max(-limit, min(grown / distance, limit)) if distance else 0.0


@beside_the_model
def correction(output: Tensor, predicted: Tensor, missed: float, order: int, share: float | None = None) -> Tensor:
    """What a full step adds to its output y to make up for the steps that were reused before it at this `order`.

    With p, what reuse would have given for this step, y - p is the error of reuse, and `missed` times it is what those
    steps missed together (the trapezoidal rule, with the scheduler's response). Of that, `share` is added, by default
    `CORRECTED`. A scheduler adds outputs up, so the latent is led back to where full steps would have taken it. The
    corrected output goes to the scheduler, while y itself is cached.
    """
    return (output - predicted).mul_((CORRECTED[order] if share is None else share) * missed)
