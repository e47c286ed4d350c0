"""Predict the tensor of a reused step from the full steps before it, and correct full steps for errors of reuse.

The predicted tensor is the transformer's output, or what its block stack adds to its input. A reuse interval is the
reused steps between two full steps.
"""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from galaxydit.torch_compile import beside_the_model


class CachedStep(NamedTuple):
    """A full step: its index in the generation, from 0, its noise level, and its tensor."""

    step: int
    sigma: float
    tensor: Tensor


DAMPING = 0.85
"""Share of the slope between the last two full steps that predictions follow, unless a profile sets another share
(damped trend, Gardner and McKenzie 1985, doi:10.1287/mnsc.31.10.1237).

The outputs are rounded and their path bends, so the whole slope overshoots over long intervals.
`python -m galaxydit.eval.studies.predictions` compares other shares.
"""

LARGEST_AHEAD = 10.0
"""Largest factor with which a prediction adds the difference between two full steps, unless a profile sets another.

It is above the factor in the longest gap of a calibrated schedule. Where two noise levels almost coincide, a larger
factor would multiply rounding errors.
"""

CORRECTED = (1.0, 0.5)
"""Share of the estimated error of a reuse interval that is corrected at order 0 and 1, unless a profile sets another.

At order 1 errors grow faster than linearly within an interval, so the estimate is too large.
"""


def remember(history: tuple[CachedStep, ...], step: CachedStep, count: int) -> tuple[CachedStep, ...]:
    """The history with `step` appended, cut to its newest `count` (at least 1) steps, oldest first."""
    return (*history, step)[-count:]


def slope_ahead(
    sigma: float, newest: float, older: float, slope: float = DAMPING, largest: float = LARGEST_AHEAD
) -> float:
    """Factor a of the order-1 prediction y_newest + a (y_newest - y_older) at the noise level `sigma`.

    y_newest and y_older are the tensors of the last two full steps, `newest` and `older` their noise levels, and
    `slope` is the share of the slope between them that is followed: a = slope (sigma - newest) / (newest - older),
    limited to [-largest, largest]; 0 if both noise levels are equal.
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
    """The predicted tensor at the noise level `sigma`, in the shape and dtype of the cached steps.

    Order 0 repeats the newest cached step. Order 1 adds `share` times `slope_ahead` times the difference of the two
    newest cached steps to the newest; with a single cached step it equals order 0. `history` is ordered from the oldest
    step. `slope` is the share of the slope between the two newest steps that is followed, and `largest` limits the
    factor `slope_ahead`. `share`, in [0, 1], is lowered by the guard (`galaxydit.policies.safeguard`) where the slope
    harms. The result is a new tensor, which the caller may overwrite.
    """
    _, newest_sigma, newest = history[-1]
    if order == 0 or len(history) < 2 or share == 0:
        return newest.clone()
    _, older_sigma, older = history[-2]
    return newest.lerp(older, -share * slope_ahead(sigma, newest_sigma, older_sigma, slope, largest))


def missed(sigmas: Sequence[float] | None, response: Sequence[float] | None, newest: int, step: int) -> float:
    """Accumulated error of the steps reused between the full steps `newest` and `step`, relative to the error that
    reuse would have had at `step`.

    `newest` and `step` are indices. The error is assumed to grow from 0 at `newest` in proportion to the distance in
    sigma. `sigmas` are the noise levels of all steps, and `response` is the linear response of the final latent to each
    step's output (`galaxydit.runtime.scheduler_response`). Without sigmas or response, all steps count alike, which
    gives n / 2 for n reused steps. The result is limited to [-2 n, 2 n], because a `step` of small response would
    otherwise be changed too much; it is 0 if `step` has no response.
    """
    reused, limit = range(newest + 1, step), 2.0 * (step - newest - 1)
    if sigmas is None or response is None:
        return len(reused) / 2
    grown = sum(response[step] * (sigmas[newest] - sigmas[step]) for step in reused)
    distance = (sigmas[newest] - sigmas[step]) * response[step]
    return max(-limit, min(grown / distance, limit)) if distance else 0.0


@beside_the_model
def correction(output: Tensor, predicted: Tensor, missed: float, order: int, share: float | None = None) -> Tensor:
    """The correction to add to the `output` y of a full step for the error of the reused steps before it, a new tensor.

    `predicted` is p, the output that reuse would have given at this step. Then y - p is the error of reuse at this
    step. `missed` is the accumulated error of the reused steps divided by y - p, as the function of this name estimates
    it (trapezoidal rule with the scheduler's response). The correction is `share` of `missed` (y - p); by default the
    share is `CORRECTED[order]`, for the `order`, 0 or 1, of the predictions. Schedulers sum outputs, so the correction
    moves the latent towards the latent of full steps. The scheduler receives the corrected output; the cache keeps y.
    """
    return (output - predicted).mul_((CORRECTED[order] if share is None else share) * missed)
