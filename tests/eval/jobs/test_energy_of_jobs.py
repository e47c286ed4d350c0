"""A job that was killed carries the joules of the finished videos alone, into records and exports."""

import csv
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from simulated_gpu import BLOCK, SimulatedCounter

from galaxydit.eval.jobs import maker
from galaxydit.eval.jobs.jobfile import read_job
from galaxydit.eval.jobs.run_job import open_run, run_job
from galaxydit.eval.report.export import write_csv
from galaxydit.eval.report.read_run import read_run

pytestmark = pytest.mark.filterwarnings("ignore::galaxydit.NoEffectWarning", "ignore::galaxydit.FullComputeWarning")
BLOCKS, BRANCHES, STEPS, HALF = 3, 2, 10, 5
ONE = BLOCKS * BRANCHES * BLOCK  # joules of one step


def run_in_child(work: Callable[[], Any]) -> int:
    """The exit code of a forked process, negative if it was killed."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_killed_job_counts_every_video_once(
    job_file: Path, tmp_path: Path, simulated_gpu: SimulatedCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = job_file.read_text()
    job_file.write_text(text.replace("[variants.galaxydit]\nthreshold = 3.0\n", ""))
    job, load = read_job(job_file), maker.load_pipeline
    killed_at: list[int] = []

    def load_connected(*args: Any, **kwargs: Any) -> Any:
        pipe = load(*args, **kwargs)
        simulated_gpu.connect(pipe)
        pipe.transformer.blocks[0].register_forward_hook(lambda *_: kill_when_due())
        return pipe

    def kill_when_due() -> None:
        if killed_at and simulated_gpu.joules > killed_at[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(maker, "load_pipeline", load_connected)
    out = tmp_path / "run"

    def interrupted() -> None:
        killed_at.append(simulated_gpu.joules + 3 * STEPS * ONE + 2000)  # within the third video
        run_job(job, open_run(out, job))

    assert run_in_child(interrupted) == -signal.SIGKILL
    finished = [record for record in read_run(out).records if record.is_done]
    assert 0 < len(finished) < 4
    run_job(job, open_run(out, job))

    records = read_run(out).records
    assert [record.variant for record in records] == ["baseline", "half"] * 2
    assert [record.denoise_joules for record in records] == [STEPS * ONE, HALF * ONE] * 2
    outside = {(record.energy_per_video_joules or 0) - (record.denoise_joules or 0) for record in records}
    assert len(outside) == 1  # text encoder and decoder, equal for every video
    assert outside.pop() > 0
    with write_csv(read_run(out), tmp_path / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["denoise_joules"]) for row in rows] == [STEPS * ONE, HALF * ONE] * 2
    for row, record in zip(rows, records, strict=True):
        joules, seconds = float(row["energy_per_video_joules"]), float(row["end_to_end_seconds"])
        assert joules == record.energy_per_video_joules
        assert float(row["avg_power_watts"]) == pytest.approx(joules / seconds)
        assert row["energy_note"] == ""
