"""Predict the tensor of a reused step from the full steps before it, and correct full steps for errors of reuse."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from torch import Tensor

from galaxydit.torch_compile import beside_the_model

if TYPE_CHECKING:
    from galaxydit.runtime.call import Call

ReuseName = Literal["output", "residual"]
"""What a reused step predicts: the transformer's output, or what its blocks add to their input."""


class CachedStep(NamedTuple):
    """A full step: its index from 0, its noise level, its tensor, and what a `Reuse` keeps beside it."""

    step: int
    sigma: float
    tensor: Tensor
    side: Any = None
    measured: Mapping[str, float] = MappingProxyType({})


class Reuse:
    """What full steps keep and how reused steps are predicted from it, in a subclass of your own
    (`GalaxyDiTConfig(reuse=...)`); one decision then serves the whole batch. `tensor` is the transformer's output, or
    with `predicts = "residual"` what its blocks add; `past` are the branch's full steps, oldest first, as many as the
    order of the configuration plus 1.

    Attributes:
        predicts: "output", or "residual" of the block stack.
        proxies: names of proxies that `call.proxies` holds, if the first block ran so far.
    """

    predicts: ReuseName = "output"
    proxies: tuple[str, ...] = ()

    def side(self, call: "Call") -> Tensor | None:
        """A tensor that a full step keeps beside its own, by default none."""
        return None

    def measure(self, call: "Call", tensor: Tensor, past: Sequence[CachedStep]) -> Mapping[str, float]:
        """Numbers of a full step for the policy (`Observation.measured`), by default none."""
        return {}

    def predict(self, call: "Call", past: Sequence[CachedStep]) -> Tensor:
        """The tensor of a reused step, a new one; by default that of the last full step."""
        return past[-1].tensor.clone()


DAMPING = 0.85
"""Share of the slope between the last two full steps that predictions follow, unless a profile sets another (damped
trend, Gardner and McKenzie 1985, doi:10.1287/mnsc.31.10.1237): the whole slope overshoots over long intervals.
"""

LARGEST_AHEAD = 10.0
"""Largest factor with which a prediction adds the difference between two full steps, unless a profile sets another:
where two noise levels almost coincide, a larger one would multiply rounding errors.
"""

CORRECTED = (1.0, 0.5)
"""Share of the estimated error of a reuse interval that is corrected at order 0 and 1, unless a profile sets another;
at order 1 errors grow faster than linearly within an interval, so the estimate is too large.
"""


def slope_ahead(
    sigma: float, newest: float, older: float, slope: float = DAMPING, largest: float = LARGEST_AHEAD
) -> float:
    """Factor a = slope (sigma - newest) / (newest - older) in [-largest, largest], 0 for equal noise levels."""
    if newest == older:
        return 0.0
    ahead = slope * (sigma - newest) / (newest - older)
    return max(-largest, min(ahead, largest))


@beside_the_model
def predict(
    history: tuple[CachedStep, ...],
    sigma: float,
    order: int,
    slope: float = DAMPING,
    largest: float = LARGEST_AHEAD,
) -> Tensor:
    """The tensor at `sigma`, new, from a history with the oldest step first; a single step gives order 0.

    Order 0 is y_newest, order 1 is y_newest + a (y_newest - y_older) with a of `slope_ahead`.
    """
    newest = history[-1]
    if order == 0 or len(history) < 2:
        return newest.tensor.clone()
    older = history[-2]
    ahead = slope_ahead(sigma, newest.sigma, older.sigma, slope, largest)
    # y_newest + a (y_newest - y_older) = lerp(y_newest, y_older, -a)
    return newest.tensor.lerp(older.tensor, -ahead)


def missed(
    sigmas: Sequence[float] | None,
    response: Sequence[float] | None,
    newest: int,
    step: int,
    reused: Sequence[int] | None = None,
) -> float:
    """Effect on the final latent of the errors of reused steps / of the error that reuse would have had at `step`.

    The error is assumed to grow linearly in sigma from 0 at the full step `newest`. `response` is the final latent's to
    each output (`runtime.scheduler_response`); without it the n `reused` steps count alike, n / 2. The result is in
    [-2 n, 2 n], because a `step` of small response would be changed too much.
    """
    if reused is None:
        reused = range(newest + 1, step)
    if sigmas is None or response is None:
        return len(reused) / 2
    accumulated = sum(response[skipped] * (sigmas[newest] - sigmas[skipped]) for skipped in reused)
    here = (sigmas[newest] - sigmas[step]) * response[step]
    if here == 0:
        return 0.0
    limit = 2.0 * len(reused)
    return max(-limit, min(accumulated / here, limit))


@beside_the_model
def correction(output: Tensor, predicted: Tensor, missed: float, order: int, share: float | None = None) -> Tensor:
    """`share` * `missed` * (y - p), to add to the `output` y of a full step for the error of reused steps before it.

    `predicted` is p, what reuse would have given. The share is by default `CORRECTED[order]`. The cache keeps y.
    """
    if share is None:
        share = CORRECTED[order]
    return (output - predicted).mul_(share * missed)
