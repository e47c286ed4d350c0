"""Seconds, joules and peak memory of each stage of a calibration of Wan2.1 with random weights of its true shapes.

`python -m galaxydit.eval.latency.calibration_cost --out eval/results/gpu/calibration.json` calibrates the 1.3B by
default; `--model 14B --size 720p --steps 20 --budget 0.1` measures the first stages of the 14B.
"""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from galaxydit.calibration.budget import read_budget
from galaxydit.calibration.calibration import calibrate
from galaxydit.device_queue import synchronize
from galaxydit.energy import difference, read
from galaxydit.eval.latency.whole_pipeline import opened, options
from galaxydit.files import write_json
from galaxydit.pipelines.conditions import product_name


class Stages:
    """Notes what passed since the note before, and writes all notes."""

    def __init__(self, device: torch.device, out: Path, head: dict[str, Any]) -> None:
        self.device, self.out, self.head = device, out, head
        self.noted: list[dict[str, Any]] = []
        self._begin()

    def _begin(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        self.start, self.energy = time.perf_counter(), read(self.device, self)

    def note(self, what: str) -> None:
        synchronize(self.device)
        seconds, joules = time.perf_counter() - self.start, difference(self.energy, read(self.device, self))
        peak = torch.cuda.max_memory_allocated(self.device) if self.device.type == "cuda" else None
        self.noted.append({"what": what, "seconds": seconds, "joules": joules, "peak_bytes": peak})
        write_json(self.out, self.head | {"stages": self.noted})
        self._begin()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__)
    parser.add_argument("--budget", default="", help="as of `galaxydit calibrate`")
    given = parser.parse_args(arguments)
    pipe, settings, device = opened(given)
    pipe.set_progress_bar_config(disable=True)
    head = {"model": given.model, "device": product_name(device), "steps": given.steps}
    stages = Stages(device, given.out, head)
    with tempfile.TemporaryDirectory() as folder:
        calibrate(
            pipe,
            resume_dir=Path(folder),
            budget=read_budget(given.budget),
            settings=settings,
            say=stages.note,
            progress=lambda stage, done, total: stages.note(f"{stage} {done}/{total}"),
        )
    stages.note("end")


if __name__ == "__main__":
    main()
