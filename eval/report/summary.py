"""Means, worst cases and intervals of each variant, from the records of a run. Pure numbers."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from galaxydit.calibration.bootstrap import interval
from galaxydit.errors import refusal
from galaxydit.eval.jobs.costs import COSTS, MeasuredFigure
from galaxydit.eval.jobs.record import BASELINE, VideoRecord
from galaxydit.eval.metrics import METRICS
from galaxydit.eval.report.read_run import Run


@dataclass(frozen=True)
class FigureEstimate:
    """One figure over the finished units of one variant."""

    mean: float  # of a speedup: quotient of the seconds summed over the prompts and seeds that both have
    worst: float
    low: float | None  # 95 % interval over prompts; None for fewer than two, and if infinite
    high: float | None


@dataclass(frozen=True)
class VariantSummary:
    """Numbers of a variant's units, and its estimates by the figure's key."""

    name: str
    done: int
    failed: int
    missing: int
    estimates: Mapping[str, FigureEstimate]


def figures_of(records: Sequence[VideoRecord]) -> tuple[MeasuredFigure, ...]:
    """The costs, joules if any of these records has them, then the metrics that any has.

    Raises GalaxyDiTError for an unknown metric.
    """
    names = {name for record in records for name in record.metrics}
    if unknown := names - METRICS.keys():
        raise refusal("metrics", min(unknown), ", ".join(METRICS), "read the run with the galaxydit that wrote it")
    has_joules = any(record.energy_per_video_joules is not None for record in records)
    figures = [cost for cost in COSTS if has_joules or cost.unit != "J"]
    for metric in METRICS.values():
        if metric.name in names:
            # Two digits suit decibels and ranges up to 100, four suit [0, 1].
            digits = 2 if metric.unit or 10 < metric.high < math.inf else 4
            better = metric.higher_is_better
            figure = MeasuredFigure(metric.name, metric.title, metric.unit, digits, better, best=metric.best)
            figures.append(figure)
    return tuple(figures)


def failure_lines(failures: Sequence[Mapping[str, str]]) -> list[str]:
    """A sentence for each by-product, such as a metric, that raised, from `TrialResult.failures` of each video."""
    counts = Counter(name for each in failures for name in each)
    reasons = {name: why for each in failures for name, why in each.items()}
    return [f"{name} failed for {count} videos: {reasons[name]}" for name, count in counts.items()]


def values_of(run: Run, record: VideoRecord) -> dict[str, float]:
    """Defined values of a finished unit by the figure's key; speedups are against its baseline."""
    if not record.is_done:
        return {}
    baseline = run.baselines.get(record.pair)
    costs = {cost.key: getattr(record, cost.key) for cost in COSTS if not cost.seconds}
    figures = {**record.metrics, **costs}
    values = {key: value for key, value in figures.items() if value is not None and not math.isnan(value)}
    if record.variant != BASELINE and baseline is not None:
        for cost in COSTS:
            if cost.seconds and (plain := getattr(baseline, cost.seconds)) and (own := getattr(record, cost.seconds)):
                values[cost.key] = plain / own
    return values


def summarise(run: Run, variant: str) -> VariantSummary:
    """The summary of a variant; means leave out failed and missing units."""
    made = [record for record in run.records if record.variant == variant]
    done = [record for record in made if record.is_done]
    estimates = {figure.key: _estimate(run, figure, done) for figure in figures_of(run.records)}
    units = len(run.job.prompts) * len(run.job.seeds_of(0))
    known = {key: estimate for key, estimate in estimates.items() if estimate is not None}
    return VariantSummary(variant, len(done), len(made) - len(done), units - len(made), known)


def _estimate(run: Run, figure: MeasuredFigure, done: Sequence[VideoRecord]) -> FigureEstimate | None:
    """The estimate of a figure, None without values: a quotient of sums by prompt, for the interval."""
    sums: dict[int, Any] = defaultdict(lambda: np.zeros(2))
    values: list[float] = []
    for record in done:
        value = values_of(run, record).get(figure.key)
        if value is not None:
            values.append(value)
            plain = run.baselines.get(record.pair)
            seconds = figure.seconds
            sums[record.prompt_index] += (getattr(plain, seconds), getattr(record, seconds)) if seconds else (value, 1)
    if not values:
        return None
    numerators, denominators = np.array(list(sums.values())).T
    low, high = interval(numerators, denominators)
    worst = max(values, key=figure.badness)
    return FigureEstimate(float(numerators.sum() / denominators.sum()), worst, low, high)
