from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest

from galaxydit.calibration.recording import Recording
from galaxydit.calibration.search import LONGEST_GAP, ScheduleError, best_schedules, interval_errors
from galaxydit.profiles.evidence import ErrorPropagation
from galaxydit.profiles.schema import Profile

FADING = ErrorPropagation((0.9, 0.2), (5.0, 0.5))


@pytest.mark.parametrize("switch", [0, 1, 6])
@pytest.mark.parametrize("full_steps", [4, 6])
def test_the_best_schedule_is_that_of_an_exhaustive_search(
    recording_of: Callable, noisy_proxy: Callable, full_steps: int, switch: int
) -> None:
    recordings = [recording_of(index, {"block_residual": noisy_proxy(0.1)}, 11) for index in range(3)]
    model = ScheduleError([replace(recording, switch=switch) for recording in recordings])
    schedules = [
        (0, *middle, 10)
        for middle in combinations(range(1, 10), full_steps - 2)
        if switch in (0, *middle) and all(b - a <= LONGEST_GAP for a, b in pairwise((0, *middle, 10)))
    ]

    def mean_error(schedule: tuple[int, ...]) -> float:
        return float(np.mean(model.final_error(schedule, FADING, coherence=0.0)))

    found = best_schedules(model, full_steps, FADING)[full_steps]
    assert mean_error(found) == pytest.approx(min(map(mean_error, schedules)))


def test_the_warm_up_is_kept(recordings: list[Recording]) -> None:
    schedule = best_schedules(ScheduleError(recordings), 12, FADING, warmup=6)[12]
    assert schedule[:6] == (0, 1, 2, 3, 4, 5)
    assert sorted(best_schedules(ScheduleError(recordings), 5, FADING)) == [5], "fewer leave gaps of more than 12 steps"


def test_full_steps_lie_where_errors_grow(recordings: list[Recording]) -> None:
    early = best_schedules(ScheduleError(recordings), 16, ErrorPropagation((0.9, 0.2), (100.0, 0.01)))[16]
    late = best_schedules(ScheduleError(recordings), 16, ErrorPropagation((0.9, 0.2), (0.01, 100.0)))[16]
    assert np.mean(early) < np.mean(late) - 3


def test_the_transformer_whose_errors_cost_most_gets_more_steps_and_the_second_computes_its_first(
    recordings: list[Recording],
) -> None:
    two = [replace(recording, switch=20) for recording in recordings]
    share = {}
    for high_noise, low_noise in ((10.0, 1.0), (1.0, 1.0), (1.0, 10.0)):
        full = best_schedules(ScheduleError(two), 16, ErrorPropagation((0.9, 0.2), (high_noise, low_noise)))[16]
        assert 20 in full
        share[high_noise / low_noise] = sum(step < 20 for step in full) / 16
    assert share[10.0] > share[1.0] > share[0.1]
    assert share[10.0] > 0.5


def test_the_second_transformer_predicts_from_its_own_steps_alone(recordings: list[Recording]) -> None:
    """Its first interval repeats one step, as that of the first transformer does, whatever was computed before."""
    model = ScheduleError([replace(recordings[0], switch=20)])
    errors = interval_errors(model, FADING)
    assert all(errors[20, before, 4] == errors[20, 0, 4] for before in range(1, 13))
    assert errors[21, 2, 4] == errors[21, 0, 4]
    assert errors[21, 1, 4] != errors[21, 0, 4]


def test_one_search_finds_the_best_schedules_of_all_numbers_of_full_steps(recordings: list[Recording]) -> None:
    model = ScheduleError(recordings)
    found = best_schedules(model, 40, FADING, warmup=3)
    assert sorted(found) == [*range(min(found), 41)]
    for count in (12, 23, 40):
        assert found[count] == best_schedules(model, count, FADING, warmup=3)[count]
        assert len(found[count]) == count
    assert found[40] == tuple(range(40))


def test_every_number_of_full_steps_between_has_its_own_plan(drafted: Profile) -> None:
    steps = drafted.conditions.steps
    counts = [round(steps / target.speedup) for target in drafted.recipe.targets]
    assert sorted(counts) == [*range(min(counts), max(counts) + 1)]
    assert [len(target.sigmas) for target in drafted.recipe.targets] == counts
    assert [verified.speedup for verified in drafted.evidence.verifications] == [1.5, 2.0, 2.5]
