import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from galaxydit.errors import GalaxyDiTError
from galaxydit.policies.general_schedule import general_schedule
from galaxydit.policies.policy import Controller, Limits, Observation


def full_steps(speedup: float, steps: int, warmup: int = 1) -> list[int]:
    """The steps that the schedule computes."""
    controller = Controller(general_schedule(speedup, warmup), Limits(warmup=0.0))
    return [step for step in range(steps) if not controller.decide(Observation(step, steps, None, step > 0)).reuse]


@settings(max_examples=60, deadline=None)
@given(st.floats(1.0, 12.0), st.integers(20, 120), st.integers(1, 10))
def test_every_speedup_is_met_exactly(speedup: float, steps: int, warmup: int) -> None:
    assert len(full_steps(speedup, steps, warmup)) == max(2, round(steps / speedup))


@pytest.mark.parametrize(("speedup", "warmup"), [(1.5, 10), (2.0, 10), (2.5, 8), (3.0, 7), (4.0, 5)])
def test_the_warm_up_and_the_last_step_are_computed_and_the_longest_gap_lies_between(
    speedup: float, warmup: int
) -> None:
    steps = full_steps(speedup, 50, warmup)
    assert steps[:warmup] == [*range(warmup)]
    assert steps[-1] == 49
    assert 20 <= steps[np.argmax(np.diff(steps))] <= 40


def test_a_flow_shift_does_not_move_its_steps() -> None:
    controller = Controller(general_schedule(2.5, 8), Limits(warmup=0.0))
    sigmas = tuple(5 * s / (1 + 4 * s) for s in (1 - step / 50 for step in range(50)))
    shifted = [step for step in range(50) if not controller.decide(Observation(step, 50, None, step > 0, sigmas)).reuse]
    assert shifted == full_steps(2.5, 50, 8)


def test_a_speedup_below_1_is_refused() -> None:
    with pytest.raises(GalaxyDiTError, match=r"speedup=0\.5"):
        general_schedule(0.5)
