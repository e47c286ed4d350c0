import pytest

from galaxydit import GalaxyDiTError
from galaxydit.propagation import Propagation


def test_gains_lie_on_straight_lines_through_their_logarithms_and_go_on_at_both_ends() -> None:
    found = Propagation((0.8, 0.4, 0.2), (16.0, 1.0, 0.5))
    assert found.gain(0.8) == pytest.approx(16)
    assert found.gain(0.6) == pytest.approx(4)
    assert found.gain(1.0) == pytest.approx(64)
    assert found.gain(0.3) == pytest.approx(0.5**0.5)
    assert found.gain(0.0) == pytest.approx(0.25)


def test_unmeasured_errors_neither_grow_nor_fade() -> None:
    assert Propagation().gain(0.3) == 1.0
    assert Propagation((0.5,), (2.0,)).gain(0.9) == 2.0


@pytest.mark.parametrize(
    ("sigmas", "gains"), [((0.5, 0.8), (1.0, 1.0)), ((0.5,), ()), ((0.5,), (0.0,)), ((float("nan"),), (1.0,))]
)
def test_damaged_values_are_refused(sigmas: tuple[float, ...], gains: tuple[float, ...]) -> None:
    with pytest.raises(GalaxyDiTError, match="propagation"):
        Propagation(sigmas, gains)
