import pytest
import torch

from galaxydit.extrapolation import DAMPING, LARGEST_AHEAD, CachedStep, correction, missed, predict


def cached(*values: tuple[float, float]) -> tuple[CachedStep, ...]:
    return tuple(CachedStep(step, sigma, torch.full((2, 3), value)) for step, (sigma, value) in enumerate(values))


def test_order_0_repeats_and_order_1_follows_the_damped_slope() -> None:
    history = cached((0.9, 1.0), (0.8, 3.0))
    assert torch.equal(predict(history, 0.7, 0), torch.full((2, 3), 3.0))
    assert torch.allclose(predict(history, 0.7, 1), torch.full((2, 3), 3.0 + 2 * DAMPING))


def test_a_profile_may_follow_another_share_of_the_slope_and_correct_another_share_of_the_error() -> None:
    assert torch.allclose(predict(cached((0.9, 1.0), (0.8, 3.0)), 0.7, 1, 0.5), torch.full((2, 3), 4.0))
    assert torch.allclose(predict(cached((0.9, 1.0), (0.8, 3.0)), 0.4, 1, 0.5, 1.0), torch.full((2, 3), 5.0))
    output, predicted = torch.full((2, 3), 3.0), torch.ones(2, 3)
    assert torch.equal(correction(output, predicted, 2.0, 1, 0.75), torch.full((2, 3), 3.0))


def test_order_1_with_one_cached_step_or_equal_sigmas_repeats() -> None:
    assert torch.equal(predict(cached((0.8, 3.0)), 0.7, 1), torch.full((2, 3), 3.0))
    assert torch.equal(predict(cached((0.8, 1.0), (0.8, 3.0)), 0.7, 1), torch.full((2, 3), 3.0))


def test_two_full_steps_that_almost_coincide_are_not_extrapolated_without_limit() -> None:
    history = cached((0.8001, 1.0), (0.8, 1.5))
    assert torch.allclose(predict(history, 0.7, 1), torch.full((2, 3), 1.5 + 0.5 * LARGEST_AHEAD))


def test_writing_to_a_prediction_leaves_the_history_alone() -> None:
    history = cached((0.9, 1.0), (0.8, 3.0))
    for order in (0, 1):
        predict(history, 0.7, order).zero_()
    assert [step.tensor.mean().item() for step in history] == [1.0, 3.0]


@pytest.mark.parametrize("reused", [1, 2, 5])
def test_after_the_correction_a_sum_of_repeated_outputs_is_that_of_a_line(reused: int) -> None:
    line = [torch.full((2, 3), float(step)) for step in range(reused + 2)]
    full, repeated = line[-1], line[0]
    corrected = full + correction(full, repeated, missed(None, None, 0, reused + 1), order=0)
    assert torch.allclose(repeated * (reused + 1) + corrected, torch.stack(line).sum(0))


def test_steps_count_by_their_weight_and_by_the_distance_from_the_last_full_step() -> None:
    sigmas, response = (1.0, 0.9, 0.7, 0.4), (0.1, 0.2, 0.3, 0.4)
    assert missed(sigmas, response, 0, 2) == pytest.approx((0.2 * 0.1) / 0.3 / 0.3)
    assert missed(sigmas, response, 0, 3) == pytest.approx((0.2 * 0.1 + 0.3 * 0.3) / 0.6 / 0.4)
    assert missed(sigmas, (0.1, 0.2, 0.3, -0.4), 0, 3) == -missed(sigmas, response, 0, 3)
    assert missed(None, None, 0, 3) == 1.0


def test_nothing_is_missed_where_no_step_is_reused_or_this_one_has_no_weight() -> None:
    sigmas = (1.0, 0.8, 0.6, 0.6, 0.2)
    assert missed(sigmas, (0.2,) * 5, 0, 1) == 0.0
    assert missed(sigmas, (0.2, 0.2, 0.0, 0.2, 0.2), 0, 2) == 0.0
    assert missed(sigmas, (0.2,) * 5, 2, 3) == 0.0


def test_a_full_step_of_little_weight_is_corrected_by_no_more_than_twice_the_reused_steps() -> None:
    assert missed((1.0, 0.5, 0.2), (0.5, 0.3, 0.001), 0, 2) == 2.0
    assert missed((1.0, 0.5, 0.2), (0.5, 0.3, -0.001), 0, 2) == -2.0


def test_the_correction_leaves_what_it_reads_alone() -> None:
    output, predicted = torch.ones(2, 3), torch.zeros(2, 3)
    correction(output, predicted, 2.0, 1)
    assert output.mean() == 1
    assert predicted.mean() == 0
