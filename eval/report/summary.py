"""Means, worst cases and intervals of each variant, from the records of a run. Pure numbers.

A variant is one way to generate; the baseline is the plain variant. A unit is one video: a prompt, a seed and a
variant. A figure (`Figure`) is a measured quantity: a speedup, seconds, the compute fraction or a metric. Its key is
its name in data, such as "psnr". An estimate (`Estimate`) is a figure's mean, worst value and 95 % interval.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from galaxydit.calibration.bootstrap import interval
from galaxydit.errors import refusal
from galaxydit.eval.jobs.record import BASELINE, VideoRecord
from galaxydit.eval.metrics import METRICS

Baselines = Mapping[tuple[int, int], VideoRecord]
"""The records of the baseline's units that are done, by (prompt index, seed)."""


@dataclass(frozen=True)
class Figure:
    """A measured quantity, which reports show as a column.

    Attributes:
        key: name in data, such as "denoise_speedup" or "psnr".
        title: heading of the column.
        unit: "x" for speedups, "s" for seconds of one video, "%" for shares in [0, 1], a metric's own such as "dB", or
            empty.
        digits: shown after the decimal point.
    """

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
    """Mean, worst value and interval of one figure over the units of one variant that are done.

    Attributes:
        mean: mean over the videos; for a speedup, the baseline's seconds divided by the variant's seconds, each summed
            over the prompts and seeds for which both are done.
        worst: value of the worst video.
        low, high: 95 % interval of `mean` over prompts; None for fewer than two prompts and for an infinite value.
    """

    mean: float
    worst: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class VariantSummary:
    """Results of one variant.

    Attributes:
        done, failed, missing: number of the variant's units that are done, that failed, and that have no record.
        estimates: mean, worst value and 95 % interval of each figure that has values, by the figure's key.
    """

    name: str
    done: int
    failed: int
    missing: int
    estimates: Mapping[str, Estimate]


def figures_of(records: Sequence[VideoRecord]) -> tuple[Figure, ...]:
    """The quantities that reports show: `COST_FIGURES`, then the metrics that any of these records has.

    `COST_FIGURES` are two speedups, two times in seconds and the compute fraction. Raises GalaxyDiTError for an unknown
    metric.
    """
    names = {name for record in records for name in record.metrics}
    if unknown := names - METRICS.keys():
        raise refusal("metrics", min(unknown), ", ".join(METRICS), "read the run with the galaxydit that wrote it")
    figures = list(COST_FIGURES)
    for metric in METRICS.values():
        if metric.name in names:
            # Two digits suit decibels and ranges up to 100, four suit [0, 1].
            digits = 2 if metric.unit or 10 < metric.high < math.inf else 4
            figures.append(Figure(metric.name, metric.title, metric.unit, digits, metric.higher_is_better))
    return tuple(figures)


def failure_lines(failures: Sequence[Mapping[str, str]]) -> list[str]:
    """A sentence for each by-product, such as a metric, that raised, from `VideoResult.failures` of each video."""
    counts = Counter(name for each in failures for name in each)
    reasons = {name: why for each in failures for name, why in each.items()}
    return [f"{name} failed for {count} videos: {reasons[name]}" for name, count in counts.items()]


def values_of(record: VideoRecord, baseline: VideoRecord | None) -> dict[str, float]:
    """Values of one unit by key of the figure, without undefined values (nan); empty for a failed unit.

    Keys are the names of metrics, such as "psnr", and the keys of `COST_FIGURES`, such as "denoise_speedup". Speedups
    are against `baseline`, the record of the plain video; there are none if it is None or `record` is plain.
    """
    if not record.is_done:
        return {}
    costs = {key: getattr(record, key) for key in ("denoise_seconds", "end_to_end_seconds", "compute_fraction")}
    figures = {**record.metrics, **costs}
    values = {key: value for key, value in figures.items() if value is not None and not math.isnan(value)}
    if record.variant != BASELINE and baseline is not None:
        for key, field in SPEEDUPS.items():
            plain, accelerated = getattr(baseline, field), getattr(record, field)
            if plain and accelerated:
                values[key] = plain / accelerated
    return values


def summarise(
    variant: str, records: Sequence[VideoRecord], baselines: Baselines, figures: Sequence[Figure], units: int
) -> VariantSummary:
    """The summary of a variant from the records of all variants. Means leave out failed and missing units.

    `baselines` has the baseline's records that are done, for speedups, by (prompt index, seed). `figures` are the
    quantities to estimate, from `figures_of`. `units` is the number of the variant's units in the job.
    """
    made = [record for record in records if record.variant == variant]
    done = [record for record in made if record.is_done]
    estimates = {
        figure.key: estimate for figure in figures if (estimate := _estimate(figure, done, baselines)) is not None
    }
    return VariantSummary(variant, len(done), len(made) - len(done), units - len(made), estimates)


def _estimate(figure: Figure, done: Sequence[VideoRecord], baselines: Baselines) -> Estimate | None:
    """The estimate of a figure from `done`, a variant's records that are done; None if no record has a value.

    `baselines` has the baseline's records that are done, by (prompt index, seed).
    The mean is a quotient of two sums: for a speedup, the baseline's seconds divided by the variant's seconds; for any
    other figure, the values divided by their number. Both sums are kept by prompt, because the interval is over
    prompts.
    """
    sums: dict[int, Any] = defaultdict(lambda: np.zeros(2))
    values, seconds = [], SPEEDUPS.get(figure.key)
    for record in done:
        baseline = baselines.get(record.pair)
        value = values_of(record, baseline).get(figure.key)
        if value is not None:
            values.append(value)
            ratio = (getattr(baseline, seconds), getattr(record, seconds)) if seconds else (value, 1)
            sums[record.prompt_index] += ratio
    if not values:
        return None
    numerators, denominators = np.array(list(sums.values())).T
    low, high = interval(numerators, denominators)
    worst = min(values) if figure.higher_is_better else max(values)
    return Estimate(float(numerators.sum() / denominators.sum()), worst, low, high)
