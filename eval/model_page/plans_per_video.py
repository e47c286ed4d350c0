"""Compare plans for each video with one plan for all, by PSNR: `python -m galaxydit.eval.model_page.plans_per_video`.

Every plan computes the same number of steps, and is made by the planner of the calibration, which weighs errors by
their gain on the final latent. The plan for all is planned on the other videos' recordings; a video's own plan on its
own recording, which nobody has beforehand; and the plan by its proxy on an estimate from the proxy's distances.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from tqdm import tqdm

from galaxydit import FixedSteps, GalaxyDiTConfig
from galaxydit.calibration.recording import Array, Recording
from galaxydit.calibration.search import FullSteps, ScheduleError, planned_schedules
from galaxydit.eval.compared import lead
from galaxydit.eval.model_page.in_parallel import Processes, mapped
from galaxydit.eval.model_page.measured_model import SHIPPED, Folder, Weights, load_measured
from galaxydit.files import write_json
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.psnr import psnr
from galaxydit.pipelines.published_models import WAN_TINY
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.table import Table
from galaxydit.pipelines.trial import accelerated
from galaxydit.policies.schedule import full_step_count
from galaxydit.profiles.evidence import ErrorPropagation
from galaxydit.profiles.profile_registry import load_profile
from galaxydit.validation import parse

FOR_ALL, OWN, BY_PROXY = WAYS = ("one plan for all", "the video's own", "by its proxy")
FIRST_COMPARED = 5  # step; before it, the latent is noise and changes little


def estimated_by_proxy(recording: Recording, others: Sequence[Recording], proxy: str) -> Recording:
    """The recording that the video's proxy lets one expect: the others' mean, moved by the proxy's deviation from it.

    log(change / mean change) = slope log(distance / mean distance) at each step, with the slope of the other videos.
    """
    changes = np.array([_changes(other) for other in others])
    distances = np.array([other.distances[proxy][1:] for other in others])
    moved = _log_deviation(distances)[:, FIRST_COMPARED:].ravel()
    changed = _log_deviation(changes)[:, FIRST_COMPARED:].ravel()
    slope = float(moved @ changed) / max(float(moved @ moved), 1e-12)
    mean_distance = np.exp(np.log(np.maximum(distances, 1e-12)).mean(axis=0))
    own_distance = np.maximum(np.array(recording.distances[proxy][1:]), 1e-12)
    ratios = (own_distance / np.maximum(mean_distance, 1e-12)) ** slope
    ratios[:FIRST_COMPARED] = 1.0
    products = np.mean([other.products for other in others], axis=0) * np.outer(ratios, ratios)
    return replace(recording, guided_products=tuple(map(tuple, products.tolist())))


def _changes(recording: Recording) -> Array:
    """Root mean square change of the guided prediction at each step but the first, `(steps - 1,)`."""
    return np.asarray(np.sqrt(np.diagonal(recording.products)))


def _log_deviation(values: Array) -> Array:
    """Logarithms of `(videos, steps)` less their mean over the videos."""
    logarithms = np.log(np.maximum(values, 1e-12))
    return np.asarray(logarithms - logarithms.mean(axis=0))


def plans_of(
    recordings: Sequence[Recording], index: int, count: int, proxy: str, growth: ErrorPropagation
) -> dict[str, FullSteps]:
    """By way of planning, the `count` computed steps of the video of recording `index`."""
    others = [*recordings[:index], *recordings[index + 1 :]]
    sources = {
        FOR_ALL: others,
        OWN: [recordings[index]],
        BY_PROXY: [estimated_by_proxy(recordings[index], others, proxy)],
    }
    return {way: planned_schedules(ScheduleError(source), growth, [count], 1)[count] for way, source in sources.items()}


@dataclass(frozen=True)
class PlansTask:
    """What one process measures: plans of one caption, given as computed steps, in a pipeline of `load_measured`."""

    caption: str
    seed: int
    plans: tuple[FullSteps, ...]
    model: Path
    transformer: Path | None


def in_process(task: PlansTask) -> tuple[str, dict[str, float]]:
    """The caption, and the PSNR in dB of each plan by its name."""
    return task.caption, measure_plans(load_measured(task.model, task.transformer), task, WAN_TINY)


def measure_plans(pipe: Any, task: PlansTask, settings: GenerationSettings) -> dict[str, float]:
    """The PSNR in dB of each plan of a task by its name."""
    plain = generate(pipe, task.caption, settings, task.seed).frames
    measured = {}
    for full in task.plans:
        config = GalaxyDiTConfig(FixedSteps(full))
        with accelerated(pipe, config=config):
            measured[name_of(full)] = psnr(generate(pipe, task.caption, settings, task.seed).frames, plain)
    return measured


def name_of(full: FullSteps) -> str:
    return " ".join(map(str, full))


def tasks_of(
    rows: Sequence[dict[str, Any]],
    plans: Mapping[float, Sequence[dict[str, FullSteps]]],
    content: dict[str, dict[str, float]],
    model: Path,
    transformer: Path | None,
) -> list[PlansTask]:
    """One task for each caption with plans that `content` lacks; equal plans are generated once."""
    tasks = []
    for index, row in enumerate(rows):
        wanted = {full for planned in plans.values() for full in planned[index].values()}
        known = content.get(row["caption"], {})
        missing = tuple(sorted(full for full in wanted if name_of(full) not in known))
        if missing:
            tasks.append(PlansTask(row["caption"], row["seed"], missing, model, transformer))
    return tasks


def psnrs_of(
    content: dict[str, Any], rows: Sequence[dict[str, Any]], plans: Sequence[dict[str, FullSteps]], way: str
) -> Array:
    """PSNR in dB of each video by one way of planning, `(videos,)`."""
    values = []
    for row, planned in zip(rows, plans, strict=True):
        values.append(content[row["caption"]][name_of(planned[way])])
    return np.array(values)


def table_of(
    content: dict[str, Any], rows: Sequence[dict[str, Any]], plans: dict[float, Sequence[dict[str, FullSteps]]]
) -> Table:
    cells = []
    for speedup, planned in plans.items():
        one_plan = psnrs_of(content, rows, planned, FOR_ALL)
        for way in WAYS:
            values = psnrs_of(content, rows, planned, way)
            difference = "" if way == FOR_ALL else lead((values - one_plan).tolist(), digits=2)
            cells.append((f"{speedup:g}x, {way}", f"{fmean(values):.1f}", difference, str(len(values))))
    return Table(("plan", "PSNR, dB", "minus one plan for all, dB", "n"), cells)


def main(
    figures: Annotated[Path, typer.Option(help="The --out of `evaluate`, whose recordings are planned on.")],
    profile: Annotated[Path, typer.Option(help="A profile of this model, for the growth of errors.")],
    out: Annotated[Path, typer.Option(help="JSON file of the PSNRs.")],
    model: Folder = SHIPPED,
    transformer: Weights = None,
    proxy: Annotated[str, typer.Option(help="By which a video's plan is estimated.")] = "block_output",
    speedups: Annotated[str, typer.Option(help="With commas.")] = "2,2.5,3",
    processes: Processes = 1,
) -> None:
    """Compare plans for each video with one plan for all."""
    rows = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(figures.glob("caption-*.json"))]
    recordings = [parse(Recording, row["recording"], "recording") for row in rows]
    growth = load_profile(profile).evidence.propagation
    plans: dict[float, Sequence[dict[str, FullSteps]]] = {}
    for speedup in map(float, speedups.split(",")):
        count = full_step_count(recordings[0].steps, speedup)
        plans[speedup] = [plans_of(recordings, index, count, proxy, growth) for index in range(len(rows))]
    content: dict[str, Any] = {}
    if out.exists():
        content = json.loads(out.read_text(encoding="utf-8"))
    tasks = tasks_of(rows, plans, content, model, transformer)
    for caption, measured in tqdm(mapped(in_process, tasks, processes), "captions", len(tasks)):
        content.setdefault(caption, {}).update(measured)
        write_json(out, content)
    Console().print(table_of(content, rows, plans))


if __name__ == "__main__":
    typer.run(main)
