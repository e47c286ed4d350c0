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
) -> Tensor:
    """The predicted tensor at the noise level `sigma`, in the shape and dtype of the cached steps.

    Order 0 repeats y_newest, the tensor of the newest step in `history`, whose steps are ordered from the oldest. Order
    1 is y_newest + a * (y_newest - y_older), with the tensor y_older of the step before; with a single step it
    equals order 0. The function `slope_ahead` gives the factor a: `slope` is the configured share of the slope from
    y_older to y_newest, a = slope (sigma - newest) / (newest - older) with the noise levels of both steps, and
    `largest` is the largest |a|. The result is a new tensor, which the caller may
    overwrite.
    """
    _, newest_sigma, newest = history[-1]
    if order == 0 or len(history) < 2:
        return newest.clone()
    _, older_sigma, older = history[-2]
    return newest.lerp(older, -slope_ahead(sigma, newest_sigma, older_sigma, slope, largest))


def missed(
    sigmas: Sequence[float] | None,
    response: Sequence[float] | None,
    newest: int,
    step: int,
    reused: Sequence[int] | None = None,
) -> float:
    """Effect on the final latent of the errors of the steps reused between the full steps `newest` and `step`, divided
    by the effect of the error that reuse would have had at `step`:

        sum over the reused steps i of response[i] * (sigmas[newest] - sigmas[i])
        / (response[step] * (sigmas[newest] - sigmas[step]))

    `newest` (the earlier full step), `step` and the `reused` steps (by default all between these) are indices. The
    error is assumed to grow from 0 at `newest` in proportion to the distance in sigma. `sigmas` are the noise levels of
    all steps, and `response` is the linear response of the final latent to each step's output
    (`galaxydit.runtime.scheduler_response`). Without sigmas or response, all steps count alike, which gives n / 2 for n
    reused steps. The result is limited to [-2 n, 2 n], because a `step` of small response would otherwise be changed
    too much; it is 0 if the denominator is 0.
    """
    reused = range(newest + 1, step) if reused is None else reused
    limit = 2.0 * len(reused)
    if sigmas is None or response is None:
        return len(reused) / 2
    grown = sum(response[step] * (sigmas[newest] - sigmas[step]) for step in reused)
    distance = (sigmas[newest] - sigmas[step]) * response[step]
    return max(-limit, min(grown / distance, limit)) if distance else 0.0


@beside_the_model
def correction(output: Tensor, predicted: Tensor, missed: float, order: int, share: float | None = None) -> Tensor:
    """The correction to add to the `output` y of a full step for the error of the reused steps before it, a new tensor.

    `predicted` is p, the output that reuse would have given at this step. Then y - p is the error of reuse at this
    step. `missed` is a number from the function of this name: adding `missed` * (y - p) to y would make up for the
    errors of the reused steps, if these errors were fractions of y - p that grow linearly in sigma. The correction is
    `share` * `missed` * (y - p); by default the share is `CORRECTED[order]`, for the `order`, 0 or 1, of the
    predictions. Schedulers sum outputs, so the correction moves the latent towards the latent of full steps. The
    scheduler receives the corrected output; the cache keeps y.
    """
    return (output - predicted).mul_((CORRECTED[order] if share is None else share) * missed)
