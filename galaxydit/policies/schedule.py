"""Policies that know beforehand which steps to compute: a schedule for a speedup, or a fixed list of steps."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from galaxydit.errors import check_ascending, check_count, check_number, plain_fields, refusal
from galaxydit.policies.error_map import CumulativeDistance, ErrorMap
from galaxydit.policies.policy import Decision, Observation, Reason


@dataclass(frozen=True)
class FixedSteps:
    """Compute these steps, and steps without a full step to reuse; the limits of the configuration do not apply.

    Attributes:
        steps: indices of the steps to compute, from 0, in any order; stored sorted, without duplicates.
    """

    steps: tuple[int, ...]
    reads_proxy = False
    reuses = True
    learns_errors = False

    def __post_init__(self) -> None:
        if not isinstance(self.steps, Sequence | set | frozenset | range):
            raise refusal("steps", self.steps, "indices of steps", "pass for example steps=(0, 10, 49)")
        steps = {check_count("steps", step, minimum=0) for step in self.steps}
        object.__setattr__(self, "steps", tuple(sorted(steps)))

    def decide(self, observation: Observation, state: None = None) -> tuple[Decision, None]:
        if observation.step in self.steps:
            return Decision(False, Reason.SCHEDULE), None
        if not observation.has_history:
            return Decision(False, Reason.NO_HISTORY), None
        return Decision(True, Reason.SCHEDULE), None


@dataclass(frozen=True)
class Placement:
    """A schedule placed on the steps of one generation."""

    full_steps: tuple[int, ...]  # to compute, rising
    last_full: int  # the latest computed step; before any, the first step that the schedule decides


@dataclass(frozen=True)
class Schedule:
    """Compute the steps that a calibration, or `general_schedule` for any model, planned for a speedup.

    Attributes:
        speedup: steps divided by full steps, at least 1.
        sigmas: noise levels of the planned full steps, falling; interpolated for another number of full steps.
        error_map, cumulative_distance: give the expected error of a reused step, for the report, by the calibration's
            mean proxy distance since the last full step, because the proxy is not read; None leaves it unknown.
        fewest_steps: generations of fewer steps than this are computed in full.
        boundary: noise level below which a second transformer computes, whose first step is always computed; else None.
        planned_sigmas: noise levels of all steps of the plan, falling. With them, planned steps keep their positions
            among all steps if the flow shift differs; without them, their noise levels.
    """

    speedup: float
    sigmas: tuple[float, ...]
    error_map: ErrorMap | None = field(default=None, repr=False)
    cumulative_distance: CumulativeDistance | None = field(default=None, repr=False)
    fewest_steps: int = 0
    boundary: float | None = None
    planned_sigmas: tuple[float, ...] = field(default=(), repr=False)
    reads_proxy = False
    reuses = True
    learns_errors = False

    def __post_init__(self) -> None:
        plain_fields(self)
        check_number("speedup", self.speedup, 1.0)
        check_count("fewest_steps", self.fewest_steps, minimum=0)
        if not isinstance(self.sigmas, tuple) or not self.sigmas:
            raise refusal("sigmas", self.sigmas, "a tuple of noise levels", "calibrate, or use general_schedule")
        check_ascending("sigmas", self.sigmas[::-1], strictly=False)

    def decide(self, observation: Observation, state: Placement | None = None) -> tuple[Decision, Placement]:
        """Compute planned and forced steps, and all of a short generation; `Limits.max_consecutive` is ignored."""
        placement = state or Placement(self.place(observation), observation.step)
        step = observation.step
        levels = observation.noise_levels
        expected = self._expected_error(levels[placement.last_full], levels[step])
        reason = self._reason_to_compute(observation, placement)
        if reason is None:
            return Decision(True, Reason.SCHEDULE, expected_error=expected), placement
        full_steps = placement.full_steps
        if reason is Reason.NO_HISTORY:
            # This step replaces a planned step right after it, unless that one is forced.
            first_kept = observation.steps - observation.limits.keep_last
            if step + 1 < first_kept:
                full_steps = tuple(full for full in full_steps if full != step + 1)
        return Decision(False, reason, expected_error=expected), Placement(full_steps, last_full=step)

    def _reason_to_compute(self, observation: Observation, placement: Placement) -> Reason | None:
        """Why the step is computed; None if it is reused."""
        if observation.steps < self.fewest_steps:
            return Reason.UNSERVED
        if observation.step in placement.full_steps:
            return Reason.SCHEDULE
        if observation.forced is Reason.CAP:
            return None
        return observation.forced

    def place(self, observation: Observation) -> tuple[int, ...]:
        """Indices of the steps to compute, rising: `full_step_count` of those that run, or more if more are forced.

        `observation` may be that of any step of the generation.
        """
        levels = observation.noise_levels[observation.first :]
        steps = len(levels)
        switch = self._switch(levels)
        count = full_step_count(steps, self.speedup)
        planned = self.planned(observation, count, switch)
        full_steps = with_forced(planned, observation.warmup_steps, observation.limits.keep_last, steps, switch)
        return tuple(observation.first + step for step in full_steps)

    def _switch(self, levels: Sequence[float]) -> int:
        """The first step of a second transformer; 0 without one."""
        if self.boundary is not None:
            for step, level in enumerate(levels):
                if level < self.boundary:
                    return step
        return 0

    def planned(self, observation: Observation, count: int, switch: int) -> tuple[int, ...]:
        """The `count` planned steps of those that run, from the first of these; `switch` is one of them."""
        levels = observation.noise_levels[observation.first :]
        return place_full_steps(self.sigmas, count, levels, switch, self.planned_sigmas)

    def _expected_error(self, last_full_sigma: float, sigma: float) -> float | None:
        if self.cumulative_distance is None or self.error_map is None:
            return None
        distance = self.cumulative_distance(sigma) - self.cumulative_distance(last_full_sigma)
        return self.error_map(distance, sigma)


def full_step_count(steps: int, speedup: float) -> int:
    """Number of full steps among `steps`: `steps` / `speedup`, rounded, at most `steps`, but never below 2."""
    return max(2, min(steps, round(steps / speedup)))


def place_full_steps(
    planned: tuple[float, ...],
    count: int,
    sigmas: tuple[float, ...],
    switch: int = 0,
    planned_sigmas: tuple[float, ...] = (),
) -> tuple[int, ...]:
    """Indices of `count` (at least 2) steps to compute, rising, among them the first, the last and, from 3, `switch`.

    The `planned` noise levels are interpolated to `count`, and placed among the `sigmas` of all steps; if given, among
    `planned_sigmas`, those of all steps of the plan, whose relative positions they keep.
    """
    last = len(planned) - 1
    positions = [last * index / max(1, count - 1) for index in range(count)]
    targets = np.interp(positions, np.arange(last + 1), planned)
    levels = planned_sigmas or sigmas
    steps = np.linspace(0, len(sigmas) - 1, len(levels))
    # Noise levels fall, and np.interp takes rising ones.
    places = np.interp(-targets, -np.asarray(levels), steps)
    return moved_to(switch, distinct_steps(places.tolist(), len(sigmas)))


def distinct_steps(places: Sequence[float], steps: int) -> tuple[int, ...]:
    """Round 2 or more rising positions `places` to distinct step indices; the first is 0, the last `steps` - 1."""
    chosen: list[int] = []
    lowest = 0
    for index, place in enumerate(places):
        highest = steps - len(places) + index  # leaves a step for each later place
        step = min(max(round(place), lowest), highest)
        chosen.append(step)
        lowest = step + 1
    chosen[0] = 0
    chosen[-1] = steps - 1
    return tuple(chosen)


def moved_to(switch: int, chosen: tuple[int, ...]) -> tuple[int, ...]:
    """The steps `chosen`, of which the one nearest to `switch` is moved there, unless they are fewer than 3."""
    if switch in chosen or len(chosen) < 3:
        return chosen
    nearest = min(chosen[1:-1], key=lambda step: abs(step - switch))
    return tuple(sorted({*chosen, switch} - {nearest}))


def with_forced(
    full_steps: tuple[int, ...], warmup_steps: int, keep_last: int, steps: int, switch: int = 0
) -> tuple[int, ...]:
    """The `full_steps`, changed to include the first, the last and `switch` (a second transformer's first, else 0).

    Forced steps replace others, of which an evenly spread selection remains, so the number grows only if it must.
    """
    warm_up = range(min(warmup_steps, steps))
    last_steps = range(max(0, steps - keep_last), steps)
    forced = {switch, *warm_up, *last_steps}
    others = [step for step in full_steps if step not in forced]
    left = max(0, len(full_steps) - len(forced))
    if left < len(others):
        spread = [int((index + 0.5) * len(others) / left) for index in range(left)]
        others = [others[index] for index in spread]
    return tuple(sorted(forced.union(others)))
