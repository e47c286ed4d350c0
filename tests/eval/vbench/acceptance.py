"""Temporal flickering under kills: whole, and in four shares on two Ray workers, against upstream's own number.

`python tests/eval/vbench/acceptance.py --environment DIR --out DIR` makes 16 synthetic videos, kills one worker and
the driver once with SIGKILL, resumes, prints a table, and exits with 1 unless all numbers agree to 1e-6.
"""

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import numpy as np
import psutil
import typer
from rich.console import Console
from rich.table import Table

from galaxydit.eval.jobs.job import Job, Variant
from galaxydit.eval.jobs.record import VIDEO
from galaxydit.eval.jobs.run_job import open_run
from galaxydit.eval.published.vbench import VBENCH
from galaxydit.eval.vbench.environment import Environment, open_environment
from galaxydit.eval.vbench.measure_dimensions import evaluate
from galaxydit.eval.vbench.results import read_results, results_path
from galaxydit.pipelines.runs import Record, Store
from galaxydit.pipelines.video import save_video

DIMENSION = "temporal_flickering"
PROMPTS, SHARE, WORKERS = 16, 4, 2
FRAMES, HEIGHT, WIDTH = 33, 240, 416
PATIENCE = 600.0  # seconds
TOLERANCE = 1e-6

app = typer.Typer(add_completion=False)
console = Console()


def make_run(folder: Path) -> None:
    """A finished run of one variant with noisy moving patterns."""
    variants = (Variant("baseline", "baseline"),)
    prompts = tuple(f"pattern {index}" for index in range(PROMPTS))
    job = Job(model="wan-tiny", prompts=prompts, variants=variants, video="lossless")
    store = open_run(folder, job)
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    for unit in job.units():
        rng = np.random.default_rng(unit.data["prompt_index"])
        frames = [
            np.clip(
                120
                + 80 * np.sin(0.02 * x + 0.01 * y + rng.uniform(0, 0.3) + 0.1 * t)[..., None]
                + rng.normal(0, 6, (HEIGHT, WIDTH, 3)),
                0,
                255,
            )
            for t in range(FRAMES)
        ]
        path = folder / "made.mp4"
        save_video(np.stack(frames).astype(np.uint8), path, 16, lossless=True)
        record = Record(unit.id, unit.data, "done", 1, 1.0, "made:1", "2026-01-01T00:00:00Z", result={})
        store.commit(record, {VIDEO: path.read_bytes()})
        path.unlink()


def upstreams_own(environment: Environment, run: Path, folder: Path) -> float:
    """The score that VBench itself gives for the same files, called as its documentation shows."""
    (folder / "videos").mkdir(parents=True)
    for index, video in enumerate(sorted((run / "files").glob("*.mp4"))):
        (folder / "videos" / f"video {index}-0.mp4").symlink_to(video)
    code = (
        "import sys, torch; from vbench import VBench; "
        "VBench(torch.device('cpu'), '', sys.argv[1]).evaluate(videos_path=sys.argv[1] + '/videos', name='own', "
        "dimension_list=['temporal_flickering'], mode='custom_input')"
    )
    subprocess.run([environment.python, "-c", code, str(folder)], check=True, capture_output=True)
    return json.loads((folder / "own_eval_results.json").read_text())[DIMENSION][0]


def start(run: Path, environment: Path, log: Path) -> "subprocess.Popen[bytes]":
    arguments = [str(run), "--dimensions", DIMENSION, "--environment", str(environment), "--share", str(SHARE)]
    command = [sys.executable, "-m", "galaxydit.cli", "eval", "vbench", *arguments, "--ray", "--workers", str(WORKERS)]
    with log.open("ab") as opened:
        return subprocess.Popen(command, stdout=opened, stderr=subprocess.STDOUT, start_new_session=True)


def workers_of(process: "subprocess.Popen[bytes]") -> list[psutil.Process]:
    """Ray's workers of a driver that have started the benchmark."""
    with suppress(psutil.Error):
        family = psutil.Process(process.pid).children(recursive=True)
        benchmarks = [one for one in family if any("inside/driver.py" in word for word in one.cmdline())]
        return [psutil.Process(one.ppid()) for one in benchmarks]
    return []


def wait_for(what: str, found: "object", process: "subprocess.Popen[bytes]") -> object:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        if value := found():  # type: ignore[operator]
            return value
        time.sleep(0.02)
    raise SystemExit(f"{what}: not seen within {PATIENCE:.0f} s")


def kill_all(process: "subprocess.Popen[bytes]") -> int:
    """SIGKILL the driver, and wait for its cluster to end by itself. Returns how many processes did not."""
    family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(family, timeout=30)
    for one in alive:
        with suppress(psutil.Error):
            one.kill()
    return len(alive)


@app.command()
def check(environment: Annotated[Path, typer.Option()], out: Annotated[Path, typer.Option()]) -> None:
    opened, run = open_environment(environment, VBENCH), out / "run"
    make_run(run)
    own = upstreams_own(opened, run, out / "own")
    whole = evaluate(run, [DIMENSION], opened).variants["baseline"].dimensions[DIMENSION]
    os.rename(run / "vbench", out / "whole")

    shares = Store(run / "vbench" / "shares")
    process = start(run, environment, out / "log.txt")
    workers = wait_for("a worker", lambda: workers_of(process), process)
    workers[0].kill()  # type: ignore[index]
    wait_for("a finished share", lambda: shares.is_local and len(shares.unit_ids()) >= 1, process)
    finished = len(shares.unit_ids())
    left = kill_all(process)
    after_kill = len(shares.unit_ids())
    ended = start(run, environment, out / "log.txt").wait(PATIENCE)
    shared = read_results(results_path(run)).variants["baseline"].dimensions[DIMENSION]

    table = Table("", "score", "difference to upstream", "videos")
    for name, score, videos in (
        ("upstream", own, PROMPTS),
        ("whole", whole.score, len(whole.videos)),
        (f"{PROMPTS // SHARE} shares", shared.score, len(shared.videos)),
    ):
        table.add_row(name, f"{score:.9f}", f"{score - own:+.1e}", str(videos))
    console.print(table)
    console.print(
        f"{PROMPTS // SHARE} shares on {WORKERS} Ray workers; one worker killed, then the driver after {finished} "
        f"shares ({after_kill} after it died, {left} processes left behind); the resumed command ended with {ended} "
        f"and {len(shares.unit_ids())} shares"
    )
    agree = all(abs(one.score - own) <= TOLERANCE for one in (whole, shared)) and shared.videos == whole.videos
    if not agree or ended or len(shares.unit_ids()) != PROMPTS // SHARE or not 0 < after_kill < PROMPTS // SHARE:
        raise typer.Exit(1)


if __name__ == "__main__":
    app()
