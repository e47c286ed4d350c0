"""The judging of the paper's ideas, on invented rows and on a random pipeline that is too small to be any good."""

from dataclasses import replace

import pytest

from galaxydit.eval.model_page import paper_ideas
from galaxydit.eval.model_page.idea_tables import (
    ALONE,
    compared_pairs,
    differences_of,
    differences_table,
    variants_table,
)
from galaxydit.eval.model_page.idea_variants import LEADING, variants_of
from galaxydit.eval.model_page.in_parallel import mapped
from galaxydit.eval.model_page.paper_ideas import SHIPPED_PROFILE, IdeaTask, find_threshold, generate_variants
from galaxydit.pipelines.compute_counter import measure_parts
from galaxydit.pipelines.published_models import WAN_TINY
from galaxydit.profiles.schema import read_profile
from galaxydit.proxies import PROXIES
from galaxydit.runtime.recognition import family_of

QUICK = replace(WAN_TINY, height=32, width=32, num_frames=5, steps=12)
PEER = "FirstBlockCache, 2x"


@pytest.fixture
def quick(tiny_wan_pipeline, monkeypatch):
    parts = measure_parts(tiny_wan_pipeline, "a red ball", QUICK)
    variants = {variant.key: variant for variant in variants_of(family_of(tiny_wan_pipeline.transformer))}
    for name, value in {"loaded": (tiny_wan_pipeline, parts), "variants": variants}.items():
        monkeypatch.setattr(paper_ideas, name, lambda value=value: value)
    monkeypatch.setattr(paper_ideas, "WAN_TINY", QUICK)
    monkeypatch.setattr(paper_ideas, "TRIALS", 4)
    monkeypatch.setattr(paper_ideas, "TUNED", 1)
    return variants


def test_a_threshold_is_found_and_its_variant_is_measured_against_the_plain_video(quick):
    key, threshold = find_threshold(IdeaTask("", (PEER,)))
    assert key == PEER
    assert 1e-6 < threshold < 10
    caption, measured = generate_variants(IdeaTask("", (PEER,), "a red ball", 3, ((PEER, 10.0),)))
    assert caption == "a red ball"
    assert measured[PEER]["compute_fraction"] < 1
    assert 0 < measured[PEER]["psnr"] < 100


def test_every_pair_is_of_variants_that_exist(quick):
    rows = {"a": {key: {"psnr": 30.0, "compute_fraction": 0.5} for key in quick}}
    named = {key for pair in compared_pairs(rows) for key in pair}
    missing = {key for key in named - quick.keys() if "2.5x" not in key and "3x" not in key}
    assert not missing  # some are made at 2x alone
    assert {f"threshold on {proxy.name}, 2x" for proxy in PROXIES.values() if proxy.name == "block_output"} <= named
    assert any(ALONE in key for key in named)


def test_differences_are_paired_by_caption():
    def row(first, second):
        return {key: {"psnr": psnr, "compute_fraction": 0.5} for key, psnr in (("x", first), ("y", second))}

    rows = {"a": row(31.0, 30.0), "b": row(29.0, 30.5), "c": {"x": {"psnr": 1.0, "compute_fraction": 0.5}}}
    assert differences_of(rows, "x", "y") == [1.0, -1.5]
    assert [cells[0] for cells in variants_table(rows).rows] == ["x", "y"]
    assert not differences_table(rows).rows


def test_one_process_keeps_the_order():
    assert list(mapped(str.upper, ["a", "b"], 1)) == ["A", "B"]


def test_the_leading_proxy_is_that_of_the_shipped_profile() -> None:
    assert read_profile(SHIPPED_PROFILE).evidence.ranking[0].proxy == LEADING
