import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.jobs.job import Job, Variant
from galaxydit.eval.jobs.record import to_plain, video_record
from galaxydit.pipelines.runs import Record, StoredFile
from galaxydit.pipelines.trial_result import TrialResult
from galaxydit.pipelines.video import hash_frames

RESULT = TrialResult(
    frames_sha256="cd",
    shape=(5, 32, 32, 3),
    settings={"steps": 4, "height": None},
    denoise_seconds=1.0,
    end_to_end_seconds=1.5,
    compute_fraction=0.5,
    report={"calls": [{"step": 0, "reused": False}]},
    metrics={"psnr": math.inf, "fid": 1.0},
    skipped={"vmaf": "not installed"},
    versions={"torch": "2"},
    device="cpu",
)


def job_of(*prompts: str, seed: int = 0) -> Job:
    variants = (Variant("baseline", "baseline"), Variant("fast", "galaxydit", {"speedup": 2.0}))
    return Job(model="wan-tiny", prompts=prompts, seeds=(seed,), variants=variants)


UNIT = job_of("a cat", seed=7).units()[1]
FILE = StoredFile(f"files/{UNIT.id}.01234567.video.mp4", 5, "ab")
RECORD = Record(
    UNIT.id, UNIT.data, "done", 1, 2.0, "node:1", "2026-01-01", result=to_plain(RESULT), files={"video.mp4": FILE}
)


def test_a_result_is_read_back_as_it_was_written_infinities_included():
    text = json.dumps(RECORD.result)
    json.loads(text, parse_constant=pytest.fail)
    found = video_record(replace(RECORD, result=json.loads(text)))
    assert {name: getattr(found, name) for name in vars(RESULT)} == vars(RESULT)
    assert (found.prompt, found.seed, found.variant) == ("a cat", 7, "fast")
    assert (found.video, found.video_sha256) == (FILE.path, "ab")


def test_a_damaged_video_has_no_path_and_a_failed_one_no_result():
    damaged = video_record(RECORD, "it is gone")
    assert (damaged.video, damaged.damage, damaged.is_done) == (None, "it is gone", True)
    failed = video_record(replace(RECORD, status="failed", traceback="Error", result=None, files={}))
    assert (failed.video, failed.metrics, failed.traceback) == (None, {}, "Error")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"denoise_seconds": "long"}, "denoise_seconds"),
        ({"metrics": 3}, "metrics"),
        ({"report": 3}, "report"),
        ({"metrics": {"psnr": "high"}}, r"metrics\.psnr"),
    ],
)
def test_a_wrong_result_is_refused_by_field(change: dict[str, object], message: str):
    with pytest.raises(GalaxyDiTError, match=rf"result\..*{message}"):
        video_record(replace(RECORD, result=RECORD.result | change))


@given(st.text(), st.integers(0, 10**9))
def test_any_prompt_gives_a_safe_file_name(prompt: str, seed: int):
    name = job_of(prompt, seed=seed).units()[1].id
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-._")
    assert len(name) < 60


@pytest.mark.parametrize(
    "pair", [("a/b", "a b"), ("a", "A"), ("../../etc", "etc"), ("x" * 300, "x" * 301), ("🐈", "🐕")]
)
def test_different_prompts_have_different_units_however_alike(pair: tuple[str, str]):
    first, second = (job_of(prompt).units()[0].id for prompt in pair)
    assert first != second


def test_names_sort_in_the_order_of_prompts_and_a_variant_knows_its_baseline():
    job = job_of(*(f"prompt {index}" for index in range(12)))
    baselines = [unit for unit in job.units() if unit.data["variant"]["name"] == "baseline"]
    assert sorted(unit.id for unit in baselines) == [unit.id for unit in baselines]
    assert [job.unit_of(unit) for unit in job.units()[1::2]] == baselines


def test_the_hash_of_frames_sees_every_bit_and_the_shape():
    frames = np.zeros((2, 4, 4, 3), np.float32)
    other = frames.copy()
    other[1, 2, 3, 0] = np.nextafter(np.float32(0), np.float32(1))
    assert hash_frames(frames) == hash_frames(frames.copy())
    assert hash_frames(frames) != hash_frames(other)
    assert hash_frames(frames) != hash_frames(frames.reshape(4, 2, 4, 3))
