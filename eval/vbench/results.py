"""The results file of a run, `runs/x/vbench/results.json`, and the scores file of the benchmark's own code."""

import json
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.published.suite import Dimension
from galaxydit.files import split_digest
from galaxydit.validation import parse

VERSION = 2
CURE = "run `galaxydit eval vbench` again"

Videos = Mapping[str, tuple[float, float]]
"""Value and count of each video, by file name; `combine` makes a score of them."""


@dataclass(frozen=True)
class Drop:
    """Points, of 100, that a variant lost in one dimension, mean over videos of equal prompt and seed."""

    mean: float
    low: float | None  # 95 % interval over prompts, None for fewer than two
    high: float | None
    pairs: int


@dataclass(frozen=True)
class DimensionScore:
    score: float  # raw
    points: float  # from 0 to 100, the best (`score.normalise`)
    mode: str  # as of `Arrangement`
    complete: bool  # as in the benchmark's protocol; only then it counts in groups and total
    videos: Mapping[str, float]  # raw by unit id; imaging_quality's are on a scale a hundred times larger
    drop: Drop | None  # None for the baseline, and without a comparable one
    static: bool = False  # only static videos count


@dataclass(frozen=True)
class VariantScores:
    """Scores of one variant in all measured dimensions; only complete ones count in groups and total."""

    groups: Mapping[str, float]  # points
    total: float | None  # points; None unless every dimension is complete
    missing: tuple[str, ...]  # not complete or not measured
    dimensions: Mapping[str, DimensionScore]


@dataclass(frozen=True)
class Results:
    version: int  # of this format
    package_version: str
    lossless: bool
    left_out: int  # pairs of prompt and seed that some variant has no video of
    variants: Mapping[str, VariantScores]  # the baseline first
    failed: Mapping[str, str]  # why the last call gave no score, by "variant/dimension"
    suite: str = "vbench"


def results_path(run: Path, suite: str = "vbench") -> Path:
    return run / suite / "results.json"


def read_results(path: Path) -> Results:
    """The results in a file. Raises GalaxyDiTError if it is damaged or of another version, OSError without a file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise GalaxyDiTError(f"{path} is damaged ({error}); {CURE}") from error
    if not isinstance(data, dict) or data.get("version") != VERSION:
        raise GalaxyDiTError(f"{path} is not of version {VERSION}; {CURE}")
    content, is_unchanged = split_digest(data)
    if is_unchanged is False:
        raise GalaxyDiTError(f"{path} is damaged (its content does not have the digest that it holds); {CURE}")
    return parse(Results, content, str(path), CURE)


def read_scores(path: Path, dimension: Dimension, names: Collection[str]) -> tuple[float | None, Videos]:
    """Raw score of a dimension, None if no video counts, and (value, count) by file name, from upstream's file.

    The count is of the items, such as frames, that upstream averages over in a video. Raises GalaxyDiTError if the file
    is damaged, lacks a video of `names` not left out on purpose, or a divisible score does not follow from `combine`.
    """
    try:
        score, entries = json.loads(path.read_text(encoding="utf-8"))[dimension.name]
        videos = {}
        for entry in entries:
            value = entry.get("video_results")
            if isinstance(value, int | float) and math.isfinite(value):
                videos[Path(entry["video_path"]).name] = (float(value), _count(entry, dimension))
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
    if not dimension.counted:
        return 1.0
    counted = entry[dimension.counted]  # a number, or a list of the items
    return float(len(counted) if isinstance(counted, list) else counted)


def combine(dimension: Dimension, videos: Iterable[tuple[float, float]]) -> float:
    """Count-weighted mean of the videos' values, divided by `video_scale`; ZeroDivisionError without any."""
    pairs = list(videos)
    counts = math.fsum(count for _, count in pairs)
    return math.fsum(value * count for value, count in pairs) / counts / dimension.video_scale
