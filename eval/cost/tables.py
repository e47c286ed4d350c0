"""The tables of eval/README.md: `python -m galaxydit.eval.cost.tables` prints them."""

import logging
import sys
from collections.abc import Sequence
from statistics import fmean

from galaxydit.eval.cost.estimate import Interval, estimate
from galaxydit.eval.cost.fit import Row, read_measurements
from galaxydit.eval.cost.hardware import GPUS
from galaxydit.eval.cost.predict import fitted, predict
from galaxydit.eval.markdown import table
from galaxydit.pipelines.published_models import CHECKPOINTS

SPEEDUP = 2.0


def cost_table() -> str:
    """Markdown table of the predicted seconds and kJ of a video, for each Wan2.1 checkpoint and GPU.

    Each value is given without the plugin (plain), and with the plugin at half the block evaluations.
    """
    headings = ("model", "size and steps", "GPU", "plain s", "2x s", "plain kJ", "2x kJ", "saved kJ")
    rows = []
    for name in (name for name in CHECKPOINTS if name.startswith("wan2.1-")):
        for gpu in GPUS:
            made = estimate(name, gpu=gpu, speedup=SPEEDUP)
            assert made.accelerated is not None  # a speedup was asked for
            size = f"{made.width}x{made.height}x{made.frames}, {made.steps}"
            costs = (made.plain, made.accelerated)
            seconds = [_interval(cost.batch_latency_s, 1) for cost in costs]
            joules = [_interval(cost.energy_per_video_joules, 1000) for cost in costs]
            rows.append([f"`{name}`", size, gpu, *seconds, *joules, _three((made.saved_joules or 0) / 1000)])
    return table(headings, rows, labels=headings[:3])


def published_table() -> str:
    """Markdown table of published and predicted seconds and kJ of one video.

    A row has the means over the measurements of one model, GPU and number of GPUs.
    """
    headings = ("model", "GPU", "GPUs", "rows", "s published", "s predicted", "kJ published", "kJ predicted")
    groups: dict[tuple[str, str, int], list[Row]] = {}
    for row in read_measurements():
        groups.setdefault(row.group, []).append(row)
    return table(headings, [_published(*group, rows) for group, rows in groups.items()], labels=headings[:2])


def _published(model: str, gpu: str, gpus: int, rows: Sequence[Row]) -> list[str]:
    constants, _ = fitted()
    made = [predict(row.work, GPUS[gpu], constants, row.split) for row in rows]
    means = [fmean(row.seconds / row.work.batch for row in rows), fmean(prediction.seconds for prediction in made)]
    means += [fmean(row.joules for row in rows) / 1000, fmean(prediction.joules for prediction in made) / 1000]
    name = model.split("/")[1].removesuffix("-Diffusers")
    return [name, gpu, str(gpus), str(len(rows)), *map(_three, means)]


def _interval(interval: Interval, unit: float) -> str:
    value, low, high = (_three(number / unit) for number in (interval.value, interval.low, interval.high))
    return f"{value} ({low} to {high})"


def _three(value: float) -> str:
    """The value with three significant digits, without an exponent."""
    return f"{float(f'{value:.3g}'):,g}"


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    logging.getLogger(__name__).info("%s\n\n%s", cost_table(), published_table())
