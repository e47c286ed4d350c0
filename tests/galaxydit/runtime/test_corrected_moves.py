"""A correction moves a latent farther than a step does, and is not taken for another trajectory."""

import pytest

from galaxydit.runtime.step import Noise
from galaxydit.runtime.trajectory import Move, Trajectory


@pytest.mark.parametrize(("is_corrected", "continues"), [(False, False), (True, True)])
def test_a_step_after_a_correction_may_move_twice_as_far(is_corrected: bool, continues: bool) -> None:
    trajectory = Trajectory(speed=1.0, stride=0.1)
    move = Move(5, (0.5, 0.5), (0.6, 0.4), False, False, is_corrected)
    moved = 3.0 * 0.1 * 2**0.5  # three times as far as the fastest step so far
    assert trajectory.continues((moved**2, 0.01, 0.0, 0.0), move, Noise.NONE) is continues
