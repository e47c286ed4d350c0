"""The results file of a run: `runs/x/vbench/results.json`."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from galaxydit.errors import GalaxyDiTError
from galaxydit.validation import parse

VERSION = 2
CURE = "run `galaxydit eval vbench` again"


@dataclass(frozen=True)
class Drop:
    """How many points a variant lies below the baseline, negative where it lies above, and its 95 % interval, None for
    fewer than two prompts; `pairs` videos count, each compared with the baseline of its prompt and seed.
    """

    mean: float
    low: float | None
    high: float | None
    pairs: int


@dataclass(frozen=True)
class DimensionScore:
    """One dimension of one variant.

    Attributes:
        score: raw score of the benchmark.
        points: normalised score, at best 100.
        mode: "vbench_standard" for the benchmark's own prompts, "custom_input" for others.
        complete: whether all prompts and videos of the protocol were present; only then it counts in totals.
        videos: raw score of single videos by unit id. VBench's imaging_quality scores them on a scale a hundred times
            larger than the dimension.
        drop: against the baseline; None for the baseline itself and where it has no score.
    """

    score: float
    points: float
    mode: str
    complete: bool
    videos: Mapping[str, float]
    drop: Drop | None


@dataclass(frozen=True)
class VariantScores:
    """One variant, in points: the groups whose dimensions are all complete; the total, None unless every dimension is,
    and the names of those that it lacks (`missing`); all dimensions that were measured.
    """

    groups: Mapping[str, float]
    total: float | None
    missing: tuple[str, ...]
    dimensions: Mapping[str, DimensionScore]


@dataclass(frozen=True)
class Results:
    """All dimensions of all variants.

    Attributes:
        version, package_version: of this format, and of VBench.
        lossless: whether the measured videos are lossless.
        left_out: pairs of prompt and seed without a video in every variant, which do not count.
        variants: by name, in the job's order, the baseline first.
        failed: why a dimension gave no score in the last call, by "variant/dimension".
    """

    version: int
    package_version: str
    lossless: bool
    left_out: int
    variants: Mapping[str, VariantScores]
    failed: Mapping[str, str]


def results_path(run: Path) -> Path:
    return run / "vbench" / "results.json"


def read_results(path: Path) -> Results:
    """Raises GalaxyDiTError if the file is damaged or of another version, OSError if it is not there."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise GalaxyDiTError(f"{path} is damaged ({error}); {CURE}") from error
    if not isinstance(data, dict) or data.get("version") != VERSION:
        raise GalaxyDiTError(f"{path} is not of version {VERSION}; {CURE}")
    return parse(Results, data, str(path), CURE)


def read_scores(path: Path, dimension: str, files: Mapping[str, str]) -> tuple[float, dict[str, float]]:
    """The score of a dimension and, by unit, of single videos from VBench's file; `files` maps file names to units.

    Raises GalaxyDiTError for a file that does not hold what it should, OSError if it is not there.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))[dimension]
        score, entries = float(found[0]), list(found[1])
        if not math.isfinite(score):
            raise ValueError(f"the score is {score}")
        values = {Path(entry["video_path"]).name: entry["video_results"] for entry in entries if "video_path" in entry}
    except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
        raise GalaxyDiTError(f"{path} does not hold a score of {dimension} ({error!r})") from error
    videos = {
        files[name]: float(value)
        for name, value in values.items()
        if name in files and isinstance(value, int | float) and math.isfinite(value)
    }
    lost = [name for name, unit in files.items() if unit not in videos]
    if lost:
        raise GalaxyDiTError(
            f"{path} holds no score for {len(lost)} of {len(files)} videos, the first is {lost[0]!r}: can it be played?"
        )
    return score, videos
