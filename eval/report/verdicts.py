"""Compare the figures of a run with gates, which are lowest or highest allowed values that a release can depend on."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from galaxydit.eval.jobs.costs import DISTURBED, MeasuredFigure
from galaxydit.eval.jobs.gates import LOST, TOTAL, VBENCH, WORST, Gates
from galaxydit.eval.jobs.record import BASELINE, VideoRecord
from galaxydit.eval.metrics import METRICS
from galaxydit.eval.report.read_run import Run
from galaxydit.eval.report.summary import figures_of, summarise, values_of
from galaxydit.eval.vbench.results import read_results, results_path

WORST_SHOWN = 5


@dataclass(frozen=True)
class Verdict:
    """Whether one variant meets one gate."""

    variant: str
    name: str  # as in `eval.jobs.gates`, such as "worst_psnr"
    value: float | None  # None if there is none, or a finished video lacks the metric, which fails the gate
    limit: float
    is_minimum: bool  # else `limit` is the highest value
    worst: tuple[tuple[VideoRecord, float], ...] = ()  # at most five videos with their values; empty for VBench
    disturbance: str = ""  # why a gate on seconds is not judged, or empty
    measured: int = 0  # of a metric: finished videos with a value
    videos: int = 0  # of a metric: all finished videos

    @property
    def holds(self) -> bool:
        """False for seconds that other work disturbed."""
        if self.value is None or math.isnan(self.value) or self.disturbance:
            return False
        return self.value >= self.limit if self.is_minimum else self.value <= self.limit


def check_run(run: Run, gates: Gates) -> list[Verdict]:
    """The verdict on each gate for each variant in `gates.variants`, by default all but the baseline."""
    points = dict(_benchmark_points(run))
    figures = {figure.key: figure for figure in figures_of(run.records)}
    verdicts = []
    for variant in gates.variants or [each.name for each in run.job.variants if each.name != BASELINE]:
        summary = summarise(run, variant)
        values = [values_of(run, record) for record in run.records if record.variant == variant and record.is_done]
        limits = [(name, limit, True) for name, limit in gates.min.items()]
        limits += [(name, limit, False) for name, limit in gates.max.items()]
        for name, limit, is_minimum in limits:
            if name.startswith((VBENCH, LOST)):
                verdicts.append(Verdict(variant, name, points.get((variant, name)), limit, is_minimum))
                continue
            key = name.removeprefix(WORST)
            # A mean over a part of the videos says nothing of the others. Costs may be missing: --record takes time.
            measured, videos = (sum(key in each for each in values), len(values)) if key in METRICS else (0, 0)
            estimate = summary.estimates.get(key) if measured == videos else None
            value = None if estimate is None else estimate.mean
            if estimate is not None and name.startswith(WORST):
                value = estimate.worst
                if figures[key].best is not None:  # a value on the other side of the best one may miss the limit
                    value = (min if is_minimum else max)(each[key] for each in values)
            worst = _worst(run, variant, figures[key]) if key in figures else ()
            disturbed = run.disturbance if key in DISTURBED else ""
            verdicts.append(Verdict(variant, name, value, limit, is_minimum, worst, disturbed, measured, videos))
    return verdicts


def _worst(run: Run, variant: str, figure: MeasuredFigure) -> tuple[tuple[VideoRecord, float], ...]:
    made = [record for record in run.records if record.variant == variant]
    values = [(record, values_of(run, record).get(figure.key)) for record in made]
    known = [(record, value) for record, value in values if value is not None]
    return tuple(sorted(known, key=lambda pair: figure.badness(pair[1]), reverse=True)[:WORST_SHOWN])


def _benchmark_points(run: Run) -> Iterator[tuple[tuple[str, str], float]]:
    """((variant, gate name), points) of VBench, such as "vbench_imaging_quality" and "lost_total"."""
    if run.root is None or not (path := results_path(run.root)).is_file():
        return
    variants = read_results(path).variants
    baseline = variants.get(BASELINE)
    for variant, scores in variants.items():
        for dimension, score in scores.dimensions.items():
            yield (variant, VBENCH + dimension), score.points
            if score.drop is not None:
                yield (variant, LOST + dimension), score.drop.mean
        if scores.total is not None:
            yield (variant, VBENCH + TOTAL), scores.total
            if baseline is not None and baseline.total is not None:
                yield (variant, LOST + TOTAL), baseline.total - scores.total
