"""Runs VBench on the videos of a run: choose videos, check what is needed, call VBench, read its files.

runs/x/vbench/
  results.json                  what `results.py` describes
  log.txt                       what VBench printed in the last call
  work/<variant>/<dimension>/   its input (videos/, prompts.json, task.json) and its output (scores_eval_results.json)
"""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from huggingface_hub import try_to_load_from_cache

from galaxydit.errors import GalaxyDiTError, refusal
from galaxydit.eval.jobs.record import BASELINE, VideoRecord, video_record
from galaxydit.eval.jobs.run_job import load_run
from galaxydit.eval.published.vbench import CACHE_VARIABLE, DIMENSIONS, DINO, FULL_INFO, PACKAGE, Dimension, select
from galaxydit.eval.vbench.arrange import Arrangement, arrange, lay_out
from galaxydit.eval.vbench.results import (
    CURE,
    VERSION,
    DimensionScore,
    Results,
    VariantScores,
    read_scores,
    results_path,
)
from galaxydit.eval.vbench.score import measure_drop, normalise, total_up
from galaxydit.files import write_json
from galaxydit.validation import parse

DRIVER = Path(__file__).with_name("driver.py")
WRITTEN = "scores_eval_results.json"  # by VBench
SHOWN_LINES = 3
# The proxy refuses every connection: VBench calls wget and torch.hub, which know no offline mode.
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    **{name: "http://127.0.0.1:9" for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")},
    "no_proxy": "",
    "NO_PROXY": "",
}
QUESTION = f"""
from importlib import metadata, util
print(util.find_spec({PACKAGE!r}).submodule_search_locations[0], metadata.version({PACKAGE!r}), sep="\\n")
"""

Selection = Mapping[str, Sequence[VideoRecord]]
"""By variant, the baseline first: the videos that count, those of prompts and seeds that every variant has."""


@dataclass(frozen=True)
class Environment:
    """VBench's own Python, because VBench pins old versions of packages, and the folder and version of vbench in it."""

    python: Path
    package: Path
    version: str


def open_environment(folder: Path) -> Environment:
    """The environment in a folder; raises GalaxyDiTError if there is none, or none with VBench."""
    python = folder.absolute() / "bin" / "python"
    done = subprocess.run([python, "-c", QUESTION], capture_output=True, text=True) if python.exists() else None
    if done is None or done.returncode:
        expected = f"the folder of a virtual environment with the package {PACKAGE}"
        raise refusal("environment", str(folder), expected, "make one as eval/README.md shows, or name another")
    package, version = done.stdout.splitlines()
    return Environment(python, Path(package), version)


def evaluate(
    run: str | Path, dimension_names: list[str], environment: Environment, cache: Path | None = None
) -> Results:
    """Measure dimensions of all variants of a run, and write the results together with those of earlier calls.

    `cache` is the folder of VBench's weights, by default its own. Nothing is downloaded. Raises GalaxyDiTError
    before anything runs if a dimension is unknown or does not suit the prompts, or if weights, package or videos are
    missing. What fails later is in `Results.failed`.
    """
    dimensions = select(dimension_names)
    store, job = load_run(run)
    if not store.is_local:
        raise refusal("run", store.root, "a folder on this machine", "copy the run here")
    root = Path(store.root)
    units = job.units()
    found = store.survey([unit.id for unit in units])
    records = [video_record(record, damage) for _, record, damage in found if record is not None]
    selection = select_videos(root, records, [variant.name for variant in job.variants])
    left_out = len(units) // len(job.variants) - len(selection[BASELINE])
    full_info = json.loads((environment.package / FULL_INFO).read_text(encoding="utf-8"))
    arranged = {
        (variant, dimension.name): arrange(dimension, clips, full_info)
        for variant, clips in selection.items()
        for dimension in dimensions
    }
    cache = cache or Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / PACKAGE)
    check_weights(dimensions, cache)
    out = results_path(root).parent.absolute()
    command = [environment.python, DRIVER]
    for (variant, dimension_name), arrangement in arranged.items():
        folder = out / "work" / variant / dimension_name
        shutil.rmtree(folder, ignore_errors=True)
        lay_out(arrangement, selection[variant], root, folder / "videos")
        write_json(folder / "prompts.json", arrangement.entries)
        write_json(folder / "task.json", asdict(arrangement))
        command.append(folder)
    variables = os.environ | _variables(dimensions, cache, out)
    with (out / "log.txt").open("w") as log:
        # The exit status is not looked at, because what counts are the files that VBench writes.
        subprocess.run(command, env=variables, stdout=log, stderr=subprocess.STDOUT)
    scores, failed = collect(out, selection, list(arranged))
    results = Results(VERSION, environment.version, job.video == "lossless", left_out, scores, failed)
    write_json(results_path(root), asdict(results))
    return results


def select_videos(root: Path, records: Sequence[VideoRecord], variants: Sequence[str]) -> Selection:
    """The videos whose prompt and seed have one in every variant; raises GalaxyDiTError if there are none."""
    filmed = [record for record in records if record.video is not None]
    done = {variant: {record.pair: record for record in filmed if record.variant == variant} for variant in variants}
    pairs = set.intersection(*(set(found) for found in done.values()))
    if not pairs:
        counts = ", ".join(f"{variant} {len(found)}" for variant, found in done.items())
        raise GalaxyDiTError(
            f"{root} has no prompt and seed with a video in every variant (videos: {counts}): let "
            "`galaxydit eval run` make some first"
        )
    return {variant: [found[pair] for pair in sorted(pairs)] for variant, found in done.items()}


def check_weights(dimensions: Sequence[Dimension], cache: Path) -> None:
    """Raises GalaxyDiTError naming every file that is missing, its place, and where it comes from."""
    missing = []
    for dimension in dimensions:
        for weights in dimension.weights:
            if not (cache / weights.path).exists():
                missing.append(f"{dimension.name} needs {cache / weights.path}, from {weights.url}")
        for model in dimension.hub:
            if not isinstance(try_to_load_from_cache(model, "config.json"), str):
                missing.append(f"{dimension.name} needs {model} in the hub's cache, by `hf download {model}`")
    if missing:
        raise GalaxyDiTError(
            f"VBench lacks weights, which are not downloaded for you: {'; '.join(missing)}. Put them there, "
            "or leave these dimensions out"
        )


def collect(
    root: Path, selection: Selection, asked: Sequence[tuple[str, str]]
) -> tuple[dict[str, VariantScores], dict[str, str]]:
    """Everything that lies in the work folder and is of just these videos, and why there is no score for some of
    `asked`, the (variant, dimension) of this call: the last two fields of `Results`.
    """
    variants: dict[str, VariantScores] = {}
    failed = {}
    pairs = {record.unit: record.pair for records in selection.values() for record in records}
    for variant, clips in selection.items():
        scores: dict[str, DimensionScore] = {}
        units = {clip.unit for clip in clips}
        for name, dimension in DIMENSIONS.items():
            folder = root / "work" / variant / name
            try:
                score = _read_score(folder, dimension, units)
            except (ValueError, OSError) as error:
                if (variant, name) in asked:
                    failed[f"{variant}/{name}"] = _reason(folder, root / "log.txt", error)
                continue
            if variant != BASELINE and (baseline := variants[BASELINE].dimensions.get(name)) is not None:
                ours, theirs = ({pairs[unit]: value for unit, value in one.videos.items()} for one in (score, baseline))
                score = replace(score, drop=measure_drop(dimension, theirs, ours))
            scores[name] = score
        variants[variant] = total_up(scores)
    return variants, failed


def _read_score(folder: Path, dimension: Dimension, units: set[str]) -> DimensionScore:
    path = folder / "task.json"
    task: Arrangement = parse(Arrangement, json.loads(path.read_text(encoding="utf-8")), str(path), CURE)
    if set(task.units) != units:
        raise GalaxyDiTError(f"{folder} is of other videos")
    score, videos = read_scores(folder / WRITTEN, dimension.name, task.files)
    return DimensionScore(score, normalise(dimension, score), task.mode, task.complete, videos, None)


def _variables(dimensions: Sequence[Dimension], cache: Path, root: Path) -> dict[str, str]:
    variables = {**OFFLINE, CACHE_VARIABLE: str(cache.absolute())}
    if any(DINO in dimension.weights for dimension in dimensions):
        # DINO's own code looks for its weights nowhere but there, whatever path VBench gives it.
        place = root / "torch" / "hub" / "checkpoints" / Path(DINO.path).name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        place.symlink_to((cache / DINO.path).absolute())
        variables["TORCH_HOME"] = str(root / "torch")
    return variables


def _reason(folder: Path, log: Path, error: Exception) -> str:
    """Why a dimension has no score: its own exception, or the last words of the benchmark, or what the file lacks."""
    raised = folder / "scores_error.txt"
    if raised.is_file():
        return _last_lines(raised)
    if (folder / WRITTEN).is_file():
        return str(error)
    return f"the benchmark wrote no results file; its last words: {_last_lines(log)} (all of them in {log})"


def _last_lines(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return " ".join(line.strip() for line in lines[-SHOWN_LINES:])
