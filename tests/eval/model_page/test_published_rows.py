"""Published rows are repeated on a random pipeline that is too small to be good at anything."""

from dataclasses import replace

import pytest

from galaxydit.eval.model_page import published_rows
from galaxydit.eval.model_page.published_rows import ROWS, Bench, PublishedRow, measure_row
from galaxydit.eval.model_page.published_table import agreement, published_table
from galaxydit.pipelines.published_models import WAN_TINY
from galaxydit.pipelines.table import DASH
from galaxydit.pipelines.wan_tiny.world import draw_prompts

QUICK = replace(WAN_TINY, height=32, width=32, num_frames=5)
SHORT = (
    PublishedRow("plain", 3, 5, 15.0, plain_steps=6, seen=True),
    PublishedRow("list", 5, 5, 22.0, "step list", {"full": [0, 1, 2, 6], "conditional_only": []}, seen=True),
    PublishedRow("threshold", 5, 5, 20.0, "SeaCache published", {"max_consecutive_cached": 0}, computed=6),
)


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(published_rows, "STEPS", 12)
    monkeypatch.setattr(published_rows, "TRIALS", 3)


@pytest.mark.usefixtures("short")
def test_rows_have_a_value_for_each_caption_and_are_not_measured_twice(tiny_wan_pipeline, tmp_path):
    captions = draw_prompts(2, 0)
    bench = Bench(tiny_wan_pipeline, tmp_path, QUICK)
    content = {row.name: measure_row(bench, row, captions, tmp_path) for row in SHORT}
    assert all(set(row["psnr"]) == set(captions) for row in content.values())
    assert content["threshold"]["setting"]["threshold"] > 0
    nothing = Bench(None, tmp_path, QUICK)
    assert {row.name: measure_row(nothing, row, captions, tmp_path) for row in SHORT} == content
    assert len(published_table({"wan-tiny": content}).rows) == len(SHORT) + 2


def test_agreement_is_of_the_mean_psnrs():
    rows = {
        "plain": {"published": 15.0, "seen": True, "psnr": {"a": 16.0, "b": 18.0}},
        "list": {"published": 22.0, "seen": True, "psnr": {"a": 25.0, "b": 25.0}},
    }
    assert agreement(rows, ["plain", "list"]) == (pytest.approx(2.5), pytest.approx(1.0))
    made = published_table({"one": rows, "another": rows})
    assert made.rows[0] == ("plain", "15.0", "17.0", "17.0", "yes")
    assert made.rows[2][1:4] == (DASH, "2.50", "2.50")


def test_rows_that_no_choice_looked_at_are_told_apart():
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert sum(row.seen for row in ROWS) == 9
    assert sum(not row.seen for row in ROWS) == 9
