"""The figures of wan-tiny's page, from the rows of `evaluate`, with 95 % intervals by a bootstrap over captions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from galaxydit.calibration.bootstrap import draws_of, resampled_means
from galaxydit.calibration.rank import rank_proxies
from galaxydit.calibration.recording import Recording
from galaxydit.pipelines.wan_tiny.world import DIRECTIONS
from galaxydit.validation import parse

MIDDLE_STEPS = slice(5, 46)  # of 50, over which changes are compared; before them the latent is noise
LATE_STEPS = slice(25, 46)

Row = dict[str, Any]
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Figure:
    """A figure over `count` captions or clauses, with its interval if it has one."""

    name: str
    value: float
    count: int
    low: float | None = None
    high: float | None = None

    @property
    def interval_text(self) -> str:
        return "" if self.low is None or self.high is None else f"{self.low:.3g} to {self.high:.3g}"


def figures_of(rows: Sequence[Row]) -> list[Figure]:
    """All figures; at least two rows."""
    recordings = [parse(Recording, row["recording"], "recording") for row in rows]
    return [*_findings(rows), *_blocks(rows), *_spreads(rows, recordings), *_proxies(recordings)]


def _findings(rows: Sequence[Row]) -> list[Figure]:
    """What the detectors find, as shares of clauses; PSNRs in dB."""

    def share(name: str, key: str, is_counted: Callable[[Row], bool]) -> Figure:
        hits = [[clause[key] for clause in row["clauses"] if is_counted(clause)] for row in rows]
        totals = np.array([[sum(values), len(values)] for values in hits], np.float64)

        def pooled(drawn: Array) -> Array:
            found, asked = np.moveaxis(drawn, -1, 0)
            return np.asarray(found.sum(-1) / np.maximum(asked.sum(-1), 1))

        low, high = _quantiles(pooled(totals[draws_of(len(rows))]))
        return Figure(name, float(pooled(totals)), int(totals[:, 1].sum()), low, high)

    return [
        share("colours found", "colour_found", lambda clause: True),
        share("motions and stillness found", "motion_found", lambda clause: True),
        share("directions found", "motion_found", lambda clause: clause["motion"] in DIRECTIONS),
        share("shapes found", "shape_found", lambda clause: True),
        _mean("autoencoder's reconstruction, dB", [row["reconstruction_db"] for row in rows]),
        _mean("25 plain steps against 50, dB", [row["half_the_steps_db"] for row in rows]),
    ]


def _blocks(rows: Sequence[Row]) -> list[Figure]:
    """Branch differences and shares of attention on words, by block and observed step."""
    figures = []
    for step in rows[0]["branch_difference"]:
        of_first = [row["branch_difference"][step][0] for row in rows]
        figures.append(_mean(f"branch difference of block 0, step {step}", of_first))
    for block in range(len(rows[0]["word_share"]["0"])):
        shares = [np.mean([values[block] for values in row["word_share"].values()]) for row in rows]
        figures.append(_mean(f"attention on words, block {block}", shares))
    return figures


def _spreads(rows: Sequence[Row], recordings: Sequence[Recording]) -> list[Figure]:
    """How much videos differ: standard deviations over videos of logarithms."""
    contrast = np.log([[row["grey_contrast"]] for row in rows])
    changes = np.log([recording.guided_change(1) for recording in recordings])
    middle = changes[:, MIDDLE_STEPS]
    shape = middle - middle.mean(axis=1, keepdims=True)  # each curve by its own mean
    late = changes[:, LATE_STEPS]
    return [
        _spread("spread of log grey contrast", contrast),
        _spread("spread of log true change, steps 5 to 45", middle),
        _spread("spread of its shape", shape),
        _spread("spread of log true change, steps 25 to 45", late),
        _spread("spread of its shape, steps 25 to 45", late - late.mean(axis=1, keepdims=True)),
    ]


def _proxies(recordings: Sequence[Recording]) -> list[Figure]:
    """Spearman's rho of each proxy with the error of reuse, along a trajectory and between videos of one step."""
    figures = []
    for row in rank_proxies(recordings).rows:
        count = len(recordings)
        figures.append(Figure(f"rho of {row.proxy} along steps", row.rho, count, row.low, row.high))
        figures.append(
            Figure(f"rho of {row.proxy} between videos", row.between, count, row.between_low, row.between_high)
        )
    return figures


def _mean(name: str, values: Sequence[float]) -> Figure:
    array = np.asarray(values, np.float64)
    low, high = _quantiles(resampled_means(array))
    return Figure(name, float(array.mean()), len(array), low, high)


def _spread(name: str, logarithms: Array) -> Figure:
    """Standard deviation over videos of `(videos, steps)`, averaged over the steps."""
    resampled = logarithms[draws_of(len(logarithms))].std(axis=1, ddof=1).mean(axis=-1)
    low, high = _quantiles(resampled)
    return Figure(name, float(logarithms.std(axis=0, ddof=1).mean()), len(logarithms), low, high)


def _quantiles(resampled: Array) -> tuple[float, float]:
    low, high = np.quantile(resampled, [0.025, 0.975])
    return float(low), float(high)
