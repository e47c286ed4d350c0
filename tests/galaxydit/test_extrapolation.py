import torch

from galaxydit.reuse import ORDERS, Anchor, predict, remember


def anchors(*values: tuple[float, float]) -> tuple[Anchor, ...]:
    return tuple((sigma, torch.full((2, 3), value)) for sigma, value in values)


def test_order_0_repeats_and_order_1_follows_the_line() -> None:
    history = anchors((0.9, 1.0), (0.8, 3.0))
    assert torch.equal(predict(history, 0.7, ORDERS[0]), torch.full((2, 3), 3.0))
    assert torch.allclose(predict(history, 0.7, ORDERS[1]), torch.full((2, 3), 5.0))


def test_order_1_with_one_anchor_or_equal_sigmas_repeats() -> None:
    assert torch.equal(predict(anchors((0.8, 3.0)), 0.7, ORDERS[1]), torch.full((2, 3), 3.0))
    assert torch.equal(predict(anchors((0.8, 1.0), (0.8, 3.0)), 0.7, ORDERS[1]), torch.full((2, 3), 3.0))


def test_writing_to_a_prediction_leaves_the_history_alone() -> None:
    history = anchors((0.9, 1.0), (0.8, 3.0))
    for order in (0, 1):
        predict(history, 0.7, ORDERS[order]).zero_()
    assert [anchor[1].mean().item() for anchor in history] == [1.0, 3.0]


def test_no_more_is_remembered_than_is_needed() -> None:
    history: tuple[Anchor, ...] = ()
    for anchor in anchors((0.9, 1.0), (0.8, 2.0), (0.7, 3.0)):
        history = remember(history, anchor, 2)
    assert [sigma for sigma, _ in history] == [0.8, 0.7]
    assert len(remember(history, history[0], 1)) == 1


def test_line_and_parabola_together_follow_a_parabola_and_their_weights_scale_them() -> None:
    def value(sigma: float) -> float:
        return 2 - 3 * sigma + 5 * sigma**2

    history = anchors(*((sigma, value(sigma)) for sigma in (0.95, 0.9, 0.7)))
    repeated, on_the_line = (predict(history, 0.6, ORDERS[order]) for order in (0, 1))
    exact = predict(history, 0.6, (1.0, 1.0))
    assert torch.allclose(exact, torch.full((2, 3), value(0.6)))
    mixed = predict(history, 0.6, (0.5, -0.25))
    expected = repeated + 0.5 * (on_the_line - repeated) - 0.25 * (exact - on_the_line)
    assert torch.allclose(mixed, expected)


def test_without_a_third_anchor_the_parabola_is_left_out() -> None:
    history = anchors((0.9, 1.0), (0.8, 3.0))
    assert torch.equal(predict(history, 0.7, (0.8, 0.5)), predict(history, 0.7, (0.8, 0.0)))
