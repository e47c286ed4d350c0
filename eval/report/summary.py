"""What the records of a run say of each variant: means, worst cases, and how sure they are. Pure numbers."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.bootstrap import interval
from galaxydit.eval.jobs.record import BASELINE, VideoRecord
from galaxydit.eval.metrics.metric import Metric


@dataclass(frozen=True)
class Figure:
    """One column of figures: `unit` is "x" for speedups, "s" for seconds of one video, "%" for shares in [0, 1], empty
    where there is none.
    """

    key: str
    title: str
    unit: str
    digits: int
    higher_is_better: bool


SPEEDUPS = {
    "denoise_speedup": "denoise_seconds",
    "end_to_end_speedup": "end_to_end_seconds",
}
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
        low, high: 95 % bootstrap interval of `mean` over prompts; None where fewer than two prompts or an infinite
            value leave nothing to draw from.
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


def figures_of(records: Sequence[VideoRecord], metrics: Mapping[str, Metric]) -> tuple[Figure, ...]:
    """The columns that these records can fill: speedups, compute fraction, then the metrics in their registered order.

    Raises GalaxyDiTError for a metric that is not in `metrics`.
    """
    names = {name: record.unit for record in records for name in record.metrics}
    for name in names.keys() - metrics.keys():
        raise GalaxyDiTError(
            f"{names[name]}: metrics has {name!r}, allowed are {', '.join(metrics)}; read the run with the galaxydit "
            "that wrote it"
        )
    return COST_FIGURES + tuple(
        # Two digits suit decibels and hundreds, four what lies in [0, 1].
        Figure(
            metric.name,
            metric.title,
            metric.unit,
            2 if metric.unit or 10 < metric.high < math.inf else 4,
            metric.higher_is_better,
        )
        for metric in metrics.values()
        if metric.name in names
    )


def values_of(record: VideoRecord, baseline: VideoRecord | None) -> dict[str, float]:
    """The figures of one unit by key; absent are those that it has not: speedups without a baseline, a nan."""
    if not record.is_done:
        return {}
    values = dict(record.metrics)
    for key in ("denoise_seconds", "end_to_end_seconds", "compute_fraction"):
        if (value := getattr(record, key)) is not None:
            values[key] = value
    if record.variant != BASELINE:
        for key, field in SPEEDUPS.items():
            seconds = _seconds(record, baseline, field)
            if seconds is not None:
                values[key] = seconds[0] / seconds[1]
    return {key: value for key, value in values.items() if not math.isnan(value)}


def baselines_of(records: Sequence[VideoRecord]) -> dict[tuple[int, int], VideoRecord]:
    """The finished baselines by (prompt index, seed)."""
    return {record.pair: record for record in records if record.variant == BASELINE and record.is_done}


def summarise(
    records: Sequence[VideoRecord], variants: Sequence[str], figures: Sequence[Figure], units_per_variant: int
) -> tuple[VariantSummary, ...]:
    """One summary for each variant, in the given order. Failed and missing units are counted and lie in no mean."""
    baselines = baselines_of(records)
    counts = Counter((record.variant, record.is_done) for record in records)
    summaries = []
    for name in variants:
        done = [record for record in records if record.variant == name and record.is_done]
        summaries.append(
            VariantSummary(
                name=name,
                done=len(done),
                failed=counts[name, False],
                missing=max(0, units_per_variant - len(done) - counts[name, False]),
                unpaired=sum(record.pair not in baselines for record in done),
                estimates={
                    figure.key: estimate
                    for figure in figures
                    if (estimate := _estimate(figure, done, baselines)) is not None
                },
            )
        )
    return tuple(summaries)


def _estimate(
    figure: Figure, done: Sequence[VideoRecord], baselines: Mapping[tuple[int, int], VideoRecord]
) -> Estimate | None:
    """Every mean is a ratio of sums over prompts: of values to their number, of plain seconds to accelerated ones."""
    sums: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    values = []
    for record in done:
        value = values_of(record, baselines.get(record.pair)).get(figure.key)
        if value is None:
            continue
        values.append(value)
        field = SPEEDUPS.get(figure.key)
        pair = (value, 1.0) if field is None else _seconds(record, baselines.get(record.pair), field)
        for place, part in enumerate(pair or ()):
            sums[record.prompt_index][place] += part
    if not values:
        return None
    numerators, denominators = np.array(list(sums.values())).T
    low, high = interval(numerators, denominators)
    worst = min(values) if figure.higher_is_better else max(values)
    return Estimate(float(numerators.sum() / denominators.sum()), worst, low, high, len(values))


def _seconds(record: VideoRecord, baseline: VideoRecord | None, field: str) -> tuple[float, float] | None:
    """Seconds of the baseline and of the variant, None unless both were measured."""
    if baseline is None:
        return None
    plain, accelerated = getattr(baseline, field), getattr(record, field)
    return (plain, accelerated) if plain and accelerated else None
