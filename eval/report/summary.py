"""What the records of a run say of each variant: means, worst cases, and how sure they are. Pure numbers."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.bootstrap import interval
from galaxydit.eval.jobs.record import BASELINE, VideoRecord
from galaxydit.eval.metrics import METRICS

Baselines = Mapping[tuple[int, int], VideoRecord]


@dataclass(frozen=True)
class Figure:
    """One column: `unit` is "x" for speedups, "s" for seconds of one video, "%" for shares in [0, 1], or empty."""

    key: str
    title: str
    unit: str
    digits: int
    higher_is_better: bool


SPEEDUPS = {"denoise_speedup": "denoise_seconds", "end_to_end_speedup": "end_to_end_seconds"}
COST_FIGURES = (
    Figure("denoise_speedup", "denoise speedup", "x", 2, higher_is_better=True),
    Figure("end_to_end_speedup", "end-to-end speedup", "x", 2, higher_is_better=True),
    Figure("denoise_seconds", "denoising", "s", 2, higher_is_better=False),
    Figure("end_to_end_seconds", "end to end", "s", 2, higher_is_better=False),
    Figure("compute_fraction", "compute fraction", "%", 0, higher_is_better=False),
)


@dataclass(frozen=True)
class Estimate:
    """One figure of one variant.

    Attributes:
        mean: over all videos; of a speedup the baseline's seconds / the variant's seconds, each summed over the pairs.
        worst: of a single video.
        low, high: 95 % interval of `mean` over prompts, see `interval`; None where that has none.
        videos: number of videos, of a speedup the number of pairs.
    """

    mean: float
    worst: float
    low: float | None
    high: float | None
    videos: int


@dataclass(frozen=True)
class VariantSummary:
    """`missing` units have no record yet; `unpaired` ones are done, but not the baseline of their prompt and seed."""

    name: str
    done: int
    failed: int
    missing: int
    unpaired: int
    estimates: Mapping[str, Estimate]


def figures_of(records: Sequence[VideoRecord]) -> tuple[Figure, ...]:
    """The columns that these records can fill: speedups, compute fraction, then the metrics in their registered order.

    Raises GalaxyDiTError for a metric that is not in `METRICS`.
    """
    names = {name: record.unit for record in records for name in record.metrics}
    for name in names.keys() - METRICS.keys():
        raise GalaxyDiTError(
            f"{names[name]}: metrics has {name!r}, allowed are {', '.join(METRICS)}; read the run with the galaxydit "
            "that wrote it"
        )
    figures = list(COST_FIGURES)
    for metric in METRICS.values():
        if metric.name in names:
            # Two digits suit decibels and hundreds, four what lies in [0, 1].
            digits = 2 if metric.unit or 10 < metric.high < math.inf else 4
            figures.append(Figure(metric.name, metric.title, metric.unit, digits, metric.higher_is_better))
    return tuple(figures)


def values_of(record: VideoRecord, baseline: VideoRecord | None) -> dict[str, float]:
    """The figures of one unit by key; absent are those that it has not: speedups without a baseline, a nan."""
    return {key: numerator / denominator for key, (numerator, denominator) in _ratios(record, baseline).items()}


def _ratios(record: VideoRecord, baseline: VideoRecord | None) -> dict[str, tuple[float, float]]:
    """The figures of one unit by key as numerator and denominator: the two seconds of a speedup, else a value and 1."""
    if not record.is_done:
        return {}
    costs = {key: getattr(record, key) for key in ("denoise_seconds", "end_to_end_seconds", "compute_fraction")}
    values = {**record.metrics, **costs}
    ratios = {key: (value, 1.0) for key, value in values.items() if value is not None and not math.isnan(value)}
    if record.variant != BASELINE and baseline is not None:
        for key, field in SPEEDUPS.items():
            plain, accelerated = getattr(baseline, field), getattr(record, field)
            if plain and accelerated:
                ratios[key] = plain, accelerated
    return ratios


def baselines_of(records: Sequence[VideoRecord]) -> Baselines:
    """The finished baselines by (prompt index, seed)."""
    return {record.pair: record for record in records if record.variant == BASELINE and record.is_done}


def summarise(
    records: Sequence[VideoRecord], variants: Sequence[str], figures: Sequence[Figure], units_per_variant: int
) -> tuple[VariantSummary, ...]:
    """One summary for each variant, in the given order. Failed and missing units are counted and lie in no mean."""
    baselines = baselines_of(records)
    summaries = []
    for name in variants:
        made = [record for record in records if record.variant == name]
        done = [record for record in made if record.is_done]
        failed, missing = len(made) - len(done), units_per_variant - len(made)
        unpaired = sum(record.pair not in baselines for record in done)
        estimates = {figure.key: found for figure in figures if (found := _estimate(figure, done, baselines))}
        summaries.append(VariantSummary(name, len(done), failed, missing, unpaired, estimates))
    return tuple(summaries)


def _estimate(figure: Figure, done: Sequence[VideoRecord], baselines: Baselines) -> Estimate | None:
    """Every mean is a ratio of sums over prompts: of values to their number, of plain seconds to accelerated ones."""
    sums: dict[int, Any] = defaultdict(lambda: np.zeros(2))
    values = []
    for record in done:
        ratio = _ratios(record, baselines.get(record.pair)).get(figure.key)
        if ratio is not None:
            values.append(ratio[0] / ratio[1])
            sums[record.prompt_index] += ratio
    if not values:
        return None
    numerators, denominators = np.array(list(sums.values())).T
    low, high = interval(numerators, denominators)
    worst = min(values) if figure.higher_is_better else max(values)
    return Estimate(float(numerators.sum() / denominators.sum()), worst, low, high, len(values))
