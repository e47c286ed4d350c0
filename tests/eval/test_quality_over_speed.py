"""The committed picture of quality over speed is what the committed comparison makes."""

import pytest
from PIL import Image

from galaxydit.eval.compared import OURS, RESULTS
from galaxydit.eval.quality_over_speed import DATA_KEY, NAME, Line, digest_of, shown


@pytest.fixture(scope="module")
def lines() -> list[Line]:
    return list(shown(RESULTS).lines)


def test_the_committed_picture_is_of_the_committed_data(lines: list[Line]) -> None:
    with Image.open(RESULTS / NAME) as picture:
        assert picture.info[DATA_KEY] == digest_of(lines), "run: python -m galaxydit.eval.quality_over_speed"
        assert picture.width > 838, "as wide as a README shows it, or wider"
    assert (RESULTS / NAME).stat().st_size < 400_000


def test_other_data_are_another_picture(lines: list[Line]) -> None:
    first = lines[0]
    changed = Line(first.method, first.is_named, first.speedups, (first.psnrs[0] + 0.1, *first.psnrs[1:]), ())
    assert digest_of([changed, *lines[1:]]) != digest_of(lines)


def test_this_project_and_methods_that_readers_know_have_names(lines: list[Line]) -> None:
    named = {line.method for line in lines if line.is_named}
    assert {OURS, "TaylorSeer", "fewer steps"} <= named


def test_each_point_lies_in_its_interval(lines: list[Line]) -> None:
    for line in lines:
        for psnr, (low, high) in zip(line.psnrs, line.intervals, strict=True):
            assert low <= psnr <= high
