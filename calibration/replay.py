"""Replay the controller on recorded trajectories: which steps it would compute."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from galaxydit.budget import decide_with_plan
from galaxydit.calibration.recording import CONDITIONAL, Recording
from galaxydit.config import Config
from galaxydit.controller import ControllerState, Observation
from galaxydit.planning import plan_of
from galaxydit.profile import Profile, Target


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


def mean_distances(recordings: Sequence[Recording], proxy: str) -> tuple[float, ...]:
    """Mean distance of each step over the recordings."""
    rows = np.array([recording.distances[CONDITIONAL][proxy] for recording in recordings])
    return tuple(float(value) for value in rows.mean(axis=0))


def planned_config(profile: Profile, target: Target, speedup: float) -> Config | None:
    """The controller's settings for a target; None where the plan cannot be reached."""
    plan = plan_of(profile, target, 1.0)
    if speedup * plan.cost_of_reuse >= 1:
        return None
    return replace(profile.config_for(Config(), target), plan=replace(plan, speedup=speedup))
