"""The run folder of an earlier version is read, and is extended only if a mixture of versions is allowed."""

import json
import logging
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.jobs.job import Job, Variant
from galaxydit.eval.jobs.run_job import load_run, open_run, run_job
from galaxydit.eval.report.payload import page_data
from galaxydit.eval.report.read_run import read_run
from galaxydit.pipelines.conditions import code_identity, hash_weights
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.runs import Outcome

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """Four videos of wan-tiny in 10 steps, written before records held the identity of the code."""
    return Path(shutil.copytree(Path(__file__).with_name("stored_run"), tmp_path / "run"))


def test_an_earlier_run_is_read_by_its_own_names_of_files(stored: Path):
    run = read_run(stored)
    assert [record.variant for record in run.records] == ["baseline", "galaxydit", "half", "skip"]
    assert [record.compute_fraction for record in run.records] == [1.0, 0.9, 0.5, 0.5]
    assert [round(record.metrics["psnr"], 2) for record in run.records[1:]] == [28.52, 12.92, 12.57]
    assert {record.code for record in run.records} == {""}
    assert all(record.video and not record.damage for record in run.records)
    assert run.records[0].video == "files/00000-s0-baseline-db62562805be45f8.8e0bb36f.video.mp4"
    assert [variant["name"] for variant in page_data(run, {}, "")["variants"]] == [
        variant.name for variant in run.job.variants
    ]
    store, job = load_run(stored)
    assert {unit.id for unit in job.units()} == store.unit_ids()
    assert run_job(job, store) == Outcome(4, 0)  # nothing is left, so no version is mixed


@pytest.fixture
def longer_job(stored: Path) -> Job:
    """The job of the stored run, with one more variant."""
    _, job = load_run(stored)
    return replace(job, variants=(*job.variants, Variant("third", "fewer-steps", {"steps": 3})))


def test_a_run_of_former_weights_is_not_extended(stored: Path, longer_job: Job):
    expected = "belongs to another model. Changed: weights.transformer: .* Take a new --out"
    with pytest.raises(GalaxyDiTError, match=expected):
        run_job(longer_job, open_run(stored, longer_job), allow_mixed_versions=True)
    assert len(read_run(stored).records) == 4


def test_an_earlier_run_is_extended_only_if_a_mixture_of_versions_is_allowed(
    stored: Path, longer_job: Job, caplog: pytest.LogCaptureFixture
):
    model = json.loads((stored / "model.json").read_text())
    # As if the earlier version had had the weights of today.
    model["weights"]["transformer"] = hash_weights(load_pipeline("wan-tiny").transformer)
    (stored / "model.json").write_text(json.dumps(model))
    store = open_run(stored, longer_job)
    expected = rf"holds videos of other versions: .*code unknown -> {code_identity()}; take a new --out, or"
    with pytest.raises(GalaxyDiTError, match=expected):
        run_job(longer_job, store)
    assert len(store.unit_ids()) == 4
    with caplog.at_level(logging.WARNING):
        assert run_job(longer_job, store, allow_mixed_versions=True) == Outcome(5, 0)
    assert re.search(rf"mixes versions: .*code unknown -> {code_identity()}", caplog.text)
    assert read_run(stored).records[-1].code == code_identity()
