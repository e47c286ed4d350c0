"""From dimensions to totals as upstream does it, and how much a variant lost against the baseline. Pure numbers."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.bootstrap import interval
from galaxydit.eval.published.vbench import DIMENSIONS, GROUP_WEIGHTS, Dimension, group_of

POINTS = 100.0  # scores are published in points, of which 100 are the best


@dataclass(frozen=True)
class Totals:
    """In points, 0 to 100.

    `groups` are those whose dimensions are all complete; `total` is None unless every dimension is, and `missing` names
    those that it lacks.
    """

    groups: Mapping[str, float]
    total: float | None
    missing: tuple[str, ...]


@dataclass(frozen=True)
class Drop:
    """How many points a variant lies below the baseline; negative where it lies above.

    low, high: 95 % interval of `mean`; None for fewer than two prompts
    pairs: videos compared, each with the baseline of its prompt and seed
    """

    mean: float
    low: float | None
    high: float | None
    pairs: int


def normalise(dimension: Dimension, score: float) -> float:
    """A dimension's raw score in points: 100 (score - low) / (high - low)."""
    return POINTS * (score - dimension.low) / (dimension.high - dimension.low)


def group_score(group: str, scores: Mapping[str, float]) -> float:
    """The weighted mean, in points, of the normalised raw scores of a group's dimensions.

    Raises GalaxyDiTError naming the dimensions that have no score. Upstream counts them as 0.
    """
    dimensions = group_of(group)
    missing = [dimension.name for dimension in dimensions if dimension.name not in scores]
    if missing:
        raise GalaxyDiTError(
            f"{group} of VBench needs all of its dimensions, and there is no score for {', '.join(missing)}"
        )
    weights = [dimension.weight for dimension in dimensions]
    return float(
        np.average([normalise(dimension, scores[dimension.name]) for dimension in dimensions], weights=weights)
    )


def total_score(scores: Mapping[str, float]) -> float:
    """The weighted mean of the groups, in points. Raises GalaxyDiTError naming every dimension that has no score."""
    missing = [name for name in DIMENSIONS if name not in scores]
    if missing:
        raise GalaxyDiTError(
            f"the total of VBench needs all {len(DIMENSIONS)} dimensions, and there is no score "
            f"for {', '.join(missing)}"
        )
    groups = [group_score(group, scores) for group in GROUP_WEIGHTS]
    return float(np.average(groups, weights=list(GROUP_WEIGHTS.values())))


def totals(scores: Mapping[str, float], complete: Collection[str]) -> Totals:
    """What can be totalled of raw scores; only dimensions whose prompts and videos are `complete` count."""
    counted = {name: score for name, score in scores.items() if name in complete}
    missing = tuple(name for name in DIMENSIONS if name not in counted)
    groups = {
        group: group_score(group, counted)
        for group in GROUP_WEIGHTS
        if not {dimension.name for dimension in group_of(group)} & set(missing)
    }
    return Totals(groups, None if missing else total_score(counted), missing)


def measure_drop(
    dimension: Dimension, baseline: Mapping[tuple[int, int], float], variant: Mapping[tuple[int, int], float]
) -> Drop | None:
    """The mean difference of the videos that both have, by (prompt, seed); None if there is no such pair.

    The interval is that of the report: prompts drawn with replacement, since videos of one prompt are not independent.
    Values are raw, on the scale of single videos.
    """
    pairs = [pair for pair in baseline if pair in variant]
    if not pairs:
        return None
    scale = POINTS / dimension.video_scale / (dimension.high - dimension.low)
    prompts = sorted({prompt for prompt, _ in pairs})
    row = {prompt: index for index, prompt in enumerate(prompts)}
    sums, counts = np.zeros(len(prompts)), np.zeros(len(prompts))
    for pair in pairs:
        sums[row[pair[0]]] += scale * (baseline[pair] - variant[pair])
        counts[row[pair[0]]] += 1
    low, high = interval(sums, counts)
    return Drop(float(sums.sum() / counts.sum()), low, high, len(pairs))
