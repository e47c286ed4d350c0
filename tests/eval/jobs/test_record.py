import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.jobs.record import MetricValue, Record, RunFolder, Unit, hash_frames, read_record, to_json

UNIT = Unit(3, "a cat", 7, 0, "fast")
RECORD = Record(
    version=1,
    unit=UNIT.id,
    prompt="a cat",
    prompt_index=3,
    seed=7,
    sample=0,
    variant="fast",
    status="done",
    attempts=1,
    traceback=None,
    video=f"videos/fast/{UNIT.id}.mp4",
    video_sha256="ab",
    frames_sha256="cd",
    shape=(5, 32, 32, 3),
    settings={"steps": 4, "height": None},
    options={"method": "galaxydit", "speedup": 2.0},
    denoise_seconds=1.0,
    end_to_end_seconds=1.5,
    compute_fraction=0.5,
    report={"calls": [{"step": 0}]},
    metrics={"psnr": MetricValue(math.inf, (math.inf, 40.0)), "fid": MetricValue(1.0)},
    skipped={"vmaf": "not installed"},
    versions={"torch": "2"},
    device="cpu",
    rank=0,
    worker="node:1",
    finished_at="2026-01-01T00:00:00+00:00",
)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path)
    folder.units.mkdir()
    return folder


def test_a_record_is_read_back_as_it_was_written_infinities_included(folder: RunFolder):
    path = folder.record(UNIT.id)
    path.write_text(to_json(RECORD))
    assert read_record(path) == RECORD
    json.loads(path.read_text(), parse_constant=pytest.fail)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version=2, allowed is 1"),
        ({"seed": "7"}, "seed='7', allowed is a whole number"),
        ({"colour": 1}, "colour is not known"),
        ({"status": "half"}, "status='half', allowed are 'done' and 'failed'"),
        ({"video": None}, "status='done' and video null"),
        ({"status": "failed"}, "status='failed' and traceback null"),
        ({"unit": "other"}, "unit='other', allowed is the file's own name"),
        ({"metrics": {"psnr": 3}}, "metrics=.* cannot be read"),
        ({"metrics": {"psnr": {"video": "high", "frames": []}}}, "metrics=.* cannot be read"),
    ],
)
def test_a_damaged_record_is_refused_by_field(folder: RunFolder, change: dict[str, object], message: str):
    path = folder.record(UNIT.id)
    path.write_text(json.dumps(json.loads(to_json(RECORD)) | change))
    with pytest.raises(GalaxyDiTError, match=message):
        read_record(path)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_cut_off_record_is_refused(folder: RunFolder, share: float):
    path, text = folder.record(UNIT.id), to_json(RECORD)
    path.write_text(text[: int(len(text) * share)])
    with pytest.raises(GalaxyDiTError, match="is damaged"):
        read_record(path)


def test_records_need_a_run_and_come_in_the_order_of_prompts(folder: RunFolder):
    with pytest.raises(GalaxyDiTError, match=r"holds no job\.json"):
        folder.records()
    folder.job.write_text("{}")
    for index in (12, 2):
        unit = replace(UNIT, prompt_index=index)
        folder.record(unit.id).write_text(to_json(replace(RECORD, unit=unit.id, prompt_index=index)))
    assert [record.prompt_index for record in folder.records()] == [2, 12]


@given(st.text(), st.integers(0, 10**9))
def test_any_prompt_gives_a_safe_file_name(prompt: str, seed: int):
    name = Unit(0, prompt, seed, 0, "fast").id
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-._")
    assert len(name) < 60


@pytest.mark.parametrize(
    "pair", [("a/b", "a b"), ("a", "A"), ("../../etc", "etc"), ("x" * 300, "x" * 301), ("🐈", "🐕")]
)
def test_different_prompts_have_different_units_however_alike(pair: tuple[str, str]):
    first, second = (replace(UNIT, prompt=prompt).id for prompt in pair)
    assert first != second


def test_the_hash_of_frames_sees_every_bit_and_the_shape():
    frames = np.zeros((2, 4, 4, 3), np.float32)
    other = frames.copy()
    other[1, 2, 3, 0] = np.nextafter(np.float32(0), np.float32(1))
    assert hash_frames(frames) == hash_frames(frames.copy())
    assert hash_frames(frames) != hash_frames(other)
    assert hash_frames(frames) != hash_frames(frames.reshape(4, 2, 4, 3))
