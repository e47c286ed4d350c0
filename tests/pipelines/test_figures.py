from itertools import pairwise
from pathlib import Path

import matplotlib
import pytest
from PIL import Image

from galaxydit.pipelines.figures import PALETTE, RAMP, STYLE, drawn, spread_out


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


def test_texts_are_written_beside_the_mark(tmp_path: Path) -> None:
    with drawn(tmp_path / "a.png", 2, 2, texts={"data": "abc"}) as figure:
        figure.add_subplot()
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.info["data"] == "abc"
        assert "galaxydit" in picture.info["Software"]


def contrast_with_white(colour: str) -> float:
    """Contrast ratio of WCAG 2.2 (1.4.11 asks for 3 of graphics)."""
    levels = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [level / 12.92 if level <= 0.04045 else ((level + 0.055) / 1.055) ** 2.4 for level in levels]
    return 1.05 / (0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05)


def test_colours_differ_and_are_seen_on_white() -> None:
    assert len(set(PALETTE)) == len(PALETTE)
    assert all(contrast_with_white(colour) > 2 for colour in (*PALETTE, *RAMP))


def test_labels_keep_their_order_and_do_not_touch() -> None:
    places = [30.0, 30.1, 10.0, 30.2, 12.0]
    moved = spread_out(places, 1.0)
    ordered = sorted(moved)
    assert sorted(range(5), key=places.__getitem__) == sorted(range(5), key=moved.__getitem__)
    assert all(after - before >= 1 - 1e-9 for before, after in pairwise(ordered))
    assert moved[2] == 10.0
    assert sum(moved) == pytest.approx(sum(places))
