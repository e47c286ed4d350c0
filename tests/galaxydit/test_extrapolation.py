import torch

from galaxydit.extrapolation import CORRECTION, DAMPING, CachedStep, predict, remember


def full(value: float) -> torch.Tensor:
    return torch.full((2, 3), value)


def cached(*steps: tuple[int, float, float], order: int = 1) -> tuple[CachedStep, ...]:
    history: tuple[CachedStep, ...] = ()
    for step, sigma, value in steps:
        history = remember(history, CachedStep(step, sigma, full(value)), order)
    return history


def test_order_0_repeats_and_order_1_follows_the_damped_slope() -> None:
    steps = (0, 0.9, 1.0), (1, 0.8, 3.0)
    assert torch.equal(predict(cached(*steps, order=0), 0.7, 0), full(3.0))
    assert torch.allclose(predict(cached(*steps), 0.7, 1), full(3.0 + 2 * DAMPING))


def test_order_1_with_one_cached_step_or_equal_sigmas_repeats() -> None:
    assert torch.equal(predict(cached((0, 0.8, 3.0)), 0.7, 1), full(3.0))
    assert torch.equal(predict(cached((0, 0.8, 1.0), (1, 0.8, 3.0)), 0.7, 1), full(3.0))


def test_a_share_of_what_the_last_reused_steps_missed_is_added() -> None:
    predicted = 1.0 + 1.0 * DAMPING * 2  # at 0.6, from 0 at 0.9 and 1 at 0.8
    history = cached((0, 0.9, 0.0), (1, 0.8, 1.0), (3, 0.6, 4.0))
    assert torch.allclose(predict(history, 0.5, 1), full(4.0 + 1.5 * DAMPING + CORRECTION * (4.0 - predicted)))


def test_full_steps_that_follow_each_other_correct_nothing() -> None:
    history = cached((0, 0.9, 0.0), (1, 0.8, 1.0), (3, 0.6, 4.0), (4, 0.5, 5.0))
    assert torch.allclose(predict(history, 0.4, 1), full(5.0 + DAMPING))


def test_order_0_corrects_nothing() -> None:
    history = cached((0, 0.9, 0.0), (1, 0.8, 1.0), (3, 0.6, 4.0), order=0)
    assert torch.equal(predict(history, 0.5, 0), full(4.0))


def test_writing_to_a_prediction_leaves_the_history_alone() -> None:
    history = cached((0, 0.9, 1.0), (2, 0.7, 3.0), (4, 0.5, 4.0))
    before = [(step.tensor.clone(), step.error.clone()) for step in history if step.error is not None]
    for order in (0, 1):
        predict(history, 0.3, order).zero_()
    after = [(step.tensor, step.error) for step in history if step.error is not None]
    assert len(after) == 1
    assert all(torch.equal(old, new) for old, new in zip(before[0], after[0], strict=True))


def test_no_more_is_remembered_than_is_needed() -> None:
    history = cached((0, 0.9, 1.0), (2, 0.7, 2.0), (4, 0.5, 3.0))
    assert [step.step for step in history] == [2, 4]
    assert [step.error is None for step in history] == [True, False]
    assert [step.step for step in cached((0, 0.9, 1.0), (2, 0.7, 2.0), order=0)] == [2]
