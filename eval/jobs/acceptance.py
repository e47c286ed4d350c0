"""A job whose processes are killed again and again, against the same job left alone.

`python -m galaxydit.eval.jobs.acceptance --out DIR`: both under torchrun with two ranks. Every unit must have its
record, once, and the decoded frames must be equal, hash for hash. Prints a table; exits with 1 if anything differs.
"""

import hashlib
import os
import random
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import psutil
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from galaxydit.eval.jobs.job import Job
from galaxydit.eval.jobs.jobfile import read_job
from galaxydit.eval.jobs.record import RunFolder

RANKS = 2
RESTARTS = 1000  # by torchrun, when one rank dies
LOOK_EVERY = 0.1  # seconds
JOB = """model = "wan-tiny"
metrics = ["psnr"]

[prompts]
suite = "wan-tiny"
count = {prompts}

[variants.galaxydit]
speedup = 2.0
"""


@dataclass(frozen=True)
class Ending:
    """How a run went: seconds, and how often one rank or all processes were killed."""

    seconds: float
    one_killed: int
    all_killed: int


def main(
    out: Annotated[Path, typer.Option(help="Folder for both runs; the runs in it are removed first.")],
    units: Annotated[int, typer.Option(min=2, help="Of the job on wan-tiny, half of them baselines.")] = 64,
    job: Annotated[Path | None, typer.Option(help="Another job file.")] = None,
    kills: Annotated[int, typer.Option(min=0)] = 10,
    seed: Annotated[int, typer.Option(help="Draws moments and victims.")] = 0,
    expiry: Annotated[float, typer.Option(min=1, help="Seconds, as for `galaxydit eval run`.")] = 15.0,
) -> None:
    """Kill, compare, tell."""
    out.mkdir(parents=True, exist_ok=True)
    if job is None:
        job = out / "job.toml"
        job.write_text(JOB.format(prompts=units // 2), encoding="utf-8")
    read = read_job(job)
    folders = [RunFolder(out / name) for name in ("undisturbed", "killed")]
    endings = []
    for folder, count in zip(folders, (0, kills), strict=True):
        shutil.rmtree(folder.root, ignore_errors=True)
        endings.append(_run(job, read, folder, count, random.Random(seed), expiry))
    equal = same_videos(*folders)
    table = Table(box=SIMPLE_HEAD)
    for heading in ("", "seconds", "one rank\nkilled", "all\nkilled", "units", "records", "done", "equal\nframes"):
        table.add_column(heading, justify="right", no_wrap=True)
    wanted, complete = {unit.id for unit in read.units()}, True
    for folder, ending in zip(folders, endings, strict=True):
        records = folder.records()
        done = sum(record.is_done for record in records)
        complete = complete and done == len(wanted) and {record.unit for record in records} == wanted
        numbers = (round(ending.seconds), ending.one_killed, ending.all_killed, len(wanted), len(records), done, equal)
        table.add_row(folder.root.name, *(str(number) for number in numbers))
    Console().print(table)
    if not complete or equal != len(wanted):
        raise typer.Exit(1)


def same_videos(first: RunFolder, second: RunFolder) -> int:
    """How many units have equal decoded frames in both runs, and mp4 files that are those of their records."""
    others = {record.unit: record for record in second.records() if record.is_done}
    return sum(
        record.unit in others
        and record.frames_sha256 == others[record.unit].frames_sha256
        and all(
            hashlib.sha256((folder.root / str(entry.video)).read_bytes()).hexdigest() == entry.video_sha256
            for folder, entry in ((first, record), (second, others[record.unit]))
        )
        for record in first.records()
        if record.is_done
    )


def _run(path: Path, job: Job, folder: RunFolder, kills: int, draw: random.Random, expiry: float) -> Ending:
    """A whole run, its kills spread over it: each at a random moment after the next share of the units is finished."""
    start, total, one, everyone = time.monotonic(), len(job.units()), 0, 0
    group = _launch(path, folder, expiry)
    try:
        for number in range(kills):
            while len(finished := folder.finished()) < total * (number + 1) / (kills + 1) and group.poll() is None:
                time.sleep(LOOK_EVERY)
            per_unit = (time.monotonic() - start) / max(1, len(finished))
            time.sleep(draw.uniform(0.0, 2 * min(per_unit, 10.0)))
            if group.poll() is not None:
                break
            ranks = psutil.Process(group.pid).children(recursive=True)
            if ranks and draw.random() < 0.5:
                with suppress(psutil.NoSuchProcess):
                    draw.choice(ranks).kill()
                one += 1
            else:
                _kill_all(group)
                group = _launch(path, folder, expiry)
                everyone += 1
        if group.wait() != 0:
            raise OSError(f"the run in {folder.root} ended with exit code {group.returncode}: see above")
    finally:
        _kill_all(group)
    return Ending(time.monotonic() - start, one, everyone)


def _launch(path: Path, folder: RunFolder, expiry: float) -> subprocess.Popen[bytes]:
    """torchrun, which starts the ranks and starts them again when one dies."""
    ranks = ["--standalone", "--nproc_per_node", str(RANKS), "--max-restarts", str(RESTARTS)]
    command = ["-m", "galaxydit.cli", "eval", "run", str(path), "--out", str(folder.root), "--expiry", str(expiry)]
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *ranks, *command], env={**os.environ, "OMP_NUM_THREADS": "1"}
    )


def _kill_all(group: subprocess.Popen[bytes]) -> None:
    """torchrun first, so that it starts nothing again."""
    if group.poll() is not None:
        return
    ranks = psutil.Process(group.pid).children(recursive=True)
    group.kill()
    for rank in ranks:
        with suppress(psutil.NoSuchProcess):
            rank.kill()
    group.wait()


if __name__ == "__main__":
    typer.run(main)
