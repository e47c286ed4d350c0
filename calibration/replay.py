"""Replay the controller on recorded trajectories: which steps it would compute, and what its reuse would cost."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from galaxydit.budget import decide_with_plan
from galaxydit.calibration.recording import CONDITIONAL, LONGEST_LAG, Recording
from galaxydit.config import Config
from galaxydit.controller import ControllerState, Observation
from galaxydit.plan import Plan, step_weights
from galaxydit.profile import Profile, Target

WARMUPS = (0.04, 0.08, 0.12, 0.16, 0.2, 0.3)
CAPS = (2, 3, 4, 6, 8)
DECAY = 0.5
LONGEST_GAP = 8


@dataclass(frozen=True)
class Replayed:
    """A replay: the steps computed, the expected error at each reused step, and the thresholds that were in force."""

    full: tuple[int, ...]
    expected: tuple[float, ...]
    thresholds: tuple[float, ...]


def replay(sigmas: tuple[float, ...], distances: Sequence[float], config: Config) -> Replayed:
    """What the controller decides when it sees these distances, one a step."""
    state, full, expected, thresholds = ControllerState(), [], [], []
    for step, distance in enumerate(distances):
        observation = Observation(step, len(sigmas), distance if step else None, step > 0, sigmas)
        decision, state = decide_with_plan(observation, state, config)
        if decision.reuse:
            expected.append(decision.expected_error or 0.0)
        else:
            full.append(step)
        if state.threshold is not None:
            thresholds.append(state.threshold)
    return Replayed(tuple(full), tuple(expected), tuple(thresholds))


def error_of_schedule(recording: Recording, full: Sequence[int], order: int, decay: float = DECAY) -> float:
    """Weighted mean of the true prediction errors at the steps that a schedule reuses, as recorded without reuse.

    Each counts by the size of its step, by its relative error, and by how much is still to come (see `step_weights`).
    """
    weights = step_weights(recording.sigmas, decay)
    total, anchors = 0.0, [-1, -1]
    computed = set(full)
    for step in range(recording.steps):
        if step in computed:
            anchors = [anchors[1], step]
            continue
        total += weights[step] * recorded_error(recording, step, anchors[1], anchors[0], order)
    return total / recording.steps


def recorded_error(recording: Recording, step: int, newest: int, older: int, order: int) -> float:
    """True error of predicting `step` from two full steps; beyond what was recorded it grows with the gap."""
    gap = step - newest
    near = min(gap, LONGEST_GAP)
    anchor = step - near
    before = min(max(1, newest - older), LONGEST_LAG - near, anchor)
    use_order = order if older >= 0 and before >= 1 else 0
    error = recording.error_at(step, use_order, near, before)
    return (error or 0.0) * gap / near


def mean_distances(recordings: Sequence[Recording], proxy: str) -> tuple[float, ...]:
    """Mean distance of each step over the recordings."""
    rows = np.array([recording.distances[CONDITIONAL][proxy] for recording in recordings])
    return tuple(float(value) for value in rows.mean(axis=0))


def choose_target(profile: Profile, recordings: Sequence[Recording], speedup: float) -> Target | None:
    """The warm-up and cap with which the plan for this speedup costs least error on the calibration's recordings.

    None where no setting leaves enough steps to reuse.
    """
    sigmas, distances = recordings[0].sigmas, mean_distances(recordings, profile.proxy)
    best: tuple[float, Target, Replayed] | None = None
    tried: dict[tuple[int, ...], float] = {}
    for warmup, cap in product(WARMUPS, CAPS):
        target = Target(speedup, warmup, cap, DECAY)
        config = planned_config(profile, target, speedup)
        if config is None:
            continue
        played = replay(sigmas, distances, config)
        if len(played.full) != config.plan.full_steps(len(sigmas)):  # type: ignore[union-attr]
            continue
        if played.full not in tried:
            costs = [error_of_schedule(recording, played.full, profile.order) for recording in recordings]
            tried[played.full] = float(np.mean(costs))
        # Of equal schedules the one with more warm-up and the lower cap: it is safer on a sample unlike these.
        cost = round(tried[played.full], 9)
        key = (cost, -warmup, cap)
        if best is None or key < (best[0], -best[1].warmup, best[1].max_consecutive or 0):
            best = (cost, target, played)
    if best is None:
        return None
    _, target, played = best
    threshold = float(np.mean(played.thresholds)) if played.thresholds else 0.0
    largest = max(played.expected, default=0.0)
    return replace(target, threshold=float(f"{threshold:.6g}"), expected_error=float(f"{largest:.6g}"))


def planned_config(profile: Profile, target: Target, speedup: float) -> Config | None:
    """The controller's settings for a target; None where the plan cannot be reached."""
    if speedup * profile.reused_cost >= 1:
        return None
    plan = Plan(
        speedup=speedup,
        error_map=profile.error_map,
        sigmas=profile.conditions.sigmas,
        clock=profile.clock,
        decay=target.decay,
        reused_cost=profile.reused_cost,
    )
    return replace(profile.config_for(Config(), target), plan=plan)
