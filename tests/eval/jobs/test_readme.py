"""The job of the README, in process and on Ray: the same command, the same videos."""

import re
from pathlib import Path

import pytest
from command_line import exit_code

from galaxydit.eval.report.read_run import read_run

README = Path(__file__).parents[3] / "README.md"


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    """The job with small videos of few steps, in float32: bfloat16 takes five times as long without AMX."""
    (text,) = re.findall(r"```toml\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    path = tmp_path / "job.toml"
    small = 'dtype = "float32"\nheight = 32\nwidth = 32\nframes = 5\n'
    path.write_text(small + text.replace("steps = 50", "steps = 12").replace("steps = 25", "steps = 6"))
    return path


@pytest.mark.filterwarnings("ignore::galaxydit.ProfileWarning")
def test_the_job_of_the_readme_runs_in_process_and_on_ray(
    job_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'galaxydit[ray]'")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr("signal.signal", lambda *_: None)  # the command takes SIGTERM over, which is the test run's
    for out, options in (("here", []), ("ray", ["--ray", "--workers", "2"])):
        assert exit_code("eval", "run", str(job_file), "--out", str(tmp_path / out), *options) == 0
    here, ray = (read_run(tmp_path / name).records for name in ("here", "ray"))
    assert [record.unit for record in here] == [record.unit for record in ray]
    assert [record.frames_sha256 for record in here] == [record.frames_sha256 for record in ray]
    assert len({record.worker for record in ray}) == 2
