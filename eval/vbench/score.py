"""From dimensions to totals as the benchmark's own code does it, and points lost against the baseline. Pure numbers."""

from collections.abc import Mapping

import numpy as np

from galaxydit.calibration.bootstrap import interval
from galaxydit.eval.published.suite import Dimension, Suite
from galaxydit.eval.vbench.results import DimensionScore, Drop, VariantScores

POINTS = 100.0  # scores are published in points, of which 100 are the best


def normalise(dimension: Dimension, score: float) -> float:
    """A dimension's raw score in points: 100 (score - low) / (high - low)."""
    return POINTS * (score - dimension.low) / (dimension.high - dimension.low)


def total_up(suite: Suite, scores: Mapping[str, DimensionScore]) -> VariantScores:
    """The scores of one variant; groups and total are weighted means of points of complete dimensions.

    Upstream counts a missing dimension as 0; here its group and the total are missing, too.
    """
    missing = []
    for name in suite.dimensions:
        if name not in scores or not scores[name].complete:
            missing.append(name)
    groups = {}
    for group in suite.groups:
        names = [name for name, dimension in suite.dimensions.items() if dimension.group == group]
        if set(names).isdisjoint(missing):
            points = [scores[name].points for name in names]
            weights = [suite.dimensions[name].weight for name in names]
            groups[group] = float(np.average(points, weights=weights))
    total = None
    if not missing:
        total = float(np.average(list(groups.values()), weights=list(suite.groups.values())))
    return VariantScores(groups, total, tuple(missing), scores)


def measure_drop(
    dimension: Dimension, baseline: Mapping[tuple[int, int], float], variant: Mapping[tuple[int, int], float]
) -> Drop | None:
    """Points lost between raw scores by (prompt index, seed), where both have one; None without a pair.

    The interval is by bootstrap over prompts, because videos of one prompt are not independent.
    """
    scale = POINTS / dimension.video_scale / (dimension.high - dimension.low)
    points = []
    prompts_of_pairs = []
    for pair in baseline:
        if pair in variant:
            points.append(scale * (baseline[pair] - variant[pair]))
            prompts_of_pairs.append(pair[0])
    if not points:
        return None
    _, prompts = np.unique(prompts_of_pairs, return_inverse=True)
    sums = np.bincount(prompts, points)
    counts = np.bincount(prompts)
    low, high = interval(sums, counts)
    return Drop(float(sums.sum() / counts.sum()), low, high, len(points))
