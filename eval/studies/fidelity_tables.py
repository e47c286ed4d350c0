"""From the generations of the study of expected fidelity to a scale, its criteria, and a table."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from galaxydit.calibration.bootstrap import interval
from galaxydit.profiles.evidence import Fidelity

LEAST_RHO = 0.8
COVERED = (0.85, 0.97)
FEWEST_PROMPTS = 32


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
class FidelityFit:
    """The scale of the estimated error, and whether it may be shown to users.

    Attributes:
        fidelity: the scale; None with fewer than three captions.
        rho_by_speedup: Spearman correlation within each speedup.
        is_good: whether the criteria hold: at least 32 captions, rho of at least 0.8 over all speedups, and intervals
            that cover 85 to 97 % of captions left out of the fit.
    """

    fidelity: Fidelity | None
    rho_by_speedup: dict[str, float]
    is_good: bool


def fit_fidelity(results: Sequence[Result], dtype: str) -> FidelityFit:
    """The line from the estimated error to the PSNR through the guarded generations without a failure."""
    used = [one for one in _of(results, "guarded") if one.reuse_error]
    captions = list(dict.fromkeys(one.prompt for one in used))
    speedups = sorted({one.speedup for one in used})
    estimates = np.array([-10 * math.log10(one.reuse_error or 1.0) for one in used])
    psnrs = np.array([one.psnr for one in used])
    of_caption = np.array([captions.index(one.prompt) for one in used])
    by_speedup = {
        f"{speedup:g}": _rho(estimates[at], psnrs[at])
        for speedup in speedups
        if (at := [index for index, one in enumerate(used) if one.speedup == speedup])
    }
    if len(captions) < 3:
        return FidelityFit(None, by_speedup, False)
    covered = []
    for caption in range(len(captions)):
        left_out = of_caption == caption
        offset, slope, spread = _line(estimates[~left_out], psnrs[~left_out])
        covered += (np.abs(psnrs[left_out] - offset - slope * estimates[left_out]) <= spread).tolist()
    offset, slope, spread = _line(estimates, psnrs)
    rho, coverage = _rho(estimates, psnrs), float(np.mean(covered))
    if slope <= 0 or spread <= 0:
        return FidelityFit(None, by_speedup, False)
    fidelity = Fidelity(offset, slope, spread, len(captions), rho, coverage, tuple(speedups), dtype)
    is_good = len(captions) >= FEWEST_PROMPTS and rho >= LEAST_RHO and COVERED[0] <= coverage <= COVERED[1]
    return FidelityFit(fidelity, by_speedup, is_good)


def _line(estimates: NDArray[np.float64], psnrs: NDArray[np.float64]) -> tuple[float, float, float]:
    """Offset, slope, and half of the 95 % interval of a least-squares line."""
    slope, offset = np.polyfit(estimates, psnrs, 1)
    residuals = psnrs - offset - slope * estimates
    return float(offset), float(slope), float(1.96 * residuals.std(ddof=2))


def _rho(left: NDArray[np.float64], right: NDArray[np.float64]) -> float:
    return float(np.nan_to_num(spearmanr(left, right).statistic)) if len(left) > 1 else 0.0


def _of(results: Sequence[Result], kind: str, failure: str = "none", speedup: float | None = None) -> list[Result]:
    return [
        one
        for one in results
        if (one.kind, one.failure) == (kind, failure) and (speedup is None or one.speedup == speedup)
    ]


def _difference(left: Sequence[Result], right: Sequence[Result]) -> str:
    """Mean difference of two rows of the same captions in dB, with its 95 % interval over captions."""
    differences = [one.psnr - other.psnr for one, other in zip(left, right, strict=True)]
    low, high = interval(differences)
    span = "" if low is None or high is None else f" ({low:+.2f} to {high:+.2f})"
    return f"{np.mean(differences):+.2f}{span}"


def table(results: Sequence[Result], fit: FidelityFit) -> str:
    """Markdown: the estimate against the PSNR, the guard without and with failures."""
    speedups = sorted({one.speedup for one in _of(results, "guarded")})
    lines = ["| speedup | captions | PSNR, dB | rho of the estimated error and the PSNR |", "|---:|---:|---:|---:|"]
    for speedup in speedups:
        rows = _of(results, "guarded", speedup=speedup)
        rho = fit.rho_by_speedup.get(f"{speedup:g}", 0.0)
        lines.append(f"| {speedup:g}x | {len(rows)} | {np.mean([one.psnr for one in rows]):.2f} | {rho:.2f} |")
    lines.append("")
    if (found := fit.fidelity) is not None:
        verdict = "may be shown" if fit.is_good else "may not be shown"
        lines += [
            f"Over all speedups rho is {found.rho:.2f}. PSNR = {found.offset:.2f} dB - {found.slope:.3f} * 10 "
            f"log10(error), with a 95 % interval of +-{found.spread:.2f} dB that covers {found.coverage:.0%} of the "
            f"captions left out. It {verdict} (required: {FEWEST_PROMPTS} captions, rho {LEAST_RHO:g}, coverage "
            f"{COVERED[0]:.0%} to {COVERED[1]:.0%}).",
            "",
        ]
    lines += ["| speedup | with the guard, dB | without, dB | difference | captions where it acted |"]
    lines += ["|---:|---:|---:|---:|---:|"]
    for speedup in speedups:
        guarded, unguarded = (_of(results, kind, speedup=speedup) for kind in ("guarded", "unguarded"))
        acted = sum(bool(one.actions) for one in guarded)
        means = " | ".join(f"{np.mean([one.psnr for one in rows]):.2f}" for rows in (guarded, unguarded))
        lines.append(f"| {speedup:g}x | {means} | {_difference(guarded, unguarded)} | {acted} of {len(guarded)} |")
    lines += ["", "| failure | with the guard, dB | without, dB | order 0, dB | guard - order 0 |"]
    lines += ["|---|---:|---:|---:|---:|"]
    for failure in dict.fromkeys(one.failure for one in results if one.failure != "none"):
        of_kind = {kind: _of(results, kind, failure) for kind in ("guarded", "unguarded", "order 0")}
        means = " | ".join(f"{np.mean([one.psnr for one in rows]):.2f}" for rows in of_kind.values())
        lines.append(f"| {failure} | {means} | {_difference(of_kind['guarded'], of_kind['order 0'])} |")
    return "\n".join(lines)
