"""The decision, step by step: compute or reuse. Pure functions of plain numbers, each tested and explained alone."""

import math
from dataclasses import dataclass, replace

from galaxydit.config import FEW_STEPS, Config


@dataclass(frozen=True)
class Observation:
    """What is known when a step is decided.

    Attributes:
        step: index of the step, from 0.
        steps: number of steps of the generation.
        distance: relative L1 distance of the proxy since the previous step, at least 0; None where none was measured.
        has_history: whether every guidance branch has a full step to reuse.
        sigmas: noise level of every step of the generation, falling; None where the scheduler tells none.
        error: true relative error of the prediction that the last full step could be compared with; None where none
            was made.
    """

    step: int
    steps: int
    distance: float | None
    has_history: bool
    sigmas: tuple[float, ...] | None = None
    error: float | None = None


@dataclass(frozen=True)
class ControllerState:
    """What the controller carries from step to step: distance since the last full step, and reused steps in a row.

    The rest serves a plan: full steps so far and the last of them, the pace of this sample (distance observed, and
    usual for the same steps), and the ratio of true errors to distances learned so far.
    """

    accumulated: float = 0.0
    consecutive: int = 0
    started: bool = False
    full: int = 0
    last_full: int = 0
    observed: float = 0.0
    usual: float = 0.0
    recent: float | None = None
    tested_distance: float = 0.0
    error_sum: float = 0.0
    distance_sum: float = 0.0
    ratio: float | None = None


@dataclass(frozen=True)
class Decision:
    """Whether the step is reused, why, the summed distance that was held against the threshold, and with a plan the
    relative error to be expected from reuse and the weights of the prediction (see `reuse.predict`).
    """

    reuse: bool
    reason: str
    accumulated: float
    expected_error: float | None = None
    weights: tuple[float, float] | None = None


def warmup_steps(steps: int, warmup: float) -> int:
    """How many first steps are always computed: the share `warmup` of `steps`, rounded up, at least one."""
    return max(1, math.ceil(round(steps * warmup, 9)))


def must_compute(observation: Observation, state: ControllerState, config: Config) -> str | None:
    """The reason why this step cannot be reused whatever the proxy says, or None."""
    step, steps = observation.step, observation.steps
    if steps <= FEW_STEPS:
        return "few steps"
    if config.schedule is not None:
        if step in config.schedule:
            return "schedule"
        return None if observation.has_history else "nothing to reuse yet"
    if config.threshold == 0 and config.plan is None:
        return "threshold is 0"
    if step < warmup_steps(steps, config.warmup):
        return "warm-up"
    if step >= steps - config.keep_last:
        return "last steps"
    if not observation.has_history:
        return "nothing to reuse yet"
    if config.max_consecutive is not None and state.consecutive >= config.max_consecutive:
        return "cap on consecutive reuse"
    return None


def decide(observation: Observation, state: ControllerState, config: Config) -> tuple[Decision, ControllerState]:
    """Decide one step and return the state for the next one.

    The distance adds up from the last full step on; the step is reused while the sum stays below the threshold.
    A distance that is missing or not finite counts as not understood: the step is computed.
    """
    forced = must_compute(observation, state, config)
    if config.schedule is not None and forced is None:
        return Decision(True, "schedule", 0.0), replace(state, consecutive=state.consecutive + 1)
    distance = observation.distance
    known = distance is not None and math.isfinite(distance)
    accumulated = state.accumulated + distance if known and distance is not None else math.inf
    if forced is None and accumulated < config.threshold:
        return (
            Decision(True, "below threshold", accumulated),
            ControllerState(accumulated=accumulated, consecutive=state.consecutive + 1),
        )
    reason = forced or ("above threshold" if known else "no distance")
    return Decision(False, reason, accumulated), ControllerState()


def reads_proxy(config: Config) -> bool:
    """Whether these settings need the proxy at all."""
    if config.schedule is not None:
        return False
    return config.threshold > 0 if config.plan is None else config.plan.reads_proxy


def reuses(config: Config) -> bool:
    """Whether these settings ever reuse a step."""
    return config.schedule is not None or config.plan is not None or config.threshold > 0
