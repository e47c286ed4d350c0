"""How far a step may move a latent that is not taken for another trajectory."""

import pytest
import torch

from galaxydit import FixedSteps, GalaxyDiTConfig
from galaxydit.runtime.generation import Generation
from galaxydit.runtime.identity import CallIdentity, KnownValue
from galaxydit.runtime.step import Noise, StepInfo
from galaxydit.runtime.trajectory import Move, Trajectory
from galaxydit.stopwatch import Stopwatch


@pytest.mark.parametrize(("is_corrected", "continues"), [(False, False), (True, True)])
def test_a_step_after_a_correction_may_move_twice_as_far(is_corrected: bool, continues: bool) -> None:
    trajectory = Trajectory(KnownValue(torch.zeros(1)), speed=1.0, stride=0.1)
    move = Move(5, (0.5, 0.5), (0.6, 0.4), False, False, is_corrected)
    moved = 3.0 * 0.1 * 2**0.5  # three times as far as the fastest step so far
    assert trajectory.continues((moved**2, 0.01, 0.0, 0.0), move, Noise.NONE) is continues


def test_a_new_trajectory_is_as_fast_as_those_beside_it_and_not_as_one_that_is_steps_ahead() -> None:
    info, latent = StepInfo(1, 12, 1.0), torch.zeros(1)
    call = CallIdentity("transformer", "cond", info, (0.0, 1.0), latent, True, 1.0, {}, None, None)
    generation = Generation(call, GalaxyDiTConfig(FixedSteps((0, 4))), Stopwatch(torch.device("cpu")))
    for step, speed, stride in ((0, 1.0, 0.1), (11, 9.0, 0.9)):
        generation.trajectories.append(Trajectory(KnownValue(latent), step, speed=speed, stride=stride))
    begun, _ = generation.begin(call)
    assert (begun.speed, begun.stride) == (1.0, 0.1)
