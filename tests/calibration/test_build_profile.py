from dataclasses import replace

import pytest

from galaxydit.calibration.recording import Recording
from galaxydit.calibration.replay import planned_config, replay
from galaxydit.calibration.search import Planner
from galaxydit.profile import Profile


def test_every_sample_meets_the_budget_whatever_its_pace(drafted: Profile, recordings: list[Recording]) -> None:
    moved = [replace(target, follow=0.5, weights=()) for target in drafted.targets]
    for target in (*drafted.targets, *moved):
        config = planned_config(drafted, target, target.speedup)
        for scale in (0.3, 1.0, 3.0):
            for recording in recordings:
                distances = [scale * d for d in recording.distances["conditional"][drafted.proxy]]
                played = replay(recording.sigmas, distances, config)
                assert len(played.full) == config.plan.full_steps(recording.steps)


def test_a_speedup_that_the_probe_alone_exceeds_is_planned_without_it(
    drafted: Profile, recordings: list[Recording]
) -> None:
    assert drafted.reused_cost == pytest.approx(1 / 6, abs=1e-6)
    target = Planner(drafted, recordings).target(6.5)
    assert target.follow == 0
    assert planned_config(drafted, replace(target, follow=0.5), 6.5) is None


def test_a_speedup_that_no_schedule_reaches_has_no_target(drafted: Profile, recordings: list[Recording]) -> None:
    assert Planner(drafted, recordings).target(30.0) is None
