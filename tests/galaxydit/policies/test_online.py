import math

import pytest

from galaxydit.config import GalaxyDiTConfig
from galaxydit.errors import GalaxyDiTError
from galaxydit.policies.error_map import Curve, ErrorMap
from galaxydit.policies.general_schedule import general_schedule
from galaxydit.policies.online import Online
from galaxydit.policies.policy import Controller, Decision, Limits, Observation, Policy, Reason

LINE = ErrorMap((Curve(0.5, (0.1, 1.0), (0.05, 0.5), (0.0, 0.0)),))


def shifted_sigmas(steps: int, shift: float = 8.0) -> tuple[float, ...]:
    """Flow-matching noise levels as Wan's scheduler makes them."""
    even = [1 - step / steps for step in range(steps)]
    return tuple(shift * sigma / (1 + (shift - 1) * sigma) for sigma in even)


def config(policy: Policy, warmup: float = 0.1, max_consecutive: int | None = None) -> GalaxyDiTConfig:
    return GalaxyDiTConfig(policy, warmup=warmup, max_consecutive=max_consecutive)


def play(config: GalaxyDiTConfig, distances: list[float], errors: list[float | None] | None = None) -> list[Decision]:
    """The decision at each step."""
    steps, controller = len(distances), Controller(config.policy, config.limits)
    return [
        controller.decide(
            Observation(
                step,
                steps,
                distance if step else None,
                step > 0,
                shifted_sigmas(steps),
                errors[step] if errors else None,
            )
        )
        for step, distance in enumerate(distances)
    ]


def full_steps(decisions: list[Decision]) -> int:
    return sum(not decision.reuse for decision in decisions)


def test_max_error_is_never_passed_and_needs_no_budget() -> None:
    decisions = play(config(Online(0.12, LINE)), [0.1] * 50)
    expected = [decision.expected_error for decision in decisions if decision.reuse]
    assert max(expected) == pytest.approx(0.1)
    assert len(expected) > 20


def test_with_a_schedule_its_steps_are_computed_besides() -> None:
    policy = Online(0.16, LINE, general_schedule(10.0))
    lively = [0.1] * 50
    lively[15] = 0.4
    decisions = play(config(policy, warmup=0.0), lively)
    scheduled = {step for step, decision in enumerate(play(config(policy.schedule, 0.0), lively)) if not decision.reuse}
    full = {step for step, decision in enumerate(decisions) if not decision.reuse}
    assert scheduled | {15} < full
    assert decisions[15].reason is Reason.ABOVE_MAX_ERROR
    assert max(decision.expected_error or 0.0 for decision in decisions if decision.reuse) <= 0.16


def test_without_a_profile_errors_are_learned_from_full_steps() -> None:
    settings = config(Online(max_error=0.2), warmup=0.2)
    errors: list[float | None] = [None, None] + [0.05] * 8 + [None] * 40
    decisions = [decision.reuse for decision in play(settings, [0.1] * 50, errors)]
    assert not any(decisions[:10])
    # The ratio is 0.5, so that the error is expected to pass 0.2 when the distance passes 0.4.
    assert decisions[10:15] == [True, True, True, True, False]
    unknown = play(settings, [0.1] * 50)
    assert {decision.reason for decision in unknown[10:-1]} == {Reason.UNKNOWN_ERROR}


@pytest.mark.parametrize("distance", [None, math.nan, math.inf])
def test_a_distance_that_is_not_understood_computes_the_step(distance: float | None) -> None:
    controller = Controller(Online(0.5, LINE), Limits())
    assert not controller.decide(Observation(30, 50, distance, True, shifted_sigmas(50))).reuse


@pytest.mark.parametrize(
    ("options", "field"),
    [({"max_error": -1.0}, "max_error"), ({"max_error": 0.1, "schedule": 2.0}, "schedule")],
)
def test_what_cannot_be_a_limit_is_refused(options: dict, field: str) -> None:
    with pytest.raises(GalaxyDiTError, match=field):
        Online(**options)
