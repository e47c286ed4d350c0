import torch

from galaxydit.extrapolation import ORDERS, CachedStep, predict, remember


def cached(*values: tuple[float, float]) -> tuple[CachedStep, ...]:
    return tuple((sigma, torch.full((2, 3), value)) for sigma, value in values)


def test_order_0_repeats_and_order_1_extrapolates_linearly() -> None:
    history = cached((0.9, 1.0), (0.8, 3.0))
    assert torch.equal(predict(history, 0.7, ORDERS[0]), torch.full((2, 3), 3.0))
    assert torch.allclose(predict(history, 0.7, ORDERS[1]), torch.full((2, 3), 5.0))


def test_order_1_with_one_cached_step_or_equal_sigmas_repeats() -> None:
    assert torch.equal(predict(cached((0.8, 3.0)), 0.7, ORDERS[1]), torch.full((2, 3), 3.0))
    assert torch.equal(predict(cached((0.8, 1.0), (0.8, 3.0)), 0.7, ORDERS[1]), torch.full((2, 3), 3.0))


def test_writing_to_a_prediction_leaves_the_history_alone() -> None:
    history = cached((0.9, 1.0), (0.8, 3.0))
    for order in (0, 1):
        predict(history, 0.7, ORDERS[order]).zero_()
    assert [step[1].mean().item() for step in history] == [1.0, 3.0]


def test_no_more_is_remembered_than_is_needed() -> None:
    history: tuple[CachedStep, ...] = ()
    for step in cached((0.9, 1.0), (0.8, 2.0), (0.7, 3.0)):
        history = remember(history, step, 2)
    assert [sigma for sigma, _ in history] == [0.8, 0.7]
    assert len(remember(history, history[0], 1)) == 1


def test_both_orders_together_follow_a_parabola_and_their_coefficients_scale_them() -> None:
    def value(sigma: float) -> float:
        return 2 - 3 * sigma + 5 * sigma**2

    history = cached(*((sigma, value(sigma)) for sigma in (0.95, 0.9, 0.7)))
    repeated, linear = (predict(history, 0.6, ORDERS[order]) for order in (0, 1))
    exact = predict(history, 0.6, (1.0, 1.0))
    assert torch.allclose(exact, torch.full((2, 3), value(0.6)))
    mixed = predict(history, 0.6, (0.5, -0.25))
    expected = repeated + 0.5 * (linear - repeated) - 0.25 * (exact - linear)
    assert torch.allclose(mixed, expected)


def test_without_a_third_cached_step_the_second_order_is_left_out() -> None:
    history = cached((0.9, 1.0), (0.8, 3.0))
    assert torch.equal(predict(history, 0.7, (0.8, 0.5)), predict(history, 0.7, (0.8, 0.0)))
