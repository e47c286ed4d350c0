"""Whether other constants of the general schedule make better videos of wan-tiny, on captions of its calibration.

`python -m galaxydit.eval.general_schedule_grid --out FILE` generates each caption plain and at 2x and 3x, in float32,
with each pair of constants. Run it again when wan-tiny, the engine or the schedule changes. It resumes.
"""

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any
from unittest.mock import patch

import typer
from rich.console import Console
from tqdm import tqdm

from galaxydit.calibration.prompt_files import WAN_TINY_PROMPTS, read_prompts
from galaxydit.eval.compared import lead
from galaxydit.eval.measured_rows import resumed
from galaxydit.eval.model_page.in_parallel import Processes, mapped
from galaxydit.eval.model_page.measured_model import SHIPPED, load_measured
from galaxydit.files import write_json
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.psnr import psnr
from galaxydit.pipelines.published_models import WAN_TINY
from galaxydit.pipelines.table import Table
from galaxydit.pipelines.trial import accelerated
from galaxydit.policies import general_schedule
from galaxydit.profiles.configure import configure
from galaxydit.request import SCHEDULE, Request

SPEEDUPS = (2.0, 3.0)
POWERS, LATES = (1.0, 1.5, 2.0), (0.05, 0.15, 0.4)
SEED = 70_000

Measured = dict[str, float]
"""PSNR in dB by constants and speedup."""


def key_of(power: float, late: float, speedup: float) -> str:
    return f"power {power:g}, late {late:g}, {speedup:g}x"


def measure(task: tuple[int, str]) -> tuple[str, Measured]:
    """The caption of a task, and its PSNR with each pair of constants at each speedup."""
    index, caption = task
    pipe = load_measured(SHIPPED, None)
    plain = generate(pipe, caption, WAN_TINY, SEED + index).frames
    measured = {}
    for power, late, speedup in product(POWERS, LATES, SPEEDUPS):
        config = configure(pipe, Request(speedup=speedup, policy=SCHEDULE), None, speedup)
        with patch.multiple(general_schedule, POWER=power, LATE=late), accelerated(pipe, config=config):
            frames = generate(pipe, caption, WAN_TINY, SEED + index).frames
        measured[key_of(power, late, speedup)] = round(psnr(frames, plain), 4)
    return caption, measured


def table_of(rows: Mapping[str, Measured]) -> Table:
    """Means over the captions, and each pair of constants against the ones in use."""
    cells = []
    for speedup in SPEEDUPS:
        used = key_of(general_schedule.POWER, general_schedule.LATE, speedup)
        for power, late in product(POWERS, LATES):
            key = key_of(power, late, speedup)
            difference = lead([row[key] - row[used] for row in rows.values()], digits=2)
            cells.append((key, f"{fmean(row[key] for row in rows.values()):.2f}", difference))
    return Table(("constants", "PSNR, dB", "minus the ones in use, dB"), cells)


def main(
    out: Annotated[Path, typer.Option(help="JSON file of the PSNRs.")],
    prompts: Annotated[int, typer.Option(min=1, help="Number of captions.")] = 16,
    processes: Processes = 1,
) -> None:
    """Try other constants of the general schedule."""
    content: dict[str, Any] = {"psnr": {}} | resumed(out, load_measured(SHIPPED, None))
    rows: dict[str, Measured] = content["psnr"]
    captions = enumerate(read_prompts(WAN_TINY_PROMPTS)[:prompts])
    tasks = [task for task in captions if task[1] not in rows]
    for caption, measured in tqdm(mapped(measure, tasks, processes), "captions", len(tasks)):
        rows[caption] = measured
        write_json(out, content)
    Console().print(table_of(rows))


if __name__ == "__main__":
    typer.run(main)
