"""Jobs by several real processes, some of which are killed."""

import multiprocessing
import os
import random
import subprocess
import sys
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from galaxydit.eval.jobs.acceptance import same_videos
from galaxydit.eval.jobs.job import Job
from galaxydit.eval.jobs.jobfile import read_job
from galaxydit.eval.jobs.record import RunFolder
from galaxydit.eval.jobs.runner import run_job

PATIENCE = 900  # seconds, for machines that have other things to do
EXPIRY = 3.0  # seconds
KILLS = 5

# Loaded once, so that a process starts in no time.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["galaxydit.eval.jobs.runner", "diffusers.pipelines.wan.pipeline_wan"])


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def start(job: Job, out: Path) -> ForkServerProcess:
    process = PROCESSES.Process(target=run_job, args=(job, "", out), kwargs={"expiry": EXPIRY})
    process.start()
    return process


def wait_for_work(folder: RunFolder, units: int) -> bool:
    """Until somebody has a unit; False if all are finished."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if len(folder.finished()) == units:
            return False
        if folder.claims.is_dir() and any(not path.name.startswith(".") for path in folder.claims.iterdir()):
            return True
        time.sleep(0.05)
    return pytest.fail("no process began a unit")


def test_processes_killed_at_random_lose_nothing_and_make_nothing_twice(job_file: Path, tmp_path: Path):
    job, calm, stormy = read_job(job_file), RunFolder(tmp_path / "calm"), RunFolder(tmp_path / "stormy")
    run_job(job, "", calm.root)
    draw = random.Random(0)
    workers = [start(job, stormy.root) for _ in range(2)]
    for _ in range(KILLS):
        if not wait_for_work(stormy, len(job.units())):
            break
        time.sleep(draw.uniform(0.0, 1.0))
        for index in draw.choice([(0,), (1,), (0, 1)]):
            workers[index].kill()
            workers[index].join()
            workers[index] = start(job, stormy.root)
    for worker in workers:
        worker.join(PATIENCE)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert {record.unit for record in stormy.records()} == {unit.id for unit in job.units()}
    assert same_videos(calm, stormy) == len(job.units())
    assert not list(stormy.scratch.iterdir())


def test_the_same_command_under_torchrun_shares_the_units_among_its_ranks(job_file: Path, tmp_path: Path):
    out = tmp_path / "run"
    command = ["eval", "run", str(job_file), "--out", str(out)]
    ranks = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m", "galaxydit.cli"]
    finished = subprocess.run(
        [sys.executable, *ranks, *command],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    records = RunFolder(out).records()
    assert {record.unit for record in records} == {unit.id for unit in read_job(job_file).units()}
    assert "rank 1: begins" in finished.stdout
    assert finished.stdout.count("6 done, 0 failed\n") == 1
    assert {record.rank for record in records} <= {0, 1}
