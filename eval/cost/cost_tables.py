"""The tables of eval/README.md and eval/results/costs/table.md.

`python -m galaxydit.eval.cost.cost_tables` prints them.
"""

import logging
import math
import sys
from typing import Any

import numpy as np

from galaxydit.eval.cost.cost_estimate import estimate
from galaxydit.eval.cost.cost_rows import shown
from galaxydit.eval.cost.fit_constants import PUBLISHED, Row, predicted, read_measurements
from galaxydit.eval.cost.hardware import GPUS
from galaxydit.eval.cost.predict import fitted
from galaxydit.pipelines.published_models import CHECKPOINTS
from galaxydit.pipelines.table import Table, digits

SPEEDUP = 2.0
AMPERE = ("A100", "RTX 4090")  # GPUs on which PyTorch 2.11 chooses FlashAttention-2; on the others cuDNN


def cost_table() -> str:
    """Markdown of predicted seconds and kJ of Wan2.1's text-to-video checkpoints on each GPU, plain and at 2x."""
    headings = ("model", "size and steps", "GPU", "plain s", "2x s", "plain kJ", "2x kJ", "saved kJ")
    rows = []
    for name in CHECKPOINTS:
        if not name.startswith("wan2.1-t2v"):
            continue
        for gpu in GPUS:
            attention = "flash" if gpu in AMPERE else "_native_cudnn"
            made = estimate(name, gpu=gpu, speedup=SPEEDUP, attention=attention)
            assert made.accelerated is not None  # a speedup was asked for
            size = f"{made.width}x{made.height}x{made.frames}, {made.steps}"
            costs = (made.plain, made.accelerated)
            seconds = [shown(cost.batch_latency_s, 1) for cost in costs]
            joules = [shown(cost.energy_per_video_joules, 1000) for cost in costs]
            rows.append([f"`{name}`", size, gpu, *seconds, *joules, digits((made.saved_joules or 0) / 1000)])
    return Table(headings, rows, 3).markdown()


def measured_table() -> str:
    """Markdown of measured and predicted seconds and kJ, means over groups of rows, `PUBLISHED` ones first."""
    headings = ("model", "measured", "fit", "GPU", "GPUs", "rows", "s", "s predicted", "kJ", "kJ predicted")
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in sorted(read_measurements(), key=lambda row: row.name != PUBLISHED):
        if row.part != "layer":
            groups.setdefault((row.name, *row.group), []).append(row)
    constants, _ = fitted()
    cells = []
    for rows in groups.values():
        made_seconds, made_joules = np.mean([predicted(row, constants) for row in rows], axis=0)
        seconds, joules = np.mean([(row.seconds, row.joules) for row in rows], axis=0)
        means = [_mean(seconds), _mean(made_seconds), _mean(joules / 1000), _mean(made_joules / 1000)]
        row = rows[0]
        model = row.label.split("/")[1].removesuffix("-Diffusers")
        is_fitted = "yes" if row.fitted else "no"
        where = [row.platform.gpu.name, str(row.platform.gpus)]
        cells.append([model, _measured(row), is_fitted, *where, str(len(rows)), *means])
    return Table(headings, cells, 4).markdown()


def _mean(value: float) -> str:
    return "" if math.isnan(value) else digits(value)


def _measured(row: Row) -> str:
    """Such as "denoising, 50 steps, cuDNN, compiled"."""
    parts = [row.part, "1 step" if row.steps == 1 else f"{row.steps} steps", row.platform.kernel]
    if row.platform.compiled:
        parts.append("compiled")
    if row.compute_fraction < 1:
        parts.append(f"{row.compute_fraction:.0%} of the blocks")
    return ", ".join(parts)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s\n", stream=sys.stdout)
    for text in (cost_table(), measured_table()):
        logging.getLogger(__name__).info("%s", text)
