"""What each stage of a calibration takes: seconds, joules and peak memory."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from diffusers import WanPipeline

from galaxydit.calibration.budget import Budget
from galaxydit.calibration.calibration import calibrate
from galaxydit.eval.gpu.measured_video import peak_bytes, reset_peak
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.stopwatch import BEGIN, END, Stopwatch

BETWEEN = "between"  # two stages, such as the profile that is made after a recording


def _begin(device: torch.device) -> Stopwatch:
    """A stopwatch that begins now, with a new count of the peak memory."""
    reset_peak(device)
    watch = Stopwatch(device, device)
    watch.mark(BEGIN)
    return watch


def measure_stages(
    pipe: WanPipeline,
    settings: GenerationSettings,
    budget: Budget,
    write: Callable[[list[dict[str, Any]]], None],
    folder: Path,
    before: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Calibrate, and after each part of a stage `write` what every one took so far; returns all of them.

    `folder` keeps the finished parts. `before` is called with the name of a stage before each of its parts, and may
    raise to end the calibration.
    """
    device = pipe._execution_device
    stages: list[dict[str, Any]] = []
    watch = _begin(device)

    def note(what: str, stage: str = BETWEEN) -> None:
        nonlocal watch
        watch.mark(END)
        joules = watch.joules(BEGIN, END)
        if joules is not None and math.isnan(joules):
            joules = None
        took = {"seconds": watch.seconds(BEGIN, END), "joules": joules}
        stages.append({"stage": stage, "what": what, **took, "peak_bytes": peak_bytes(device)})
        write(stages)
        watch = _begin(device)

    def progress(stage: str, done: int, total: int) -> None:
        note(f"{stage} {done}/{total}", stage if done else BETWEEN)
        if done < total:
            before(stage)

    calibrate(pipe, resume_dir=folder, budget=budget, settings=settings, say=note, progress=progress)
    note("end")
    return stages
