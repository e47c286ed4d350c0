"""The committed picture of quality over speed is what the committed comparison makes."""

import pytest
from PIL import Image

from galaxydit.eval.compared import OURS, PEER, RESULTS, comparisons, kind_of
from galaxydit.eval.methods.method_registry import CONTROL
from galaxydit.eval.quality_over_speed import DATA_KEY, NAME, Line, digest_of, lines_of, shown_comparison


@pytest.fixture(scope="module")
def lines() -> list[Line]:
    return lines_of(shown_comparison(RESULTS))


def test_the_committed_picture_is_of_the_committed_data(lines: list[Line]) -> None:
    with Image.open(RESULTS / NAME) as picture:
        assert picture.info[DATA_KEY] == digest_of(lines), "run: python -m galaxydit.eval.quality_over_speed"
        assert picture.width > 838, "as wide as a README shows it, or wider"
    assert (RESULTS / NAME).stat().st_size < 400_000


def test_other_data_are_another_picture(lines: list[Line]) -> None:
    first = lines[0]
    changed = Line(first.method, first.is_named, first.speedups, (first.psnrs[0] + 0.1, *first.psnrs[1:]), ())
    assert digest_of([changed, *lines[1:]]) != digest_of(lines)


def test_no_method_that_is_strongest_somewhere_goes_without_a_name(lines: list[Line]) -> None:
    group = shown_comparison(RESULTS)
    named = {line.method for line in lines if line.is_named}
    assert {group.strongest(kind, at) for kind in (CONTROL, PEER) for at in group.speedups} <= named
    assert OURS in named
    most = max(sum(kind_of(name) == PEER for name in each.methods) for each in comparisons(RESULTS))
    assert sum(kind_of(line.method) == PEER for line in lines) == most


def test_each_point_lies_in_its_interval(lines: list[Line]) -> None:
    for line in lines:
        for psnr, (low, high) in zip(line.psnrs, line.intervals, strict=True):
            assert low <= psnr <= high
