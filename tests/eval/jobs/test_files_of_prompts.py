"""Files that prompts name, where each command reads them: on any machine, and long after the prompts were read."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from galaxydit.calibration.parts import CalibrationMaker
from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.jobs.job import Job
from galaxydit.eval.jobs.maker import VideoMaker
from galaxydit.eval.jobs.run_job import open_run
from galaxydit.pipelines.inputs import hash_files
from galaxydit.pipelines.runs import Maker, Unit

KEYS = ("image", "last_image", "video", "mask", "reference_images")


def calibrates(line: str, folder: Path) -> tuple[Maker, Unit]:
    return CalibrationMaker(lambda: None), Unit("sample", {"part": "sample", "prompt": line, "files": hash_files(line)})


def makes_a_job(line: str, folder: Path) -> tuple[Maker, Unit]:
    """As `galaxydit eval run`, `galaxydit compare` and `galaxydit generate --prompts`."""
    job = Job(model="none", prompts=("a cat", line))
    return VideoMaker(job, open_run(folder / "run", job)), job.units()[-1]


def calibrates_in_a_job(line: str, folder: Path) -> tuple[Maker, Unit]:
    job = Job(model="none", prompts=("a cat",), calibration=(line,))
    return VideoMaker(job, open_run(folder / "run", job)), job.calibration_unit("teacache")


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("prepared", [calibrates, makes_a_job, calibrates_in_a_job])
def test_a_file_that_changed_after_its_prompt_was_read_is_refused_where_it_is_used(
    key: str, prepared: Callable[[str, Path], tuple[Maker, Unit]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.file").write_bytes(b"red")
    line = json.dumps({"prompt": "a cat", key: ["a.file"] if key == "reference_images" else "a.file"})
    maker, unit = prepared(line, tmp_path)
    Path("a.file").write_bytes(b"blue")
    with pytest.raises(GalaxyDiTError, match=rf"file='{tmp_path}/a.file' is not allowed: .*SHA-256"):
        maker.make(unit)


def test_the_units_of_a_job_depend_on_paths_as_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    units = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        Path("a.png").write_text(name)
        _, unit = makes_a_job('{"prompt": "a cat", "image": "a.png"}', tmp_path / name)
        units.append(unit.id)
    assert units == ["00001-s1-baseline-c20da8bf8d9af8c6"] * 2
