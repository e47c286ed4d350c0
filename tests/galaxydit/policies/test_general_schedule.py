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


def levels_at(shift: float, steps: int = 50) -> tuple[float, ...]:
    return tuple(shift * s / (1 + (shift - 1) * s) for s in (1 - step / steps for step in range(steps)))


def placed(shift: float, speedup: float = 2.5, steps: int = 50) -> list[int]:
    sigmas, controller = levels_at(shift, steps), Controller(general_schedule(speedup, 2), Limits(warmup=0.0))
    made = (controller.decide(Observation(step, steps, None, step > 0, sigmas)) for step in range(steps))
    return [step for step, decision in enumerate(made) if not decision.reuse]


def test_its_density_belongs_to_noise_levels_not_to_steps() -> None:
    """Between two noise levels, the share of the full steps is nearly the same at every flow shift."""
    counts = []
    for shift in (3.0, 5.0, 8.0):
        sigmas = levels_at(shift, 200)
        full = [sigmas[step] for step in placed(shift, 8.0, 200)]
        counts.append(
            [sum(low < sigma <= high for sigma in full) for low, high in ((0.0, 0.5), (0.5, 0.9), (0.9, 1.0))]
        )
    assert np.ptp(counts, axis=0).max() <= 3
    assert placed(8.0) != placed(3.0)


def test_at_the_measured_flow_shift_and_without_noise_levels_its_places_are_the_same() -> None:
    assert placed(5.0) == full_steps(2.5, 50, 2)


@pytest.mark.parametrize(
    ("planned", "largest"),
    [
        ((*range(13), 14, 16, 18, 21, 24, 29, 35, 40, 44, 47, 48, 49), 0.9),  # LeMiCa, arXiv 2511.00090, 25 steps
        ((*range(10), 11, 13, 16, 20, 26, 33, 40, 45, 48, 49), 1.3),  # 20
        ((*range(9), 10, 13, 18, 25, 32, 39, 46, 49), 1.1),  # 17
        ((*range(6), 7, 10, 16, 23, 30, 37, 44, 49), 1.8),  # 14
        ((*range(12), 13, 16, 19, 23, 28, 33, 39, 45, 49), 1.2),  # MeanCache, arXiv 2609.39343, 21
    ],
)
def test_it_lies_near_lists_that_were_planned_on_real_weights(planned: tuple[int, ...], largest: float) -> None:
    """Mean distance in steps between the sorted full steps of Wan2.1-T2V-1.3B at flow shift 5."""
    assert np.abs(np.subtract(placed(5.0, 50 / len(planned)), planned)).mean() <= largest


def test_a_speedup_below_1_is_refused() -> None:
    with pytest.raises(GalaxyDiTError, match=r"speedup=0\.5"):
        general_schedule(0.5)
