"""From dimensions to totals as upstream does it, and how much a variant lost against the baseline. Pure numbers."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

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


def totals(scores: Mapping[str, float], complete: Collection[str]) -> Totals:
    """What can be totalled of raw scores; only dimensions whose prompts and videos are `complete` count.

    A group is the weighted mean of its normalised dimensions, the total that of the groups. Upstream counts missing
    dimensions as 0; here they leave no group and no total.
    """
    missing = tuple(name for name in DIMENSIONS if name not in complete or name not in scores)
    groups = {}
    for group in GROUP_WEIGHTS:
        dimensions = group_of(group)
        if not {dimension.name for dimension in dimensions} & set(missing):
            points = [normalise(dimension, scores[dimension.name]) for dimension in dimensions]
            groups[group] = float(np.average(points, weights=[dimension.weight for dimension in dimensions]))
    total = None if missing else float(np.average(list(groups.values()), weights=list(GROUP_WEIGHTS.values())))
    return Totals(groups, total, missing)


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
    by_prompt: dict[int, Any] = defaultdict(lambda: np.zeros(2))
    for pair in pairs:
        by_prompt[pair[0]] += scale * (baseline[pair] - variant[pair]), 1
    sums, counts = np.array([by_prompt[prompt] for prompt in sorted(by_prompt)]).T
    low, high = interval(sums, counts)
    return Drop(float(sums.sum() / counts.sum()), low, high, len(pairs))
