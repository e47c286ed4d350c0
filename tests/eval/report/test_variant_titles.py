"""What readers of a report see in place of the names of variants."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from galaxydit.eval.jobs.job import PLAIN, Job, Variant
from galaxydit.eval.report.payload import page_data
from galaxydit.eval.report.read_run import read_run
from galaxydit.eval.report.variant_titles import titles_of


def job_of(*variants: Variant, comparison: bool) -> Job:
    return Job(model="m", prompts=("a",), variants=(PLAIN, *variants), comparison=comparison)


def test_a_variant_of_a_comparison_is_named_by_its_method_and_by_what_sets_its_setting_apart() -> None:
    first = Variant("seacache-order-1-aa", "seacache-order-1", {"threshold": 0.25, "retention_steps": 1})
    second = Variant("seacache-order-1-bb", "seacache-order-1", {"threshold": 0.5, "retention_steps": 1})
    alone = Variant("mine-cc", "mine", {"steps": 10})
    assert list(titles_of(job_of(first, second, alone, comparison=True)).values()) == [
        "baseline",
        "SeaCache order 1, threshold 0.25",
        "SeaCache order 1, threshold 0.5",
        "mine",
    ]
    assert titles_of(job_of(first, comparison=False))[first.name] == first.name


def test_variants_that_would_share_a_title_keep_their_names_in_it() -> None:
    profiles = [Variant(f"galaxydit-{at}", "galaxydit", {"profile": f"/{at}/p.json"}) for at in ("a", "b")]
    titles = titles_of(job_of(*profiles, comparison=True))
    assert titles["galaxydit-a"] == "galaxydit, profile p.json (galaxydit-a)"
    assert len(set(titles.values())) == 3


def test_a_video_that_a_comparison_did_not_keep_is_said_to_be_not_kept(run_of: Callable[..., Path]) -> None:
    run = read_run(run_of(["a"]))
    records = tuple(replace(record, video=None, video_sha256=None) for record in run.records)
    for comparison, text in ((True, "not kept: "), (False, "the video's file cannot be read")):
        shown = replace(run, job=replace(run.job, comparison=comparison), records=records)
        assert all(unit["absent"].startswith(text) for unit in page_data(shown, {}, "")["rows"][0]["units"])
