import torch

from galaxydit.extrapolation import DAMPING, CachedStep, predict, remember


def cached(*values: tuple[float, float]) -> tuple[CachedStep, ...]:
    return tuple((sigma, torch.full((2, 3), value)) for sigma, value in values)


def test_order_0_repeats_and_order_1_follows_the_damped_slope() -> None:
    history = cached((0.9, 1.0), (0.8, 3.0))
    assert torch.equal(predict(history, 0.7, 0), torch.full((2, 3), 3.0))
    assert torch.allclose(predict(history, 0.7, 1), torch.full((2, 3), 3.0 + 2 * DAMPING))


def test_order_1_with_one_cached_step_or_equal_sigmas_repeats() -> None:
    assert torch.equal(predict(cached((0.8, 3.0)), 0.7, 1), torch.full((2, 3), 3.0))
    assert torch.equal(predict(cached((0.8, 1.0), (0.8, 3.0)), 0.7, 1), torch.full((2, 3), 3.0))


def test_writing_to_a_prediction_leaves_the_history_alone() -> None:
    history = cached((0.9, 1.0), (0.8, 3.0))
    for order in (0, 1):
        predict(history, 0.7, order).zero_()
    assert [step[1].mean().item() for step in history] == [1.0, 3.0]


def test_no_more_is_remembered_than_is_needed() -> None:
    history: tuple[CachedStep, ...] = ()
    for step in cached((0.9, 1.0), (0.8, 2.0), (0.7, 3.0)):
        history = remember(history, step, 2)
    assert [sigma for sigma, _ in history] == [0.8, 0.7]
    assert len(remember(history, history[0], 1)) == 1
