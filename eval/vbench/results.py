"""The results file of a run, `runs/x/vbench/results.json`, and the scores file of upstream, the benchmark's own code.

A benchmark has dimensions in groups; its total is over the groups. Points are scores on a scale to 100, the best. A
variant is one of the ways to generate in the run's job. A unit is one video of the run.
"""

import json
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.published.suite import Dimension
from galaxydit.validation import parse

VERSION = 2
CURE = "run `galaxydit eval vbench` again"

Videos = Mapping[str, tuple[float, float]]
"""Value and count of each video, by file name; `combine` makes a score of them."""


@dataclass(frozen=True)
class Drop:
    """Points (on the scale to 100) that a variant lost against the baseline in one dimension.

    Attributes:
        mean: over the videos; negative if the variant gained.
        low, high: 95 % interval of `mean` over prompts, None for fewer than two prompts.
        pairs: number of videos, each compared with the baseline of its prompt and seed.
    """

    mean: float
    low: float | None
    high: float | None
    pairs: int


@dataclass(frozen=True)
class DimensionScore:
    """The score of one variant in one dimension.

    Attributes:
        score: raw score of the benchmark.
        points: `score` scaled from the dimension's range to 0 to 100 (`normalise` in score.py), 100 being the best.
        mode: "vbench_standard" for the benchmark's own prompts, "custom_input" for others.
        complete: whether all prompts and videos of the benchmark's protocol were present; only then the dimension
            counts in groups and total.
        videos: raw score of single videos by unit id. VBench's imaging_quality scores them on a scale a hundred times
            larger than the dimension.
        drop: points lost against the baseline; None for the baseline itself, and if the baseline has no score with the
            same `static` or no video in common.
        static: whether only static videos count, as upstream's protocol for temporal flickering asks.
    """

    score: float
    points: float
    mode: str
    complete: bool
    videos: Mapping[str, float]
    drop: Drop | None
    static: bool = False


@dataclass(frozen=True)
class VariantScores:
    """Scores of one variant in all measured dimensions.

    Attributes:
        groups: points (on the scale to 100) of each group whose dimensions are all complete, by name. A dimension is
            complete if all prompts and videos of the benchmark's protocol were present.
        total: points over all groups; None unless every dimension is complete.
        missing: names of the dimensions that are not complete or not measured.
        dimensions: the `DimensionScore` (raw score and points) of every dimension that was measured, complete or not,
            by name.
    """

    groups: Mapping[str, float]
    total: float | None
    missing: tuple[str, ...]
    dimensions: Mapping[str, DimensionScore]


@dataclass(frozen=True)
class Results:
    """The scores of a run in one benchmark.

    Attributes:
        version: version of this format.
        package_version: version of the benchmark's package.
        lossless: whether the measured videos are lossless.
        left_out: number of pairs of prompt and seed that do not count, because some variant has no video of them.
        variants: scores by variant, in the job's order, the baseline first.
        failed: why a dimension of the last call of `evaluate` gave no score, by "variant/dimension".
        suite: name of the benchmark.
    """

    version: int
    package_version: str
    lossless: bool
    left_out: int
    variants: Mapping[str, VariantScores]
    failed: Mapping[str, str]
    suite: str = "vbench"


def results_path(run: Path, suite: str = "vbench") -> Path:
    return run / suite / "results.json"


def read_results(path: Path) -> Results:
    """The results in a file. Raises GalaxyDiTError for a damaged file or another version, OSError without a file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise GalaxyDiTError(f"{path} is damaged ({error}); {CURE}") from error
    if not isinstance(data, dict) or data.get("version") != VERSION:
        raise GalaxyDiTError(f"{path} is not of version {VERSION}; {CURE}")
    return parse(Results, data, str(path), CURE)


def read_scores(path: Path, dimension: Dimension, names: Collection[str]) -> tuple[float | None, Videos]:
    """The score of a dimension, and value and count of each video by file name, from the file that upstream writes.

    Score and values are raw, as upstream writes them; the score is None if no video counts. The count is the number of
    items, such as frames, that upstream averages over in the video, else 1. In a divisible dimension
    (`Dimension.divisible`), the score is the mean of the values, weighted by the counts, divided by
    `Dimension.video_scale`, because upstream gives some values on another scale than the score. So `combine` gives the
    score of all videos from those of all shares (parts measured by themselves).

    `names` are the file names of the videos. Raises GalaxyDiTError if the file is damaged, if it lacks a video although
    the dimension leaves out none on purpose, or if a divisible dimension's score does not follow from the videos;
    OSError without a file.
    """
    try:
        score, entries = json.loads(path.read_text(encoding="utf-8"))[dimension.name]
        videos = {
            Path(entry["video_path"]).name: (float(entry["video_results"]), _count(entry, dimension))
            for entry in entries
            if isinstance(entry.get("video_results"), int | float) and math.isfinite(entry["video_results"])
        }
        if score is not None and not math.isfinite(score := float(score)):
            raise ValueError(f"the score is {score}")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
        raise GalaxyDiTError(f"{path} does not hold a score of {dimension.name} ({error!r})") from error
    lost = [name for name in names if name not in videos]
    if lost and not dimension.partial:
        raise GalaxyDiTError(
            f"{path} holds no score for {len(lost)} of {len(names)} videos, the first is {lost[0]!r}: can it be played?"
        )
    if dimension.divisible and videos and (score is None or abs(combine(dimension, videos.values()) - score) > 1e-6):
        raise GalaxyDiTError(
            f"{path}: the videos of {dimension.name} do not give its score, {score}: is it upstream's?"
        )
    return score, videos


def _count(entry: Mapping[str, Any], dimension: Dimension) -> float:
    counted = entry[dimension.counted] if dimension.counted else 1
    return float(len(counted) if isinstance(counted, list) else counted)


def combine(dimension: Dimension, videos: Iterable[tuple[float, float]]) -> float:
    """The raw score of a dimension from the (value, count) of each video: the mean value, weighted by the counts,
    divided by the dimension's `video_scale`, which is not 1 where upstream gives values on another scale.

    A count is the number of items, such as frames, that upstream averages over in the video, else 1. Raises
    ZeroDivisionError if no video counts.
    """
    pairs = list(videos)
    counts = math.fsum(count for _, count in pairs)
    return math.fsum(value * count for value, count in pairs) / counts / dimension.video_scale
