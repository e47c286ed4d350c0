from pathlib import Path

import matplotlib
import pytest

from galaxydit.pipelines.figures import STYLE, drawn


def test_the_design_holds_within_a_figure_alone(tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    with drawn(tmp_path / "a.png", 2, 2) as figure:
        assert not figure.add_subplot().spines["top"].get_visible()
        assert {name: matplotlib.rcParams[name] for name in STYLE} == STYLE
    assert dict(matplotlib.rcParams) == before
    assert (tmp_path / "a.png").stat().st_size > 0


def fail(path: Path) -> None:
    with drawn(path, 2, 2) as figure:
        figure.add_subplot()
        raise ValueError("drawing failed")


def test_a_figure_without_axes_or_with_an_error_is_not_written(tmp_path: Path) -> None:
    with drawn(tmp_path / "a.png", 2, 2):
        pass
    with pytest.raises(ValueError, match="drawing failed"):
        fail(tmp_path / "a.png")
    assert not list(tmp_path.iterdir())
