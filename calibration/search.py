"""The error of schedules (rising indices of full steps) on recordings, and an exact search for the best ones."""

from collections.abc import Iterator, Sequence
from copy import copy
from functools import cache
from typing import Literal

import numpy as np
from scipy.linalg import block_diag

from galaxydit.calibration.recording import Array, Recording, StreamRecording, as_differences, error_coefficients
from galaxydit.extrapolation import CORRECTED, missed
from galaxydit.profiles.evidence import ErrorPropagation

PLANNER_VERSION = 9
"""Raise it when a change to recording, schedule error, search or the correction of full steps can change a result;
older results are then void."""

ROUNDS = 2  # of weights and schedules; more change no schedule of wan-tiny
LONGEST_GAP = 12  # steps between two full steps

WARMUP = 2
"""Number of first steps that every plan computes, because order 1 needs two full steps and early errors grow most."""

HALF_COHERENT = 0.05  # rms error of the final latent, in units of the initial noise, at which coherence is 1/2

Order = Literal[0, 1]
FullSteps = tuple[int, ...]


class ScheduleError:
    """Evaluates schedules of full steps on recorded generations.

    In the reuse interval between the full steps a and b, a prediction p_i replaces the guided prediction y_i. With w_i,
    the linear response of the final latent to y_i, the latent is then off by

        d(a, b) = (sum over a < i < b of w_i (p_i - y_i)) - w_b c (p_b - y_b)

    The last term is the correction of the full step b: c is `extrapolation.missed` times `extrapolation.CORRECTED`, and
    0 for the last step and without `corrects`. Errors of an interval add as vectors, because its predictions
    extrapolate the same steps. Schedules compute the step `switch`: a second transformer cannot reuse the first's.

    A model with several output streams, such as picture and sound, has a d for each, with the stream's own noise levels
    and response. The mean square error is the mean over the streams, weighted by `shares`. These are equal by default:
    the latent of each stream begins as noise of variance 1, and sound is heard however few values it has.
    """

    def __init__(
        self, recordings: Sequence[Recording], corrects: bool = True, shares: Sequence[float] | None = None
    ) -> None:
        self.corrects = corrects
        self.sigmas = recordings[0].sigmas
        self.switch = recordings[0].switch
        self.streams: list[Recording | StreamRecording] = [recordings[0], *recordings[0].further]
        count = len(self.streams)
        if shares is None:
            self.shares = np.full(count, 1 / count)
        else:
            self.shares = np.array(shares) / np.sum(shares)
        self.products = np.array([self._products_of(recording) for recording in recordings])
        self.mean_products = self.products.mean(axis=0)
        self.interval_error = cache(self._interval_error)

    def _products_of(self, recording: Recording) -> Array:
        """The products of all streams, `(streams * (steps - 1),) * 2`, 0 between two streams."""
        of_streams = []
        streams: list[Recording | StreamRecording] = [recording, *recording.further]
        for share, stream in zip(self.shares, streams, strict=True):
            of_streams.append(share * np.array(stream.guided_products))
        if len(of_streams) == 1:
            return of_streams[0]
        return block_diag(*of_streams)

    def weighted(self, weights: Array) -> "ScheduleError":
        """The same with means over the recordings weighted by `weights`, `(recordings,)`."""
        other = copy(self)
        other.mean_products = np.tensordot(weights / weights.sum(), self.products, 1)
        return other

    def _interval_error(self, older: int | None, newest: int, following: int, order: Order) -> Array:
        """d(newest, following) as coefficients of the differences y_(i+1) - y_i, `(streams * (steps - 1),)`.

        If `older` is None or a step of the other transformer, the prediction repeats `newest`.
        """
        if older is not None and (older < self.switch) != (newest < self.switch):
            older = None
        return np.concatenate([self._error_of(stream, older, newest, following, order) for stream in self.streams])

    def _error_of(
        self, stream: Recording | StreamRecording, older: int | None, newest: int, following: int, order: Order
    ) -> Array:
        """d(newest, following) of one stream, `(steps - 1,)`."""
        sigmas = stream.sigmas
        response = stream.scheduler_response
        if order == 0:
            older = None
        # w_i of the predicted steps
        weights = {step: response[step] for step in range(newest + 1, following)}
        if self.corrects and weights and following < len(sigmas) - 1:
            # - w_b c of the full step b
            share = CORRECTED[0] if older is None else CORRECTED[order]
            weights[following] = -response[following] * share * missed(sigmas, response, newest, following)
        error = np.zeros(len(sigmas))
        for step, weight in weights.items():
            error += weight * error_coefficients(sigmas, step, newest, older)
        return as_differences(error)

    def final_error(
        self, full: Sequence[int], propagation: ErrorPropagation, *, order: Order = 1, coherence: float | None = None
    ) -> Array:
        """Expected mean square error of the final latent under the schedule `full`, `(recordings,)`.

        `coherence` is by default 1 / (1 + (e / 0.05)^2) with the rms error e at coherence 0: the model's nonlinear
        response grows with e^2 and is incoherent across intervals, so only the linear fraction adds coherently.
        """
        intervals = zip((None, *full), full, full[1:], strict=False)
        weighted = []
        for older, newest, following in intervals:
            sensitivity = propagation.sensitivity(self.sigmas[newest])
            weighted.append(sensitivity * self.interval_error(older, newest, following, order))
        errors = np.array(weighted)
        total = errors.sum(axis=0)
        # d' M d, with the products M: each interval by itself, or their sum
        incoherent = ((errors @ self.products) * errors).sum(axis=(1, 2))
        if coherence is None:
            coherence = 1 / (1 + max(0.0, float(incoherent.mean())) / HALF_COHERENT**2)
        coherent = self.products @ total @ total
        return np.maximum(0.0, (1 - coherence) * incoherent + coherence * coherent)


def planned_schedules(
    model: ScheduleError, propagation: ErrorPropagation, counts: Sequence[int], order: Order
) -> dict[int, FullSteps]:
    """By number of full steps, the best schedule on recordings that are `balanced` at `counts`."""
    # Rounding is left out: after the first reused step, full steps differ from the plain ones by rounding, too.
    model = balanced(model, propagation, counts, order)
    return best_schedules(model, len(model.sigmas), propagation, warmup=WARMUP, order=order)


def best_schedules(
    model: ScheduleError, most: int, propagation: ErrorPropagation, *, warmup: int = 1, order: Order = 1
) -> dict[int, FullSteps]:
    """By number of full steps up to `most`, the schedule with the least mean square error of the final latent.

    The first `warmup` steps, the model's `switch` and the last step are computed. Errors of different reuse intervals
    add incoherently, and each depends on three neighbouring full steps, so dynamic programming over pairs is exact.
    """
    return cheapest_schedules(interval_errors(model, propagation, order), most, warmup=warmup, switch=model.switch)


def cheapest_schedules(errors: Array, most: int, *, warmup: int = 1, switch: int = 0) -> dict[int, FullSteps]:
    """`best_schedules` for given `errors`, one for each interval as `interval_errors` returns them, that add up."""
    steps = len(errors)
    # best[at, gap, used]: least error of a schedule whose `used` full steps end with `at - gap` and `at`; before[...]
    # is the gap before `at - gap` in it.
    best = np.full((steps, LONGEST_GAP + 1, most + 1), np.inf)
    before = np.zeros(best.shape, dtype=int)
    best[0, 0, 1] = 0.0
    for at in range(steps - 1):
        # Intervals end at the switch and at the last step, because both are full.
        end = switch if at < switch else steps - 1
        longest = min(LONGEST_GAP, end - at)
        if at + 1 < warmup:
            longest = 1
        for gap in range(1, longest + 1):
            totals = best[at, :, :-1] + errors[at, :, gap, None]
            before[at + gap, gap, 1:] = totals.argmin(axis=0)
            best[at + gap, gap, 1:] = totals.min(axis=0)
    found = {}
    for used in range(1, most + 1):
        gap = int(best[-1, :, used].argmin())
        if np.isfinite(best[-1, gap, used]):
            at = steps - 1
            schedule = [at]
            for left in range(used, 1, -1):
                gap_before = int(before[at, gap, left])
                at -= gap
                gap = gap_before
                schedule.append(at)
            found[used] = tuple(reversed(schedule))
    return found


def interval_errors(model: ScheduleError, propagation: ErrorPropagation, order: Order = 1) -> Array:
    """Mean square error of the final latent from the steps between the full steps `step` and `step` + `gap`.

    It is `(step, gap before, gap)`, where the full step before lies `gap before` steps earlier (0: none), and 0 where
    no step is reused or a full step would lie outside the generation.
    """
    steps = len(model.sigmas)
    places = list(intervals(steps))
    errors = np.zeros((steps, LONGEST_GAP + 1, LONGEST_GAP + 1))
    sensitivities = [propagation.sensitivity(sigma) for sigma in model.sigmas]
    rows = []
    for at, before, gap in places:
        older = at - before if before else None
        rows.append(sensitivities[at] * model.interval_error(older, at, at + gap, order))
    if rows:
        stacked = np.array(rows)
        squares = np.einsum("ij,ij->i", stacked @ model.mean_products, stacked)
        errors[tuple(np.array(places).T)] = np.maximum(0.0, squares)
    return errors


def intervals(steps: int) -> Iterator[tuple[int, int, int]]:
    """The indices of `interval_errors` at which a step is reused, with rising gaps."""
    for at in range(steps):
        for before in range(min(LONGEST_GAP, at) + 1):
            for gap in range(2, min(LONGEST_GAP, steps - 1 - at) + 1):
                yield at, before, gap


def balanced(model: ScheduleError, propagation: ErrorPropagation, counts: Sequence[int], order: Order) -> ScheduleError:
    """`model` with each recording weighted by the inverse of its error under the schedules of `counts` full steps.

    Sensitivities differ by a factor of 30, and the gradient of a mean of logarithms, the PSNR, weights recordings so.
    """
    for _ in range(ROUNDS):
        schedules = best_schedules(model, max(counts), propagation, warmup=WARMUP, order=order)
        weights = []
        for count in counts:
            if count not in schedules:
                continue
            error = model.final_error(schedules[count], propagation, order=order, coherence=0.0)
            if error.max() > 0:
                inverse = 1 / np.maximum(error, 1e-30)
                weights.append(inverse / inverse.sum())
        if not weights:
            break
        model = model.weighted(np.mean(weights, axis=0))
    return model
