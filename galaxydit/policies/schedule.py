"""Policies that know beforehand which steps to compute: a schedule for a speedup, or a fixed list of steps."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from galaxydit.errors import check_ascending, check_count, check_number, refusal
from galaxydit.policies.budget import distinct_steps, full_step_count
from galaxydit.policies.error_map import CumulativeDistance, ErrorMap
from galaxydit.policies.policy import CAP, FEW_STEPS, IS_SHORT, NO_HISTORY, UNSERVED, Decision, Observation

PLANNED = "schedule"


@dataclass(frozen=True)
class FixedSteps:
    """Compute exactly these steps; the limits of the configuration do not apply.

    Attributes:
        steps: indices of the steps to compute, from 0; sorted, without duplicates.
    """

    steps: tuple[int, ...]
    reads_proxy = False
    history_length = 1
    learns_errors = False

    def __post_init__(self) -> None:
        if not isinstance(self.steps, Sequence | set | frozenset | range):
            raise refusal("steps", self.steps, "indices of steps", "pass for example steps=(0, 10, 49)")
        for step in self.steps:
            check_count("steps", step, minimum=0)
        object.__setattr__(self, "steps", tuple(sorted(set(self.steps))))

    def decide(self, observation: Observation, state: None = None) -> tuple[Decision, None]:
        if observation.steps <= FEW_STEPS:
            return Decision(False, IS_SHORT), None
        if observation.step in self.steps:
            return Decision(False, PLANNED), None
        if not observation.has_history:
            return Decision(False, NO_HISTORY), None
        return Decision(True, PLANNED), None


@dataclass(frozen=True)
class Schedule:
    """Compute the steps that serve a speedup best, as a calibration found them or as most models need them.

    Attributes:
        speedup: block evaluations without the plugin / with it, at least 1.
        sigmas: noise levels of the steps to compute, falling. Another number of steps stretches them.
        error_map: expected error by proxy distance and sigma; None leaves it unknown.
        cumulative_distance: mean proxy distance of the calibration, which gives the expected error, because the proxy
            is not read.
        fewest_steps: generations of fewer steps are computed in full.
        boundary: noise level below which a second transformer computes; its first step is always computed. None for a
            single transformer.
        planned_sigmas: noise levels of all steps that were planned, with which planned steps keep their places among
            all steps under another flow shift; without them they keep their noise levels.
    """

    speedup: float
    sigmas: tuple[float, ...]
    error_map: ErrorMap | None = None
    cumulative_distance: CumulativeDistance | None = None
    fewest_steps: int = 0
    boundary: float | None = None
    planned_sigmas: tuple[float, ...] = ()
    reads_proxy = False
    history_length = 1
    learns_errors = False

    def __post_init__(self) -> None:
        check_number("speedup", self.speedup, 1.0)
        check_count("fewest_steps", self.fewest_steps, minimum=0)
        if not isinstance(self.sigmas, tuple) or not self.sigmas:
            raise refusal("sigmas", self.sigmas, "a tuple of noise levels", "calibrate, or use general_schedule")
        check_ascending("sigmas", self.sigmas[::-1], strictly=False)

    def decide(self, observation: Observation, state: int | None = None) -> tuple[Decision, int]:
        """Compute the scheduled steps and those that the limits force, which take the places of scheduled ones.

        A generation that begins in the middle has the speedup of the steps that it runs. The state is the index of the
        last full step among them.
        """
        first, sigmas = observation.first, observation.noise_levels[observation.first :]
        step, steps = observation.step - first, observation.steps - first
        expected = self._expected_error(sigmas[step if state is None else state], sigmas[step])
        forced = UNSERVED if observation.steps < self.fewest_steps else observation.forced
        switch = next((i for i, sigma in enumerate(sigmas) if self.boundary is not None and sigma < self.boundary), 0)
        count = full_step_count(steps, self.speedup)
        planned = place_full_steps(self.sigmas, count, sigmas, switch, self.planned_sigmas)
        schedule = with_forced(planned, observation.warmup_steps, observation.keep_last, steps, switch)
        if step in schedule and forced != UNSERVED:
            return Decision(False, PLANNED, expected_error=expected), step
        if forced is not None and forced != CAP:
            return Decision(False, forced, expected_error=expected), step
        return Decision(True, PLANNED, expected_error=expected), step if state is None else state

    def _expected_error(self, last_full_sigma: float, sigma: float) -> float | None:
        if self.cumulative_distance is None or self.error_map is None:
            return None
        return self.error_map(self.cumulative_distance(sigma) - self.cumulative_distance(last_full_sigma), sigma)


@lru_cache(maxsize=64)
def place_full_steps(
    schedule: tuple[float, ...],
    count: int,
    sigmas: tuple[float, ...],
    switch: int = 0,
    planned_sigmas: tuple[float, ...] = (),
) -> tuple[int, ...]:
    """`count` steps to compute, rising, the first and the last step among them, and a second transformer's first step
    `switch`.

    The noise levels of the schedule are stretched to `count` of them, and each becomes the step of `sigmas` nearest to
    it; then the one nearest to `switch` is moved there. With the noise levels of all steps of the plan,
    `planned_sigmas`, places are shares of the steps instead, whatever the flow shift.
    """
    last = len(schedule) - 1
    stretched = np.interp([last * index / max(1, count - 1) for index in range(count)], np.arange(last + 1), schedule)
    levels = planned_sigmas or sigmas
    places = np.interp(-stretched, -np.asarray(levels), np.linspace(0, len(sigmas) - 1, len(levels)))
    chosen = distinct_steps(places.tolist(), len(sigmas))
    if switch in chosen or count < 3:
        return chosen
    nearest = min(chosen[1:-1], key=lambda step: abs(step - switch))
    return tuple(sorted({*chosen, switch} - {nearest}))


def with_forced(
    schedule: tuple[int, ...], warmup_steps: int, keep_last: int, steps: int, switch: int = 0
) -> tuple[int, ...]:
    """As many steps to compute, the first `warmup_steps`, the last `keep_last` and `switch` among them; more only if
    these are.

    Those that the schedule lacks take the places of others, spread evenly.
    """
    forced = {switch, *range(min(warmup_steps, steps)), *range(max(0, steps - keep_last), steps)}
    others = [step for step in schedule if step not in forced]
    left = max(0, len(schedule) - len(forced))
    kept = [others[int((index + 0.5) * len(others) / left)] for index in range(left)] if left < len(others) else others
    return tuple(sorted(forced.union(kept)))
