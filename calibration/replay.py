"""Replay the controller on recorded trajectories: which steps it would compute, and what its reuse would cost."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from galaxydit.budget import decide_with_plan
from galaxydit.calibration.recording import CONDITIONAL, LONGEST_LAG, Recording
from galaxydit.config import Config
from galaxydit.controller import ControllerState, Observation
from galaxydit.plan import Plan, step_weights
from galaxydit.profile import Profile, Target

DECAY = 0.0
LONGEST_GAP = 8


@dataclass(frozen=True)
class Replayed:
    """A replay: the steps computed, and the expected error at each reused step."""

    full: tuple[int, ...]
    expected: tuple[float, ...]


def replay(sigmas: tuple[float, ...], distances: Sequence[float], config: Config) -> Replayed:
    """What the controller decides when it sees these distances, one a step."""
    state, full, expected = ControllerState(), [], []
    for step, distance in enumerate(distances):
        observation = Observation(step, len(sigmas), distance if step else None, step > 0, sigmas)
        decision, state = decide_with_plan(observation, state, config)
        if decision.reuse:
            expected.append(decision.expected_error or 0.0)
        else:
            full.append(step)
    return Replayed(tuple(full), tuple(expected))


def error_of_schedule(recording: Recording, full: Sequence[int], order: int, decay: float = DECAY) -> float:
    """Weighted mean of the true prediction errors at the steps that a schedule reuses, as recorded without reuse.

    Each counts by its weight (see `step_weights`).
    """
    weights = step_weights(recording.steps, decay)
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


def planned_config(profile: Profile, target: Target, speedup: float) -> Config | None:
    """The controller's settings for a target; None where the plan cannot be reached."""
    if speedup * profile.reused_cost >= 1:
        return None
    plan = Plan(
        speedup=speedup,
        error_map=profile.error_map,
        sigmas=profile.conditions.sigmas,
        clock=profile.clock,
        schedule=target.schedule,
        follow=target.follow,
        decay=target.decay,
        reused_cost=profile.reused_cost,
    )
    return replace(profile.config_for(Config(), target), plan=plan)
