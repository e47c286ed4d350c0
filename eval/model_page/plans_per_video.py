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
from galaxydit.errors import refusal
from galaxydit.eval.compared import lead
from galaxydit.eval.measured_rows import resumed
from galaxydit.eval.model_page.in_parallel import Processes, mapped
from galaxydit.eval.model_page.measured_model import SHIPPED, Folder, Weights, load_measured
from galaxydit.files import write_json
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.psnr import psnr
from galaxydit.pipelines.published_models import WAN_TINY
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.table import DASH, Table
from galaxydit.pipelines.trial import accelerated
from galaxydit.policies.schedule import full_step_count
from galaxydit.profiles.evidence import ErrorPropagation
from galaxydit.profiles.profile_registry import load_profile
from galaxydit.validation import parse

PLANS, PSNRS = "plans", "psnr"  # keys of the file
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


def named_plans(
    rows: Sequence[Mapping[str, Any]], planned: Sequence[Mapping[str, FullSteps]]
) -> dict[str, dict[str, str]]:
    """By caption and way of planning, the name of the plan."""
    return {
        row["caption"]: {way: name_of(full) for way, full in plans.items()}
        for row, plans in zip(rows, planned, strict=True)
    }


def tasks_of(
    rows: Sequence[dict[str, Any]],
    plans: Sequence[Sequence[dict[str, FullSteps]]],
    known: Mapping[str, Mapping[str, float]],
    model: Path,
    transformer: Path | None,
) -> list[PlansTask]:
    """One task for each caption with plans that have no PSNR in `known`; equal plans are generated once."""
    tasks = []
    for index, row in enumerate(rows):
        wanted = {full for planned in plans for full in planned[index].values()}
        measured = known.get(row["caption"], {})
        missing = tuple(sorted(full for full in wanted if name_of(full) not in measured))
        if missing:
            tasks.append(PlansTask(row["caption"], row["seed"], missing, model, transformer))
    return tasks


def psnrs_of(content: Mapping[str, Any], speedup: str, way: str) -> list[float]:
    """PSNR in dB of each video by one way of planning, from the content of the file."""
    plans = content[PLANS][speedup]
    return [content[PSNRS][caption][named[way]] for caption, named in plans.items()]


def plans_table(content: Mapping[str, Any]) -> Table:
    """Each way of planning at each speedup, from the content of the file."""
    cells = []
    for speedup in content[PLANS]:
        for_all = psnrs_of(content, speedup, FOR_ALL)
        for way in WAYS:
            values = psnrs_of(content, speedup, way)
            differences = [value - base for value, base in zip(values, for_all, strict=True)]
            difference = DASH if way == FOR_ALL else lead(differences, digits=2)
            cells.append((f"{speedup}x, {way}", f"{fmean(values):.1f}", difference, str(len(values))))
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
    if not rows:
        raise refusal("--figures", str(figures), "a folder with caption-*.json", "run `evaluate` first")
    recordings = [parse(Recording, row["recording"], "recording") for row in rows]
    growth = load_profile(profile).evidence.propagation
    plans: dict[str, list[dict[str, FullSteps]]] = {}
    for speedup in speedups.split(","):
        count = full_step_count(recordings[0].steps, float(speedup))
        plans[speedup] = [plans_of(recordings, index, count, proxy, growth) for index in range(len(rows))]
    content: dict[str, Any] = {PSNRS: {}} | resumed(out, load_measured(model, transformer))
    content[PLANS] = {speedup: named_plans(rows, planned) for speedup, planned in plans.items()}
    tasks = tasks_of(rows, list(plans.values()), content[PSNRS], model, transformer)
    for caption, measured in tqdm(mapped(in_process, tasks, processes), "captions", len(tasks)):
        content[PSNRS].setdefault(caption, {}).update(measured)
        write_json(out, content)
    Console().print(plans_table(content))


if __name__ == "__main__":
    typer.run(main)
