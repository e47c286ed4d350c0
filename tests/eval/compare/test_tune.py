"""Which settings are worth scoring."""

import math

import pytest

from galaxydit.eval.compare.tune import Candidate, bracket, candidate, coarse, pareto_front, refined, screen
from galaxydit.pipelines.trial_result import TrialResult


def at(index: int, speedup: float, psnr: float, spread: float = 0.0, n: int = 8) -> Candidate:
    return Candidate(index, math.log(speedup), psnr, spread, n)


def test_a_candidate_has_the_speed_of_its_mean_compute():
    pairs = ((0.25, 30.0), (0.75, 40.0))
    results = [TrialResult(compute_fraction=fraction, metrics={"psnr": psnr}) for fraction, psnr in pairs]
    found = candidate(3, results)
    assert (found.index, found.psnr, found.n) == (3, 35.0, 2)
    assert found.log_speedup == pytest.approx(math.log(2))
    assert found.spread == pytest.approx(math.log(3) / math.sqrt(2))


def test_screening_keeps_what_may_be_chosen_and_the_nearest_outside():
    slow, slower, inside, fast, faster = (at(i, s, 50 - i) for i, s in enumerate((1.1, 1.01, 2.0, 5.0, 9.0)))
    assert screen([slow, slower, inside, fast, faster], [1.5, 3.0]) == [slow.index, inside.index, fast.index]


def test_screening_drops_what_is_far_below_a_faster_setting_on_the_first_prompt():
    tried = [at(0, 1.9, 20), at(1, 2.1, 33), at(2, 1.8, 26.9), at(3, 1.8, 27.1), at(4, 2.2, 20)]
    assert screen(tried, [2.0]) == [0, 1, 3, 4]


def test_screening_keeps_the_nearest_slower_setting_of_each_wanted_speedup_whatever_its_psnr():
    assert screen([at(0, 1.4, 20), at(1, 1.45, 20), at(2, 2.1, 33)], [1.5, 2.0]) == [1, 2]


def test_the_front_is_what_nothing_beats():
    found = pareto_front([at(0, 1.5, 40), at(1, 2.0, 41), at(2, 3.0, 30), at(3, 3.0, 30), at(4, 2.5, 29)])
    assert [one.index for one in found] == [1, 2]


def test_a_fixed_speed_that_meets_the_wanted_one_is_scored_alone():
    front = [at(0, 1.5, 40), at(1, 2.0, 35), at(2, 3.0, 30)]
    assert bracket(front, [2.0], scored=32) == [1]


def test_otherwise_the_settings_around_are():
    front = [at(0, 1.2, 44), at(1, 1.5, 40), at(2, 1.9, 35), at(3, 2.2, 30), at(4, 3.1, 25)]
    assert bracket(front, [2.0], scored=32) == [2, 3]
    assert bracket(front, [2.0, 3.0], scored=32) == [2, 3, 4]


def test_where_speed_differs_by_prompt_the_bracket_has_room():
    front = [at(0, 1.5, 40, 0.1), at(1, 1.98, 35, 0.1), at(2, 2.02, 34, 0.1), at(3, 2.6, 30, 0.1)]
    assert bracket(front, [2.0], scored=8) == [0, 1, 2, 3]


@pytest.mark.parametrize(("speedup", "nearest"), [(1.2, 0), (4.0, 1)])
def test_out_of_reach_the_nearest_is_scored(speedup, nearest):
    assert bracket([at(0, 1.5, 40), at(1, 3.0, 30)], [speedup], scored=32) == [nearest]


def test_a_setting_that_left_a_video_unchanged_is_no_slower_end():
    unchanged = candidate(0, [TrialResult(compute_fraction=0.9, metrics={"psnr": psnr}) for psnr in (120.0, 40.0)])
    assert bracket([unchanged, at(1, 1.4, 41), at(2, 1.6, 38)], [1.5], scored=32) == [1, 2]
    assert bracket([unchanged], [1.5], scored=32) == [0]


def test_where_the_front_has_no_slower_setting_the_nearest_slower_one_is_scored_too():
    assert bracket([at(0, 1.1, 30), at(1, 1.4, 34), at(2, 1.6, 38), at(3, 2.0, 36)], [1.5], scored=32) == [1, 2]


def test_settings_that_ask_for_a_speedup_are_tried_near_the_wanted_ones():
    asking = [{"speedup": speedup} for speedup in (1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0)]
    assert coarse(asking, [2.0]) == [2, 3, 4, 5]
    assert coarse(asking, [9.0]) == list(range(8))


def test_a_long_grid_is_tried_in_steps_and_then_where_it_brackets_the_wanted_speedups():
    grid = [{"threshold": 0.01 * 1.1**power} for power in range(30)]
    tried = coarse(grid, [2.0])
    assert tried == [0, 4, 8, 12, 16, 20, 24, 28, 29]
    measured = [at(index, 1 + index / 10, 30) for index in tried]  # 1.6x to 2.5x lie between the settings 6 and 15
    assert refined(measured, [2.0]) == [0, *range(4, 17), 20, 24, 28, 29]


def test_each_long_run_of_settings_that_differ_in_one_number_is_tried_in_steps():
    grid = [{"threshold": step, "most": most} for most in (2, 0) for step in range(13)]
    grid += [{"threshold": 0.1, "mode": str(mode)} for mode in range(13)]
    tried = coarse(grid, [2.0])
    assert tried == [0, 4, 8, 12, 13, 17, 21, 25, *range(26, 39)]
    measured = [at(index, 1.9 if index == 17 else 9.0, 30) for index in tried]  # 14 to 20 may be near 2x, others not
    assert refined(measured, [2.0]) == [0, 4, 8, *range(12, 22), 25, *range(26, 39)]


def test_runs_that_are_short_or_differ_in_two_numbers_are_tried_whole():
    grid = [{"threshold": index, "interval": -index} for index in range(30)]
    assert coarse(grid, [2.0]) == list(range(30))
    assert coarse([{"threshold": index} for index in range(5)], [2.0]) == list(range(5))
