"""Repeat published PSNRs of Wan2.1-T2V-1.3B on wan-tiny: `python -m galaxydit.eval.model_page.published_rows`.

A published run is repeated with its computed steps, its guidance and its flow shift times `SHIFT_FACTOR`, in float32. A
threshold of another model means nothing here, so rows with `computed` get the one that computes as many steps on a
caption that is not scored. The command goes on after an interruption.
"""

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from diffusers import DiffusionPipeline
from numpy.typing import NDArray
from rich.console import Console
from tqdm import tqdm

from galaxydit.eval.measured_rows import bind_folder
from galaxydit.eval.methods.method_registry import load_method, slug_of
from galaxydit.eval.methods.step_lists import STEP_LISTS
from galaxydit.eval.model_page.in_parallel import Processes, mapped
from galaxydit.eval.model_page.measured_model import SHIPPED, Folder, Weights, load_measured
from galaxydit.eval.model_page.published_table import published_table
from galaxydit.eval.model_page.threshold_search import nearest_threshold
from galaxydit.files import replacing, write_json
from galaxydit.pipelines.compute_counter import BlockPart, measure_parts
from galaxydit.pipelines.generate import GeneratedVideo
from galaxydit.pipelines.psnr import psnr
from galaxydit.pipelines.published_models import WAN_TINY
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.trial import Attached, generate_with, plain
from galaxydit.pipelines.wan_tiny.world import draw_prompts

SHIFT_FACTOR = 0.3  # see the section on flow shift in wan-tiny's README
STEPS = 50
TRIALS = 6  # of a threshold's bisection
THRESHOLDS = (1e-3, 20.0)
CAPTION_SEED = 5
TUNING_SEED = 6  # of the captions for calibrations and thresholds


@dataclass(frozen=True)
class PublishedRow:
    """A published PSNR in dB, and how to repeat it; `seen` rows were looked at when the world was chosen."""

    name: str
    flow_shift: float
    guidance: float
    psnr: float
    method: str = ""  # empty: plain sampling in `plain_steps` steps
    setting: dict[str, Any] = field(default_factory=dict)
    plain_steps: int = STEPS
    computed: float | None = None  # steps, by which the threshold is chosen
    seen: bool = False


def _listed_rows() -> list[PublishedRow]:
    """MagCache's step lists; sources of the PSNRs: `step_lists.py`."""
    rows = []
    for listed in STEP_LISTS:
        setting = {"full": listed.steps, "conditional_only": listed.conditional_only}
        rows.append(
            PublishedRow(listed.name, listed.flow_shift, listed.guidance, listed.psnr, "step list", setting, seen=True)
        )
    return rows


_TAYLOR = {"cache_interval": 3, "disable_cache_before_step": 3, "max_order": 1, "lite": False}
_TEACACHE = {"signal": "time_embedding", "first": 1, "last": 1, "polynomial": "fitted"}
_SEACACHE = {"max_consecutive_cached": 0}
# arXiv 2609.36433, table 1: 100 prompts, flow shift 3; arXiv 2610.10457, table 2: 200 prompts, flow shift 5, whose
# numbers of computed steps follow from the latencies.
ROWS = (
    *_listed_rows(),
    PublishedRow("25 plain steps, shift 3", 3, 5, 15.87, plain_steps=25, seen=True),
    PublishedRow("TaylorSeer, shift 3", 3, 5, 16.96, "TaylorSeer published", _TAYLOR, seen=True),
    PublishedRow("HiCache, shift 3", 3, 5, 18.79, "HiCache published", _TAYLOR, seen=True),
    PublishedRow("TeaCache 0.142, shift 5", 5, 5, 20.12, "TeaCache published", _TEACACHE, computed=18.9),
    PublishedRow("TeaCache 0.195, shift 5", 5, 5, 17.39, "TeaCache published", _TEACACHE, computed=14.9),
    PublishedRow("TeaCache 0.36, shift 5", 5, 5, 14.09, "TeaCache published", _TEACACHE, computed=10.0),
    PublishedRow("SeaCache 0.28, shift 5", 5, 5, 22.86, "SeaCache published", _SEACACHE, computed=19.3),
    PublishedRow("SeaCache 0.47, shift 5", 5, 5, 18.78, "SeaCache published", _SEACACHE, computed=14.2),
    PublishedRow("SeaCache 0.7, shift 5", 5, 5, 17.13, "SeaCache published", _SEACACHE, computed=10.1),
    PublishedRow("DiCache 0.155, shift 5", 5, 5, 22.28, "DiCache published", {"first": 10}, computed=19.2),
    PublishedRow("DiCache 0.365, shift 5", 5, 5, 19.69, "DiCache published", {"first": 10}, computed=14.7),
    PublishedRow("DiCache 12.0, shift 5", 5, 5, 14.68, "DiCache published", {"first": 9}, computed=10.0),
)


class Bench:
    """Generates videos of `pipe`; the plain ones are kept in the folder `out`."""

    def __init__(self, pipe: Any, out: Path, settings: GenerationSettings) -> None:
        self._pipe, self._out, self._settings = pipe, out, settings
        self._parts: tuple[BlockPart, ...] = ()
        self._calibrations: dict[tuple[str, float], Any] = {}
        self._tuning_prompts = draw_prompts(2, TUNING_SEED)

    def settings_of(self, row: PublishedRow, steps: int = STEPS) -> GenerationSettings:
        shift = SHIFT_FACTOR * row.flow_shift
        return replace(self._settings, steps=steps, flow_shift=shift, guidance_scale=row.guidance)

    def plain_frames(self, row: PublishedRow, caption: str, seed: int) -> NDArray[np.float32]:
        """The plain video of the row's flow shift and guidance, `(frames, height, width, 3)` in [0, 1]."""
        path = self._out / "plain" / f"shift-{row.flow_shift:g}-guidance-{row.guidance:g}-seed-{seed}.npy"
        if path.exists():
            return np.asarray(np.load(path))
        frames = generate_with(self._pipe, caption, self.settings_of(row), seed, plain).frames
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as unfinished, unfinished.open("wb") as file:
            np.save(file, frames)
        return frames

    def setting_of(self, row: PublishedRow) -> dict[str, Any]:
        """The row's setting, with the threshold that computes as many steps as published."""
        if row.computed is None:
            return row.setting

        def share_of(threshold: float) -> float:
            return self._computed_share(row, row.setting | {"threshold": threshold})

        nearest = nearest_threshold(share_of, row.computed / STEPS, THRESHOLDS, TRIALS)
        return row.setting | {"threshold": nearest}

    def _computed_share(self, row: PublishedRow, setting: dict[str, Any]) -> float:
        """Operations of the blocks of a video with the method / those of the plain one."""
        prompt, settings = self._tuning_prompts[0], self.settings_of(row)
        self._parts = self._parts or measure_parts(self._pipe, prompt, settings)
        video = self.video(row, setting, prompt, TUNING_SEED, self._parts)
        return video.operations / (2 * STEPS * sum(part.flops for part in self._parts))

    def video(
        self, row: PublishedRow, setting: dict[str, Any], caption: str, seed: int, parts: tuple[BlockPart, ...] = ()
    ) -> GeneratedVideo:
        if not row.method:
            return generate_with(self._pipe, caption, self.settings_of(row, row.plain_steps), seed, plain)
        method = load_method(row.method)
        settings = self.settings_of(row)
        key = (row.method, row.flow_shift)
        if method.calibrate is not None and key not in self._calibrations:
            self._calibrations[key] = method.calibrate(self._pipe, self._tuning_prompts, settings, TUNING_SEED)
        calibration = self._calibrations.get(key)

        def attach(pipe: DiffusionPipeline) -> AbstractContextManager[Attached]:
            return method.attach(pipe, setting, calibration)

        return generate_with(self._pipe, caption, settings, seed, attach, parts)


@dataclass(frozen=True)
class RowTask:
    """What one process measures: a row on all captions, with the files of `load_measured`."""

    row: PublishedRow
    captions: tuple[str, ...]
    out: Path
    model: Path
    transformer: Path | None


def in_process(task: RowTask) -> tuple[str, dict[str, Any]]:
    """The row's name, and what `measure_row` measures."""
    bench = Bench(load_measured(task.model, task.transformer), task.out, WAN_TINY)
    return task.row.name, measure_row(bench, task.row, task.captions, task.out)


def measure_row(bench: Bench, row: PublishedRow, captions: Sequence[str], out: Path) -> dict[str, Any]:
    """The row's published PSNR, its setting, and the PSNR in dB of each caption, written to a file as they come."""
    path = out / "rows" / f"{slug_of(row.name)}.json"
    measured: dict[str, Any] = {"published": row.psnr, "seen": row.seen, "psnr": {}}
    if path.exists():
        measured = json.loads(path.read_text(encoding="utf-8"))
    if all(caption in measured["psnr"] for caption in captions):
        return measured
    path.parent.mkdir(parents=True, exist_ok=True)
    if "setting" not in measured:
        measured["setting"] = json.loads(json.dumps(bench.setting_of(row)))
    for index, caption in enumerate(captions):
        if caption not in measured["psnr"]:
            reference = bench.plain_frames(row, caption, index)
            video = bench.video(row, measured["setting"], caption, index)
            measured["psnr"][caption] = psnr(video.frames, reference)
            write_json(path, measured)
    return measured


def main(
    out: Annotated[Path, typer.Option(help="Folder of rows.json and of the plain videos.")],
    model: Folder = SHIPPED,
    transformer: Weights = None,
    prompts: Annotated[int, typer.Option(min=1, help="Number of unseen captions.")] = 16,
    seen: Annotated[bool, typer.Option(help="Only the rows that were looked at when the world was chosen.")] = False,
    processes: Processes = 1,
) -> None:
    """Repeat the published rows on a model, and show both."""
    bind_folder(out, load_measured(model, transformer))
    rows = [row for row in ROWS if row.seen or not seen]
    captions = tuple(draw_prompts(prompts, CAPTION_SEED))
    tasks = [RowTask(row, captions, out, model, transformer) for row in rows]
    content = dict(tqdm(mapped(in_process, tasks, processes), "rows", len(tasks)))
    write_json(out / "rows.json", {row.name: content[row.name] for row in rows})
    Console().print(published_table({"wan-tiny": content}))


if __name__ == "__main__":
    typer.run(main)
