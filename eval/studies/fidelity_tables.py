"""From the generations of the study of expected fidelity to a scale, its criteria, and a table."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from galaxydit.calibration.bootstrap import interval
from galaxydit.eval.markdown import table

MEANS = ("with the guard, dB", "without, dB")


@dataclass(frozen=True)
class Result:
    """One generation of a caption (`galaxydit.eval.studies.expected_fidelity.Variant`).

    Attributes:
        psnr: against the plain video, dB.
        reuse_error: `galaxydit.policies.safeguard.reuse_error`.
        actions: step and name of what the guard changed.
        full_steps: of each full step its index, reused, share, error, slope_ratio and correction_share (`GuardRecord`).
    """

    prompt: str
    seed: int
    conditions: str
    speedup: float
    kind: str
    failure: str
    psnr: float
    reuse_error: float | None
    compute_fraction: float
    actions: list[list[int | str]]
    full_steps: list[list[float | None]]


@dataclass(frozen=True)
class Scale:
    """PSNR = `offset` - `slope` * 10 log10(estimated error), by least squares.

    Attributes:
        offset: dB.
        slope: dB of PSNR for each dB of the error.
        spread: half of the 95 % interval of one generation, dB.
        rho: Spearman correlation of estimate and PSNR over all speedups, -1 to 1.
        rho_by_speedup: the same within each speedup.
        coverage: share of generations of captions left out of the fit whose PSNR lay within the interval.
    """

    offset: float
    slope: float
    spread: float
    rho: float
    rho_by_speedup: dict[str, float]
    coverage: float


def fit_scale(results: Sequence[Result]) -> Scale:
    """The line from the estimated error to the PSNR through the guarded generations without a failure of at least three
    captions.
    """
    used = [result for result in _of(results, "guarded") if result.reuse_error]
    estimates = np.array([-10 * math.log10(result.reuse_error or 1.0) for result in used])
    psnrs = np.array([result.psnr for result in used])
    captions, speedups = (np.array([getattr(result, name) for result in used]) for name in ("prompt", "speedup"))
    covered: list[bool] = []
    for caption in dict.fromkeys(captions):
        left_out = captions == caption
        offset, slope, spread = _line(estimates[~left_out], psnrs[~left_out])
        covered += (np.abs(psnrs[left_out] - offset - slope * estimates[left_out]) <= spread).tolist()
    by_speedup = {f"{each:g}": _rho(estimates[speedups == each], psnrs[speedups == each]) for each in set(speedups)}
    return Scale(*_line(estimates, psnrs), _rho(estimates, psnrs), by_speedup, float(np.mean(covered)))


def _line(estimates: NDArray[np.float64], psnrs: NDArray[np.float64]) -> tuple[float, float, float]:
    """Offset, slope, and half of the 95 % interval of a least-squares line."""
    slope, offset = np.polyfit(estimates, psnrs, 1)
    residuals = psnrs - offset - slope * estimates
    return float(offset), float(slope), float(1.96 * residuals.std(ddof=2))


def _rho(left: NDArray[np.float64], right: NDArray[np.float64]) -> float:
    return float(np.nan_to_num(spearmanr(left, right).statistic)) if len(left) > 1 else 0.0


def _of(results: Sequence[Result], kind: str, failure: str = "none", speedup: float | None = None) -> list[Result]:
    return [
        result
        for result in results
        if (result.kind, result.failure) == (kind, failure) and speedup in (None, result.speedup)
    ]


def _mean(results: Sequence[Result]) -> str:
    return f"{np.mean([result.psnr for result in results]):.2f}"


def _difference(left: Sequence[Result], right: Sequence[Result]) -> str:
    """Mean difference of two rows of the same captions in dB, with its 95 % interval over captions."""
    differences = [result.psnr - other.psnr for result, other in zip(left, right, strict=True)]
    low, high = interval(differences)
    span = "" if low is None or high is None else f" ({low:+.2f} to {high:+.2f})"
    return f"{np.mean(differences):+.2f}{span}"


def tables(results: Sequence[Result], scale: Scale) -> str:
    """Markdown: the estimate against the PSNR, the guard without and with failures."""
    estimates, guards, failures = [], [], []
    for speedup in sorted({result.speedup for result in _of(results, "guarded")}):
        guarded, unguarded = (_of(results, kind, speedup=speedup) for kind in ("guarded", "unguarded"))
        rho = scale.rho_by_speedup[f"{speedup:g}"]
        estimates.append([f"{speedup:g}x", str(len(guarded)), _mean(guarded), f"{rho:.2f}"])
        acted = f"{sum(bool(result.actions) for result in guarded)} of {len(guarded)}"
        guards.append([f"{speedup:g}x", _mean(guarded), _mean(unguarded), _difference(guarded, unguarded), acted])
    for failure in dict.fromkeys(result.failure for result in results if result.failure != "none"):
        guarded, unguarded, order_0 = (_of(results, kind, failure) for kind in ("guarded", "unguarded", "order 0"))
        failures.append([failure, *map(_mean, (guarded, unguarded, order_0)), _difference(guarded, order_0)])
    parts = (
        table(("speedup", "captions", "PSNR, dB", "rho of the estimated error and the PSNR"), estimates),
        f"Over all speedups rho is {scale.rho:.2f}. PSNR = {scale.offset:.2f} dB - {scale.slope:.3f} * 10 "
        f"log10(error), with a 95 % interval of +-{scale.spread:.2f} dB that covers {scale.coverage:.0%} of the "
        "captions left out.",
        table(("speedup", *MEANS, "difference", "captions where it acted"), guards),
        table(("failure", *MEANS, "order 0, dB", "guard - order 0"), failures, labels=("failure",)),
    )
    return "\n\n".join(parts)
