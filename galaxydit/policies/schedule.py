"""Policies that know beforehand which steps to compute: a schedule for a speedup, or a fixed list of steps.

A full step is a computed step. A proxy is a cheap tensor whose change shows how much the transformer's output changes.
The proxy distance is the relative change of the proxy from step to step, summed over steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from galaxydit.errors import check_ascending, check_count, check_number, refusal
from galaxydit.policies.budget import distinct_steps, full_step_count
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
        for step in self.steps:
            check_count("steps", step, minimum=0)
        object.__setattr__(self, "steps", tuple(sorted(set(self.steps))))

    def decide(self, observation: Observation, state: None = None) -> tuple[Decision, None]:
        """Compute the listed steps, and steps without an earlier full step; reuse the others. There is no state."""
        if observation.step in self.steps:
            return Decision(False, Reason.SCHEDULE), None
        if not observation.has_history:
            return Decision(False, Reason.NO_HISTORY), None
        return Decision(True, Reason.SCHEDULE), None


@dataclass(frozen=True)
class Placement:
    """A schedule placed on the steps of one generation.

    Attributes:
        full_steps: indices of the steps to compute, rising.
        last_full: index of the latest step computed so far; before any is computed, the index of the first step that
            the schedule decides, which is above 0 where a video is denoised from its middle, and for a second
            transformer.
    """

    full_steps: tuple[int, ...]
    last_full: int


@dataclass(frozen=True)
class Schedule:
    """Compute the steps that a calibration, or `general_schedule` for any model, planned for a speedup.

    Attributes:
        speedup: steps / full steps, at least 1. Without a proxy, it is also block evaluations without the plugin / with
            it.
        sigmas: noise levels of the planned full steps, falling. If a generation computes another number of full steps,
            they are interpolated to that number.
        error_map: expected error of a reused step by proxy distance since the last full step and sigma, for the report;
            None leaves the error unknown.
        cumulative_distance: proxy distance from the first step to each sigma, mean over the samples of the calibration.
            `error_map` takes its increase since the last full step in place of the sample's own distance, because the
            proxy is not read. None leaves the error unknown.
        fewest_steps: generations of fewer steps than this are computed in full.
        boundary: noise level below which a second transformer computes; the first step of the second transformer is
            always computed. None for a single transformer.
        planned_sigmas: noise levels of all steps of the plan, falling. With them, planned steps keep their positions
            among all steps if the flow shift differs; without them, planned steps keep their noise levels.
    """

    speedup: float
    sigmas: tuple[float, ...]
    error_map: ErrorMap | None = None
    cumulative_distance: CumulativeDistance | None = None
    fewest_steps: int = 0
    boundary: float | None = None
    planned_sigmas: tuple[float, ...] = ()
    reads_proxy = False
    reuses = True
    learns_errors = False

    def __post_init__(self) -> None:
        check_number("speedup", self.speedup, 1.0)
        check_count("fewest_steps", self.fewest_steps, minimum=0)
        if not isinstance(self.sigmas, tuple) or not self.sigmas:
            raise refusal("sigmas", self.sigmas, "a tuple of noise levels", "calibrate, or use general_schedule")
        check_ascending("sigmas", self.sigmas[::-1], strictly=False)

    def decide(self, observation: Observation, state: Placement | None = None) -> tuple[Decision, Placement]:
        """Compute planned steps, first and last steps that the configuration's `Limits` force (`warmup`, `keep_last`),
        steps without a full step to reuse, and all steps of a generation of fewer than `fewest_steps`; reuse the
        others. The cap on steps reused in a row (`Limits.max_consecutive`) is ignored.

        Returns the decision and the `state` for the next step: the indices of the planned steps and of the latest full
        step (`Placement`). `state` is None at the first step.
        """
        placement = state or Placement(self.place(observation), observation.step)
        levels, step, forced = observation.noise_levels, observation.step, observation.forced
        expected = self._expected_error(levels[placement.last_full], levels[step])
        if observation.steps < self.fewest_steps:
            reason = Reason.UNSERVED
        elif step in placement.full_steps:
            reason = Reason.SCHEDULE
        elif forced is not None and forced is not Reason.CAP:
            reason = forced
            if forced is Reason.NO_HISTORY:  # stands for a planned step right after it
                placement = replace(placement, full_steps=without_next(placement.full_steps, step, observation))
        else:
            return Decision(True, Reason.SCHEDULE, expected_error=expected), placement
        return Decision(False, reason, expected_error=expected), replace(placement, last_full=step)

    def place(self, observation: Observation) -> tuple[int, ...]:
        """Indices of the steps to compute in a generation, rising: planned steps and forced steps.

        Forced are the first and last steps that the configuration always computes (`warmup` and `keep_last` of
        `observation.limits`) and the first step of a second transformer. The number of indices is that of the steps
        that run, divided by `speedup` and rounded, at least 2; more if more steps are forced. `observation` may be
        that of any step of the generation.
        """
        first, levels = observation.first, observation.noise_levels[observation.first :]
        steps = len(levels)
        switch = next((i for i, level in enumerate(levels) if self.boundary is not None and level < self.boundary), 0)
        count = full_step_count(steps, self.speedup)
        places = self.planned(observation, count, switch)
        full_steps = with_forced(places, observation.warmup_steps, observation.limits.keep_last, steps, switch)
        return tuple(first + step for step in full_steps)

    def planned(self, observation: Observation, count: int, switch: int) -> tuple[int, ...]:
        """The `count` planned steps of those that run, from the first of these; `switch` is one of them."""
        levels = observation.noise_levels[observation.first :]
        return place_full_steps(self.sigmas, count, levels, switch, self.planned_sigmas)

    def _expected_error(self, last_full_sigma: float, sigma: float) -> float | None:
        if self.cumulative_distance is None or self.error_map is None:
            return None
        return self.error_map(self.cumulative_distance(sigma) - self.cumulative_distance(last_full_sigma), sigma)


def without_next(full_steps: tuple[int, ...], step: int, observation: Observation) -> tuple[int, ...]:
    """The full steps without the one right after `step`, unless that is among the last steps, which are forced."""
    last = observation.steps - observation.limits.keep_last
    return tuple(planned for planned in full_steps if planned != step + 1 or planned >= last)


def place_full_steps(
    planned: tuple[float, ...],
    count: int,
    sigmas: tuple[float, ...],
    switch: int = 0,
    planned_sigmas: tuple[float, ...] = (),
) -> tuple[int, ...]:
    """Indices of `count` (at least 2) steps to compute, rising, among them the first step, the last step and, if
    `count` is at least 3, the step `switch`, the first step of a second transformer (0 without one).

    The `planned` noise levels of full steps are interpolated to `count` levels. Each level gets a fractional index by
    interpolation in `sigmas`, the noise levels of all steps of the generation. If the noise levels of all steps of the
    plan are given as `planned_sigmas`, its index among these is taken instead, scaled to the number of steps of the
    generation: it keeps its relative position among the steps, whatever the flow shift. The indices are rounded to
    distinct steps; then the step nearest to `switch` is moved there.
    """
    last = len(planned) - 1
    stretched = np.interp([last * index / max(1, count - 1) for index in range(count)], np.arange(last + 1), planned)
    levels = planned_sigmas or sigmas
    places = np.interp(-stretched, -np.asarray(levels), np.linspace(0, len(sigmas) - 1, len(levels)))
    return moved_to(switch, distinct_steps(places.tolist(), len(sigmas)))


def moved_to(switch: int, chosen: tuple[int, ...]) -> tuple[int, ...]:
    """The steps `chosen`, of which the one nearest to `switch` is moved there, unless they are fewer than 3."""
    if switch in chosen or len(chosen) < 3:
        return chosen
    nearest = min(chosen[1:-1], key=lambda step: abs(step - switch))
    return tuple(sorted({*chosen, switch} - {nearest}))


def with_forced(
    full_steps: tuple[int, ...], warmup_steps: int, keep_last: int, steps: int, switch: int = 0
) -> tuple[int, ...]:
    """The `full_steps` of a generation of `steps` steps, changed to include the forced steps; rising indices.

    Forced are the first `warmup_steps` steps, the last `keep_last` steps, and the step `switch`, the first step of a
    second transformer (0 without one). Forced steps that `full_steps` lacks replace other full steps, of which an
    evenly spread selection remains. So the number of full steps grows only if more steps are forced than `full_steps`
    has.
    """
    forced = {switch, *range(min(warmup_steps, steps)), *range(max(0, steps - keep_last), steps)}
    others = [step for step in full_steps if step not in forced]
    left = max(0, len(full_steps) - len(forced))
    kept = [others[int((index + 0.5) * len(others) / left)] for index in range(left)] if left < len(others) else others
    return tuple(sorted(forced.union(kept)))
