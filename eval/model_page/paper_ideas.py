"""Judge the paper's ideas by videos of wan-tiny: `python -m galaxydit.eval.model_page.paper_ideas --out FILE`.

All variants of `idea_variants` generate the same captions, which training and calibration never saw, in float32. A
variant with a threshold gets the one with the wanted compute on captions of the calibration; compute is counted in
operations of the blocks, with what reading the proxy costs. The command goes on after an interruption.
"""

from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer
from rich.console import Console
from tqdm import tqdm

import galaxydit
from galaxydit.calibration.prompt_files import WAN_TINY_PROMPTS, read_prompts
from galaxydit.eval.measured_rows import resumed
from galaxydit.eval.model_page.idea_tables import Measured, differences_table, variants_table
from galaxydit.eval.model_page.idea_variants import THRESHOLD_RANGE, IdeaVariant, variants_of
from galaxydit.eval.model_page.in_parallel import Processes, mapped
from galaxydit.eval.model_page.measured_model import SHIPPED, load_measured
from galaxydit.eval.model_page.threshold_search import nearest_threshold
from galaxydit.files import write_json
from galaxydit.pipelines.compute_counter import BlockPart, measure_parts
from galaxydit.pipelines.conditions import device_name
from galaxydit.pipelines.psnr import psnr
from galaxydit.pipelines.published_models import WAN_TINY
from galaxydit.pipelines.trial import generate_with, plain
from galaxydit.pipelines.wan_tiny.world import draw_prompts
from galaxydit.runtime.recognition import family_of

SHIPPED_PROFILE = Path(galaxydit.__file__).parent / "profiles" / "wan-tiny.json"
CAPTION_SEED = 4  # of the captions of the model's page, whose noise has the seeds from 4000 on
TUNING_SEED = 60_000
TUNED = 3  # captions on which a threshold is looked for
TRIALS = 9  # of its bisection
AT_ONCE = 15  # variants of a caption that one process makes
THRESHOLDS, ROWS = "thresholds", "rows"


@dataclass(frozen=True)
class IdeaTask:
    """What one process does: variants on one caption, or, without a caption, the search for a threshold."""

    profile: str
    variants: tuple[str, ...]
    caption: str = ""
    seed: int = 0
    thresholds: tuple[tuple[str, float], ...] = ()


@cache
def loaded() -> tuple[Any, tuple[BlockPart, ...]]:
    """The pipeline of this process, and the parts of its blocks."""
    pipe = load_measured(SHIPPED, None)
    return pipe, measure_parts(pipe, read_prompts(WAN_TINY_PROMPTS)[0], WAN_TINY)


@cache
def variants() -> dict[str, IdeaVariant]:
    return {variant.key: variant for variant in variants_of(family_of(loaded()[0].transformer))}


def compute_of(variant: IdeaVariant, profile: str, threshold: float, captions: list[str]) -> float:
    """Mean compute fraction of a variant."""
    pipe, parts = loaded()
    # Each step calls the blocks once for each branch of guidance.
    whole = 2 * (WAN_TINY.steps or 0) * sum(part.flops for part in parts)
    fractions = []
    for index, caption in enumerate(captions):
        seed = TUNING_SEED + index
        made = generate_with(pipe, caption, WAN_TINY, seed, variant.with_threshold(profile, threshold), parts)
        fractions.append(made.operations / whole)
    return fmean(fractions)


def find_threshold(task: IdeaTask) -> tuple[str, float]:
    """The threshold whose compute is nearest to 1 / speedup, by bisection on captions of the calibration."""
    variant = variants()[task.variants[0]]
    captions = read_prompts(WAN_TINY_PROMPTS)[:TUNED]
    share_of = partial(compute_of, variant, task.profile, captions=captions)
    return variant.key, nearest_threshold(share_of, 1 / variant.speedup, THRESHOLD_RANGE, TRIALS)


def generate_variants(task: IdeaTask) -> tuple[str, Measured]:
    """The caption, and what its variants measure."""
    pipe, parts = loaded()
    thresholds = dict(task.thresholds)
    reference = generate_with(pipe, task.caption, WAN_TINY, task.seed, plain, parts)
    measured: Measured = {}
    for key in task.variants:
        attach = variants()[key].with_threshold(task.profile, thresholds.get(key, 0.0))
        made = generate_with(pipe, task.caption, WAN_TINY, task.seed, attach, parts)
        fraction = made.operations / reference.operations
        measured[key] = {"psnr": round(psnr(made.frames, reference.frames), 4), "compute_fraction": round(fraction, 4)}
    return task.caption, measured


def measure(captions: list[str], profile: str, path: Path, processes: int, only: str = "") -> dict[str, Any]:
    """The content of the file at `path`, which is written whenever a process has finished something."""
    chosen = {key: variant for key, variant in variants().items() if key.startswith(only)}
    pipe, _ = loaded()
    content = {THRESHOLDS: {}, ROWS: {}} | resumed(path, pipe) | {"device": device_name(pipe)}
    searches = []
    for key, variant in chosen.items():
        if variant.has_threshold and key not in content[THRESHOLDS]:
            searches.append(IdeaTask(profile, (key,)))
    for key, threshold in tqdm(mapped(find_threshold, searches, processes), "thresholds", len(searches)):
        content[THRESHOLDS][key] = threshold
        write_json(path, content)
    tasks = []
    for index, caption in enumerate(captions):
        missing = [key for key in chosen if key not in content[ROWS].get(caption, {})]
        for start in range(0, len(missing), AT_ONCE):
            some = tuple(missing[start : start + AT_ONCE])
            thresholds = tuple(content[THRESHOLDS].items())
            tasks.append(IdeaTask(profile, some, caption, 1000 * CAPTION_SEED + index, thresholds))
    for caption, measured in tqdm(mapped(generate_variants, tasks, processes), "captions", len(tasks)):
        content[ROWS].setdefault(caption, {}).update(measured)
        write_json(path, content)
    return content


def main(
    out: Annotated[Path, typer.Option(help="JSON file of thresholds and rows.")],
    prompts: Annotated[int, typer.Option(min=1, help="Number of unseen captions.")] = 48,
    profile: Annotated[Path, typer.Option(help="Of wan-tiny.")] = SHIPPED_PROFILE,
    processes: Processes = 1,
    only: Annotated[str, typer.Option(help="Only variants whose name begins so; others of the file are kept.")] = "",
) -> None:
    """Judge the paper's ideas by videos of wan-tiny."""
    content = measure(draw_prompts(prompts, CAPTION_SEED), str(profile.resolve()), out, processes, only)
    for table in (variants_table(content[ROWS]), differences_table(content[ROWS])):
        Console().print(table)


if __name__ == "__main__":
    typer.run(main)
