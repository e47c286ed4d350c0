"""The best fixed schedule for a number of full steps, found exactly on the recorded generations."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from galaxydit.calibration.drift import Drift
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


def choose_target(
    profile: Profile, recordings: Sequence[Recording], speedup: float, *, warmup: float = WARMUP
) -> Target | None:
    """The best schedule for a speedup on the recordings, and the settings around it; None where there is none.

    Two ways are tried. One schedule for all, whose predictions are weighed as fits it best, reads no proxy. Following
    the sample's own signal costs what the proxy costs, so that fewer full steps are left, and no weights fit full steps
    that move.
    """
    # The warm-up leaves room: at most 0.4 of the full steps belong to it.
    draft = Target(speedup, min(warmup, WARMUP_OF_BUDGET / speedup), None)
    fixed = _with_schedule(profile, recordings, replace(draft, follow=0.0))
    moved = _with_schedule(profile, recordings, replace(draft, follow=1.0))
    choices = [] if fixed is None else [fixed]
    choices += [] if moved is None else [replace(moved, follow=follow) for follow in FOLLOWS]
    return min(choices, key=lambda target: _cost(profile, recordings, target), default=None)


def _with_schedule(profile: Profile, recordings: Sequence[Recording], draft: Target) -> Target | None:
    """The target with the schedule that serves its number of full steps best."""
    speedup, sigmas = draft.speedup, recordings[0].sigmas
    # Any schedule makes a plan that follows nothing count as one that reads no proxy.
    config = planned_config(profile, replace(draft, schedule=sigmas), speedup)
    if config is None or config.plan is None:
        return None
    count, warmup = config.plan.full_steps(len(sigmas)), warmup_steps(len(sigmas), draft.warmup)
    drift = Drift(recordings)
    try:
        schedule, _ = best_schedule(drift, count, profile.propagation, warmup=warmup)
    except ValueError:
        return None
    weights = None
    pull = choose_pull(recordings, schedule, profile.propagation) if draft.follow == 0 else None
    if pull is not None:
        schedule = refined(drift, schedule, profile.propagation, pull, warmup=warmup)
        weights, _ = fit_weights(drift, schedule, profile.propagation, pull)
    widest = max(int(gap) for gap in np.diff(schedule)) - 1
    target = replace(
        draft,
        schedule=tuple(sigmas[step] for step in schedule),
        weights=weights or (),
        max_consecutive=widest + CAP_ROOM,
    )
    final = planned_config(profile, target, speedup)
    if final is None:
        return None
    played = replay(sigmas, mean_distances(recordings, profile.proxy), final)
    return replace(target, expected_error=float(f"{max(played.expected, default=0.0):.6g}"))


def _cost(profile: Profile, recordings: Sequence[Recording], target: Target) -> float:
    """Mean error at the end when each recording is replayed with its own signal."""
    config = planned_config(profile, target, target.speedup)
    if config is None:
        return math.inf
    costs = []
    for recording in recordings:
        full = replay(recording.sigmas, recording.distances[CONDITIONAL][profile.proxy], config).full
        weights = target.weights or None
        costs.append(Drift([recording]).at_the_end(full, profile.propagation, weights)[0])
    return float(f"{np.mean(costs):.9g}")


def best_schedule(
    drift: Drift, full_steps: int, propagation: Propagation, *, warmup: int = 1
) -> tuple[tuple[int, ...], float]:
    """The steps to compute, first and last included, and the mean square error of the final latent that order 1 then
    leads to, in the mean over the recordings, if gaps were unrelated (see `Drift`).

    The first `warmup` steps are computed; the others are where they serve best.

    What a run of reused steps costs depends on the two full steps before it, so that dynamic programming over pairs of
    neighbouring full steps finds the optimum among all schedules without a gap of more than 12 steps.
    """
    steps = len(drift.sigmas)
    cost = gap_costs(drift, propagation)
    # best[before, gap]: least cost of a schedule whose last full steps are `at` and `at - gap`, for each `at` in turn.
    best: dict[tuple[int, int, int], tuple[float, tuple[int, ...]]] = {(0, 0, 1): (0.0, (0,))}
    for at in range(steps - 1):
        for gap_before in range(LONGEST_GAP + 1):
            for used in range(1, full_steps):
                state = best.get((at, gap_before, used))
                if state is None:
                    continue
                for gap in range(1, 2 if at + 1 < warmup else min(LONGEST_GAP, steps - 1 - at) + 1):
                    total = state[0] + cost[at, gap_before, gap]
                    key = (at + gap, gap, used + 1)
                    known = best.get(key)
                    if known is None or total < known[0]:
                        best[key] = (total, (*state[1], at + gap))
    ends = [best[key] for key in best if key[0] == steps - 1 and key[2] == full_steps]
    if not ends:
        raise ValueError(f"{full_steps} full steps of {steps} leave gaps of more than {LONGEST_GAP} steps")
    total, schedule = min(ends)
    return schedule, total


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


def refined(
    drift: Drift, schedule: tuple[int, ...], propagation: Propagation, pull: float, *, warmup: int = 1
) -> tuple[int, ...]:
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
