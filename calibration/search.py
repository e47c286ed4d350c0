"""The best fixed schedule for a number of full steps, found exactly on the recorded generations."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from galaxydit.calibration.drift import Drift, Weights
from galaxydit.calibration.recording import CONDITIONAL, Recording
from galaxydit.calibration.replay import mean_distances, planned_config, replay
from galaxydit.calibration.weights import choose_pull, fit_weights
from galaxydit.controller import warmup_steps
from galaxydit.profile import Profile, Target
from galaxydit.propagation import Propagation

WARMUP = 0.0  # a longer one costs full steps that serve better later; measured, see README.md
WARMUP_OF_BUDGET = 0.4
CAP_ROOM = 2
LONGEST_GAP = 12  # steps between two full ones
MOVES = (-1, 1, -2, 2)
FOLLOWS = (0.25, 0.5, 0.75, 1.0)

Array = NDArray[np.float64]
Schedule = tuple[int, ...]


class Planner:
    """Plans speedups from the same recordings; `profile` says which proxy they may follow, and how errors propagate."""

    def __init__(self, profile: Profile, recordings: Sequence[Recording], *, warmup: float = WARMUP) -> None:
        self.profile = profile
        self.recordings = recordings
        self.warmup = warmup
        self.drift = Drift(recordings)
        self._alone = [Drift([recording]) for recording in recordings]
        self._distances = mean_distances(recordings, profile.proxy)
        self._schedules: dict[int, dict[int, Schedule]] = {}

    def target(self, speedup: float) -> Target | None:
        """The best schedule for a speedup on the recordings, and the settings around it; None where there is none.

        Two ways are tried. One schedule for all, whose predictions are weighed as fits it best, reads no proxy.
        Following the sample's own signal costs what the proxy costs, so that fewer full steps are left, and no weights
        fit full steps that move.
        """
        fixed, moved = self.fixed(speedup), self._with_schedule(self._draft(speedup, 1.0))
        choices = [] if fixed is None else [fixed]
        choices += [] if moved is None else [replace(moved, follow=follow) for follow in FOLLOWS]
        return min(choices, key=self._cost, default=None)

    def fixed(self, speedup: float) -> Target | None:
        """The same with one schedule for all."""
        return self._with_schedule(self._draft(speedup, 0.0))

    def _draft(self, speedup: float, follow: float) -> Target:
        # The warm-up leaves room: at most 0.4 of the full steps belong to it.
        return Target(speedup, min(self.warmup, WARMUP_OF_BUDGET / speedup), None, follow=follow)

    def _with_schedule(self, draft: Target) -> Target | None:
        """The target with the schedule that serves its number of full steps best."""
        sigmas, propagation = self.drift.sigmas, self.profile.propagation
        # Any schedule makes a plan that follows nothing count as one that reads no proxy.
        config = planned_config(self.profile, replace(draft, schedule=sigmas), draft.speedup)
        if config is None or config.plan is None:
            return None
        warmup = warmup_steps(len(sigmas), draft.warmup)
        if warmup not in self._schedules:
            found = best_schedules(self.drift, len(sigmas), propagation, warmup=warmup)
            self._schedules[warmup] = {count: schedule for count, (schedule, _) in found.items()}
        schedule = self._schedules[warmup].get(config.plan.full_steps(len(sigmas)))
        if schedule is None:
            return None
        weights: Weights = ()
        pull = choose_pull(self.recordings, schedule, propagation) if draft.follow == 0 else None
        if pull is not None:
            schedule = refined(self.drift, schedule, propagation, pull, warmup=warmup)
            weights, _ = fit_weights(self.drift, schedule, propagation, pull)
        target = replace(
            draft,
            schedule=tuple(sigmas[step] for step in schedule),
            weights=weights,
            max_consecutive=max(int(gap) for gap in np.diff(schedule)) - 1 + CAP_ROOM,
        )
        final = planned_config(self.profile, target, draft.speedup)
        if final is None:
            return None
        played = replay(sigmas, self._distances, final)
        return replace(target, expected_error=float(f"{max(played.expected, default=0.0):.6g}"))

    def _cost(self, target: Target) -> float:
        """Mean error at the end when each recording is replayed with its own signal."""
        config = planned_config(self.profile, target, target.speedup)
        if config is None:
            return math.inf
        weights, costs = target.weights or None, []
        for recording, drift in zip(self.recordings, self._alone, strict=True):
            full = replay(recording.sigmas, recording.distances[CONDITIONAL][self.profile.proxy], config).full
            costs.append(drift.at_the_end(full, self.profile.propagation, weights)[0])
        return float(f"{np.mean(costs):.9g}")


def best_schedules(
    drift: Drift, most: int, propagation: Propagation, *, warmup: int = 1
) -> dict[int, tuple[Schedule, float]]:
    """For each number of full steps up to `most` the steps to compute, first and last included, and the mean square
    error of the final latent that order 1 then leads to, in the mean over the recordings, if gaps were unrelated (see
    `Drift`). Numbers that no schedule is found for are left out.

    The first `warmup` steps are computed; the others are where they serve best.

    What a run of reused steps costs depends on the two full steps before it, so that dynamic programming over pairs of
    neighbouring full steps finds the optimum among all schedules without a gap of more than 12 steps.
    """
    steps = len(drift.sigmas)
    cost = gap_costs(drift, propagation)
    # best[at, gap, used]: least cost of a schedule whose `used` full steps end with `at - gap` and `at`.
    best: dict[tuple[int, int, int], tuple[float, Schedule]] = {(0, 0, 1): (0.0, (0,))}
    for at in range(steps - 1):
        for gap_before in range(LONGEST_GAP + 1):
            for used in range(1, most):
                state = best.get((at, gap_before, used))
                if state is None:
                    continue
                for gap in range(1, 2 if at + 1 < warmup else min(LONGEST_GAP, steps - 1 - at) + 1):
                    total = state[0] + cost[at, gap_before, gap]
                    key = (at + gap, gap, used + 1)
                    known = best.get(key)
                    if known is None or total < known[0]:
                        best[key] = (total, (*state[1], at + gap))
    found: dict[int, tuple[Schedule, float]] = {}
    for (at, _, used), (total, schedule) in best.items():
        if at == steps - 1 and (used not in found or (total, schedule) < (found[used][1], found[used][0])):
            found[used] = (schedule, total)
    return found


def gap_costs(drift: Drift, propagation: Propagation) -> Array:
    """`(step, gap before, gap)`: what reusing all steps between a full step and the one `gap` steps later adds to the
    mean square error of the final latent at order 1.
    """
    steps = len(drift.sigmas)
    costs = np.zeros((steps, LONGEST_GAP + 1, LONGEST_GAP + 1))
    for at in range(steps):
        gain = propagation.gain(drift.sigmas[at])
        for before in range(0, min(LONGEST_GAP, at) + 1):
            anchors = (at - before, at) if before else (at,)
            for gap in range(2, min(LONGEST_GAP, steps - 1 - at) + 1):
                drifted = drift.terms(anchors, at + gap)[:2].sum(axis=0)
                costs[at, before, gap] = gain**2 * max(0.0, float(drifted @ drift.mean_products @ drifted))
    return costs


def refined(drift: Drift, schedule: Schedule, propagation: Propagation, pull: float, *, warmup: int = 1) -> Schedule:
    """A schedule from which no full step can be moved by one or two places with gain, each with its best weights."""
    best, least = schedule, fit_weights(drift, schedule, propagation, pull)[1]
    improved = True
    while improved:
        improved = False
        for index in range(max(1, warmup), len(schedule) - 1):
            for move in MOVES:
                place = best[index] + move
                if not best[index - 1] < place < best[index + 1]:
                    continue
                moved = (*best[:index], place, *best[index + 1 :])
                error = fit_weights(drift, moved, propagation, pull)[1]
                if error < least * (1 - 1e-6):
                    best, least, improved = moved, error, True
    return best
