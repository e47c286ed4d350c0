"""The guard: halve or drop the slope, and turn off the correction, where full steps show that slope or correction harm.

At a full step the output y is compared with the predictions that reuse would have made. Order 0 repeats the last full
step; order 1 also follows the slope between the last two full steps. The correction makes a full step compensate the
estimated error of the reused steps before it (`galaxydit.extrapolation`). An interval is the reused steps between two
full steps.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from statistics import fmean, median

SLOPES = (1.0, 0.5, 0.0)
"""Shares of the configured slope; the last share gives order 0. The guard moves by one place at a time."""

WORSE = 2.5
"""Error of order 1 / error of order 0, root mean square over `WINDOW` full steps, above which the slope is reduced.

On wan-tiny this ratio reaches 2.2 in generations where order 1 gives the better video, because it also counts errors
that a video hardly shows. Failures such as wrong noise levels have ratios of 5 to 10.
"""

RIGHT_AGAIN = 1.0
"""The same ratio for the next larger share of the slope, over `RECOVERY` full steps, below which the guard restores
that share.
"""

SMALLEST_SHARE = 0.4
"""Smallest ratio of the measured error of reuse to the error that the correction estimates
(`Hindsight.correction_share`) at which the correction helps.

`WINDOW` full steps in a row with a smaller ratio turn the correction off; `WINDOW` full steps in a row with this ratio
or a larger one turn it on again.
"""

WINDOW, RECOVERY = 3, 8  # full steps


class GuardAction(Enum):
    """A change that the guard made at a full step; the value is the text for people."""

    SLOPE_HALVED = "half of the slope"
    SLOPE_DROPPED = "order 0"
    SLOPE_RAISED = "half of the slope again"
    SLOPE_RESTORED = "the whole slope again"
    CORRECTION_OFF = "no correction"
    CORRECTION_ON = "correction again"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Hindsight:
    """Prediction errors measured at a full step with output y; y_1 to y_3 are the outputs of the full steps before it,
    y_1 of the newest.

    Attributes:
        step: index of the full step.
        products: matrix of the mean products of the differences y - y_1, y_1 - y_2, y_2 - y_3 with each other, as far
            as these full steps exist, `(1, 1)` to `(3, 3)`. It determines the error of every prediction.
        ahead: factor with which order 1 adds y_1 - y_2 to y_1 to predict y, if it follows the whole configured slope
            (`galaxydit.extrapolation.slope_ahead`); 0 if there is no y_2.
        skipping: factors like `ahead`, with which order 1 adds y_2 - y_3 to y_2: the first to predict y, the second to
            predict y_1; 0 without y_3.
        inner: distance in sigma from y_2 to y_1 / from y_2 to y; 0 if there is no y_2.
        rounding: expected mean square of the rounding error of y.
    """

    step: int
    products: tuple[tuple[float, ...], ...]
    ahead: float = 0.0
    skipping: tuple[float, float] = (0.0, 0.0)
    inner: float = 0.0
    rounding: float = 0.0

    def error(self, slope: float) -> float:
        """Mean square of y minus its prediction y_1 + slope * ahead * (y_1 - y_2), less the mean square expected from
        rounding; at least 0. It is in squared units of y, not relative to y. `slope` is a share of the configured
        slope.
        """
        coefficients = self._padded(1.0, -slope * self.ahead)
        # Rounding errors are those of the outputs, in which a difference has the coefficients 1 and -1.
        of_outputs = [new - old for new, old in zip((*coefficients, 0.0), (0.0, *coefficients), strict=True)]
        rounding = self.rounding * sum(value**2 for value in of_outputs)
        return max(0.0, self._mean_product(coefficients, coefficients) - rounding)

    def slope_ratio(self, slope: float = 1.0) -> float | None:
        """Error of the prediction with the share `slope` of the configured slope / error of repeating y_1, as root mean
        squares (`error`).

        None with fewer than two full steps before this one, and where repeating has no error beyond rounding.
        """
        repeated = self.error(0.0)
        return math.sqrt(self.error(slope) / repeated) if len(self.products) > 1 and repeated > 0 else None

    def correction_share(self, slope: float) -> float | None:
        """Error that y_1 would have had if reused / error that the correction would have estimated for y_1.

        The error is y_1 - p_1, and the estimate is `inner` * (y - p), because the correction assumes that the error
        grows linearly in sigma from 0 at y_2. p_1 and p are the predictions of y_1 and y from y_2 and y_3 with the
        share `slope` of the configured slope, as if y_2 were the last full step before y. Both are tensors, so their
        ratio is the factor of the least-squares fit of the estimate to the error: 1 for a right estimate, negative if
        the two point in opposite directions.

        None with fewer than three full steps before this one (two if `slope` is 0), and where the estimate is 0.
        """
        if len(self.products) < 2 + (slope > 0):
            return None
        at_end = self._padded(1.0, 1.0, -slope * self.skipping[0])
        between = self._padded(0.0, 1.0, -slope * self.skipping[1])
        estimated = self.inner * self._mean_product(at_end, at_end)
        return self._mean_product(between, at_end) / estimated if estimated > 0 else None

    def _padded(self, *coefficients: float) -> tuple[float, ...]:
        """The coefficients of all known differences y - y_1, y_1 - y_2, y_2 - y_3; those not given are 0."""
        return (*coefficients, 0.0, 0.0)[: len(self.products)]

    def _mean_product(self, left: Sequence[float], right: Sequence[float]) -> float:
        rows = zip(left, self.products, strict=True)
        return sum(a * b * product for a, row in rows for b, product in zip(right, row, strict=True))


@dataclass(frozen=True)
class GuardRecord:
    """Measurements at one full step, and the changes that the guard made.

    Attributes:
        step: index of the full step.
        transformer: name of the component of the pipeline, "transformer" or "transformer_2".
        scope: name of the guidance branch if each branch is decided separately, else "all branches".
        sample: index of the sample in the batch; 0 where one decision serves the batch.
        reused: number of steps reused between the previous full step and this one.
        error: mean square of the step's output minus the prediction that reuse would have made, less the mean square
            expected from rounding; at least 0, not relative to the output (`Hindsight.error`).
        slope_ratio: error of order 1 with the whole configured slope / error of order 0, as root mean squares; None if
            it is unknown.
        correction_share: error that reuse would have had at the previous full step / error that the correction would
            have estimated for that previous full step, as a least-squares factor (`Hindsight.correction_share`); None
            if it is unknown.
        slope: share of the configured slope that predictions follow after this step; 0 at order 0.
        corrects: whether full steps are corrected after this step.
        actions: changes that the guard made at this step; empty if it made none.
    """

    step: int
    transformer: str
    scope: str
    sample: int
    reused: int
    error: float
    slope_ratio: float | None
    correction_share: float | None
    slope: float
    corrects: bool
    actions: tuple[GuardAction, ...] = ()


@dataclass(frozen=True)
class Safeguard:
    """State of the guard for one sample and one decision scope: one guidance branch, or all branches jointly.

    It is immutable: `after` returns the next state.

    Attributes:
        order: order of predictions in the configuration; at order 0 there is no slope to guard.
        slope: share of the configured slope that predictions follow, one of `SLOPES`.
        corrects: whether the guard allows full steps to be corrected; the configuration may still forbid corrections.
        recent: measurements at the last full steps, at most `RECOVERY`, oldest first.
    """

    order: int = 1
    slope: float = SLOPES[0]
    corrects: bool = True
    recent: tuple[Hindsight, ...] = field(default=(), repr=False)

    @property
    def followed(self) -> float:
        """Share of the configured slope that predictions follow: `slope`, or 0 if `order` is 0."""
        return self.slope if self.order else 0.0

    def after(self, hindsight: Hindsight) -> tuple["Safeguard", tuple[GuardAction, ...]]:
        """The state after the full step that `hindsight` measured, and the changes that the guard makes there."""
        recent = (*self.recent, hindsight)[-RECOVERY:]
        slope = _next_slope(self.slope, recent) if self.order else self.slope
        corrects = _next_corrects(self.corrects, self.followed, recent[-WINDOW:])
        actions = []
        if slope < self.slope:
            actions.append(GuardAction.SLOPE_HALVED if slope > 0 else GuardAction.SLOPE_DROPPED)
        elif slope > self.slope:
            actions.append(GuardAction.SLOPE_RESTORED if slope == SLOPES[0] else GuardAction.SLOPE_RAISED)
        if corrects != self.corrects:
            actions.append(GuardAction.CORRECTION_ON if corrects else GuardAction.CORRECTION_OFF)
        return Safeguard(self.order, slope, corrects, recent), tuple(actions)


def guard_lines(records: Sequence[GuardRecord]) -> list[str]:
    """Lines for the report: the guard's changes, after a line with two medians over the full steps that follow reused
    steps: `slope_ratio` (error of order 1 / error of order 0) and `correction_share` (error that reuse would have had
    at the previous full step / error that the correction would have estimated for that previous full step).
    """
    after_reuse = [record for record in records if record.reused]
    ratios = [record.slope_ratio for record in after_reuse if record.slope_ratio is not None]
    shares = [record.correction_share for record in after_reuse if record.correction_share is not None]
    measured = [f"order 1 errs {median(ratios):.2f} times as much as order 0"] if ratios else []
    measured += [f"intervals err {median(shares):.2f} times as much as the correction assumes"] if shares else []
    several = len({(record.transformer, record.scope, record.sample) for record in records}) > 1
    lines = ["At full steps after reused ones, " + ", ".join(measured)] if measured else []
    for record in records:
        where = f" ({record.transformer}, {record.scope}, sample {record.sample})" if several else ""
        lines += [f"Guard: {action.value} from step {record.step} on{where}" for action in record.actions]
    return lines


def _next_slope(slope: float, recent: Sequence[Hindsight]) -> float:
    place = SLOPES.index(slope)
    if slope > 0 and (ratio := _rms_ratio(slope, recent[-WINDOW:], WINDOW)) is not None and ratio > WORSE:
        return SLOPES[place + 1]
    if place > 0 and (ratio := _rms_ratio(SLOPES[place - 1], recent, RECOVERY)) is not None and ratio < RIGHT_AGAIN:
        return SLOPES[place - 1]
    return slope


def _rms_ratio(slope: float, recent: Sequence[Hindsight], count: int) -> float | None:
    """Root mean square over the full steps in `recent` of `Hindsight.slope_ratio`: error of order 1 with the share
    `slope` of the configured slope / error of order 0. None unless `recent`, which the caller cuts to the last `count`
    full steps, has `count` and the ratio of each is known.
    """
    ratios = [ratio for record in recent if (ratio := record.slope_ratio(slope)) is not None]
    return math.sqrt(fmean(ratio**2 for ratio in ratios)) if len(ratios) == count else None


def _next_corrects(corrects: bool, slope: float, recent: Sequence[Hindsight]) -> bool:
    shares = [share for record in recent if (share := record.correction_share(slope)) is not None]
    if len(shares) < WINDOW:
        return corrects
    return max(shares) >= SMALLEST_SHARE if corrects else min(shares) >= SMALLEST_SHARE
