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
    for name in (name for name in CHECKPOINTS if name.startswith("wan2.1-t2v")):
        for gpu in GPUS:
            made = estimate(name, gpu=gpu, speedup=SPEEDUP, attention="flash" if gpu in AMPERE else "_native_cudnn")
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
    cells = []
    for rows in groups.values():
        row, (constants, _) = rows[0], fitted()
        made = np.mean([predicted(row, constants) for row in rows], axis=0) / (1, 1000)
        given = np.mean([(row.seconds, row.joules) for row in rows], axis=0) / (1, 1000)
        means = ["" if math.isnan(mean) else digits(mean) for pair in zip(given, made, strict=True) for mean in pair]
        what = f"{row.part}, {row.steps} step{'s' * (row.steps > 1)}, {row.platform.kernel}"
        what += ", compiled" * row.platform.compiled
        what += f", {row.compute_fraction:.0%} of the blocks" * (row.compute_fraction < 1)
        where = ["yes" if row.fitted else "no", row.platform.gpu.name, str(row.platform.gpus)]
        cells.append([row.label.split("/")[1].removesuffix("-Diffusers"), what, *where, str(len(rows)), *means])
    return Table(headings, cells, 4).markdown()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s\n", stream=sys.stdout)
    for text in (cost_table(), measured_table()):
        logging.getLogger(__name__).info("%s", text)
