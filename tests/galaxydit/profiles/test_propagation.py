import pytest

from galaxydit import GalaxyDiTError
from galaxydit.profiles.evidence import ErrorPropagation


def test_sensitivities_lie_on_straight_lines_through_their_logarithms_and_go_on_at_both_ends() -> None:
    found = ErrorPropagation((0.8, 0.4, 0.2), (16.0, 1.0, 0.5))
    assert found.sensitivity(0.8) == pytest.approx(16)
    assert found.sensitivity(0.6) == pytest.approx(4)
    assert found.sensitivity(1.0) == pytest.approx(64)
    assert found.sensitivity(0.3) == pytest.approx(0.5**0.5)
    assert found.sensitivity(0.0) == pytest.approx(0.25)


def test_unmeasured_errors_neither_grow_nor_fade() -> None:
    assert ErrorPropagation().sensitivity(0.3) == 1.0
    assert ErrorPropagation((0.5,), (2.0,)).sensitivity(0.9) == 2.0


@pytest.mark.parametrize(
    ("sigmas", "sensitivities"), [((0.5, 0.8), (1.0, 1.0)), ((0.5,), ()), ((0.5,), (0.0,)), ((float("nan"),), (1.0,))]
)
def test_damaged_values_are_refused(sigmas: tuple[float, ...], sensitivities: tuple[float, ...]) -> None:
    with pytest.raises(GalaxyDiTError, match="propagation"):
        ErrorPropagation(sigmas, sensitivities)
