"""The figures of a calibration report, one PNG each; the docstring of each `draw_` function is its caption."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from galaxydit.calibration.calibration import Calibration
from galaxydit.calibration.fit import points_of
from galaxydit.calibration.recording import LAGS
from galaxydit.calibration.thresholds import planned_steps
from galaxydit.calibration.verified_plots import draw_budget, draw_proxies
from galaxydit.pipelines.figures import (
    BLUE,
    GREY,
    HOLLOW,
    LIGHT_GREY,
    ORANGE,
    draw_interval,
    drawn,
    ramp,
    words_of,
)


def draw_all(calibration: Calibration, folder: Path) -> dict[Path, str]:
    """Write each figure whose data were measured to `folder` as a PNG; returns the caption of each path."""
    folder.mkdir(parents=True, exist_ok=True)
    captions = {}
    for name, draw in FIGURES.items():
        path = folder / f"{name}.png"
        with drawn(path, 8, 4.2) as figure:
            draw(calibration, figure)
        if figure.axes:
            captions[path] = str(draw.__doc__).strip()
    return captions


def draw_ranking(calibration: Calibration, figure: Figure) -> None:
    """Spearman's rho of each proxy's distance with the error of reuse, and its 95 % interval over prompts.

    Dots: along a trajectory, highest on top. Crosses: between samples at the same step.
    """
    rows = list(reversed(calibration.profile.evidence.ranking))
    used = calibration.profile.recipe.proxy
    figure.set_size_inches(8, 1.9 + 0.24 * len(rows))
    axes = figure.add_subplot()
    for place, row in enumerate(rows):
        colour = ORANGE if row.proxy == used else BLUE
        draw_interval(axes, row.rho, place + 0.12, row.low, row.high, upright=False, color=colour)
        axes.plot(row.rho, place + 0.12, "o", ms=6, color=colour)
        draw_interval(axes, row.between, place - 0.2, row.between_low, row.between_high, upright=False, color=GREY)
        axes.plot(row.between, place - 0.2, "x", color=GREY)
    axes.axvline(0, color=GREY, lw=1)
    axes.set_yticks(range(len(rows)), [words_of(row.proxy) for row in rows])
    axes.set(xlabel="Spearman's rho with the error of reuse (no unit)", title="Rank correlation of each proxy")
    marks = [
        Line2D([], [], marker="o", ls="", color=ORANGE, label=f"along a trajectory, used: {words_of(used)}"),
        Line2D([], [], marker="o", ls="", color=BLUE, label="along a trajectory, other proxies"),
        Line2D([], [], marker="x", ls="", color=GREY, label="between samples at the same step"),
        Line2D([], [], marker="|", ms=9, color=LIGHT_GREY, label="95 % interval over prompts"),
    ]
    figure.legend(handles=marks, loc="outside lower center", ncols=2)


def draw_scatter(calibration: Calibration, figure: Figure) -> None:
    """Relative change of the guided prediction by proxy distance, both over the same 1 to 4 steps.

    Left: the proxy with the highest rho along a trajectory. Right: the proxy with the lowest.
    """
    ranking = calibration.profile.evidence.ranking
    best, worst = ranking[0], ranking[-1]
    for axes, row in zip(figure.subplots(1, 2), (best, worst), strict=True):
        for lag in LAGS:
            x = np.concatenate([r.accumulated(row.proxy, lag) for r in calibration.recordings])
            y = np.concatenate([r.guided_change(lag) for r in calibration.recordings])
            colour = ramp((lag - 1) / (len(LAGS) - 1))
            axes.plot(x, y, ".", ms=3, color=colour, alpha=0.5, label=f"{lag} step{'s' if lag > 1 else ''}")
        name = words_of(row.proxy)
        axes.set(xlabel=f"{name}: summed distance", title=f"{'best' if row is best else 'worst'}, rho {row.rho:.2f}")
        if row is best:
            axes.set_ylabel("relative change of the guided prediction")
            axes.legend(markerscale=3)


def draw_fit(calibration: Calibration, figure: Figure) -> None:
    """Error of reuse by proxy distance since the last full step: measured (dots), expected by the error map (lines).

    Each line has a band of one standard deviation of the measured errors at similar distances to each side.
    """
    axes, profile = figure.add_subplot(), calibration.profile
    distance, _, error = points_of(calibration.recordings, profile.recipe.proxy, profile.recipe.order)
    axes.plot(distance[::7], error[::7], ".", ms=2, color=GREY, alpha=0.25, label="measured, each 7th")
    curves = profile.recipe.error_map.curves
    for place, curve in enumerate(curves):
        x, y, spread = (np.array(values) for values in (curve.distances, curve.errors, curve.spread))
        colour = ramp(place / max(1, len(curves) - 1))
        axes.plot(x, y, "-o", ms=3, color=colour, label=_curve_label(curve.sigma, len(curves)))
        axes.fill_between(x, np.maximum(0, y - spread), y + spread, color=colour, alpha=0.1)
    name = words_of(profile.recipe.proxy)
    axes.set(xlabel=f"{name}: distance since the last full step", ylabel="relative error of the prediction")
    axes.set_ylim(0, 1.15 * max(float(np.max(np.add(curve.errors, curve.spread))) for curve in curves))
    axes.plot([], [], lw=8, color=GREY, alpha=0.2, label="± 1 standard deviation")
    axes.legend(markerscale=2)
    axes.set_title(_fit_title(calibration))


def _curve_label(sigma: float, curves: int) -> str:
    return "expected, all noise levels" if curves == 1 else f"expected at sigma {sigma:.2f}"


def _fit_title(calibration: Calibration) -> str:
    """What is drawn, one curve or one for each noise level, and how well each of both kinds fits."""
    profile = calibration.profile
    kinds = {"one curve for all noise levels": "r2_one_curve", "one curve for each noise level": "r2_by_sigma"}
    names = list(kinds)
    used = names[len(profile.recipe.error_map.curves) > 1]
    (other,) = set(names) - {used}
    scores = profile.evidence.fit
    if scores is None:
        return f"Drawn and used: {used}"
    r2 = {name: f"{getattr(scores, field):.2f}" for name, field in kinds.items()}
    return f"Drawn and used: {used}, held-out R² {r2[used]}\n({other}: {r2[other]})"


def draw_redundancy(calibration: Calibration, figure: Figure) -> None:
    """Relative change of the guided prediction over 1 and over 4 steps: mean, 10th to 90th percentile over samples."""
    axes = figure.add_subplot()
    for lag, colour in ((1, BLUE), (4, ORANGE)):
        rows = np.array([recording.guided_change(lag)[lag:] for recording in calibration.recordings])
        steps = np.arange(lag, rows.shape[1] + lag)
        axes.plot(steps, rows.mean(axis=0), color=colour, label=f"mean change over {lag} step{'s' if lag > 1 else ''}")
        low, high = np.quantile(rows, [0.1, 0.9], axis=0)
        axes.fill_between(steps, low, high, color=colour, alpha=0.2)
    axes.plot([], [], lw=8, color=GREY, alpha=0.2, label="10th to 90th percentile of the samples")
    axes.set(yscale="log", xlabel="step", ylabel="relative change of the guided prediction")
    axes.set_title("How much the prediction changes from step to step")
    axes.legend()


def draw_blocks(calibration: Calibration, figure: Figure) -> None:
    """Relative L1 change of block outputs since the step before, by step and block, in one generation.

    First column: the output of the whole block. Other columns: outputs of parts of the block. Rows: guidance branches.
    """
    if (redundancy := calibration.redundancy) is None:
        return
    changes = np.maximum(redundancy.array[..., 1:], 1e-4)
    rows, columns = changes.shape[:2]
    figure.set_size_inches(2.6 * columns, 2.3 * rows + 0.6)
    norm = LogNorm(0.003, 1.0)
    for row, axes_of_row in enumerate(figure.subplots(rows, columns, squeeze=False)):
        for column, axes in enumerate(axes_of_row):
            image = axes.imshow(changes[row, column], aspect="auto", origin="lower", norm=norm, cmap="viridis")
            axes.set_title(f"{words_of(redundancy.parts[column])}, {words_of(redundancy.branches[row])}", fontsize=9)
            axes.set(xlabel="step", ylabel="block")
            axes.grid(False)
    figure.colorbar(image, ax=figure.axes, label="relative L1 change", shrink=0.8)


def draw_schedules(calibration: Calibration, figure: Figure) -> None:
    """Full steps of the schedule of each requested speedup (filled); the other steps are reused (hollow)."""
    profile, axes = calibration.profile, figure.add_subplot()
    speedups = [row.speedup for row in profile.evidence.verifications]
    figure.set_size_inches(8, 1.7 + 0.3 * len(speedups))
    for row, speedup in enumerate(speedups):
        full = planned_steps(profile, speedup)
        reused = [step for step in range(profile.conditions.steps) if step not in full]
        axes.plot(full, [row] * len(full), "s", ms=5, color=BLUE)
        axes.plot(reused, [row] * len(reused), "s", ms=5, color=ORANGE, **HOLLOW | {"markeredgewidth": 1})
    axes.set_yticks(range(len(speedups)), [f"{speedup:g}x" for speedup in speedups])
    axes.grid(False)
    axes.set(xlabel="step", ylabel="speedup\n(block evaluations)", title="Planned steps")
    marks = [
        Line2D([], [], marker="s", ls="", color=BLUE, label="computed in full"),
        Line2D([], [], marker="s", ls="", color=ORANGE, label="reused", **HOLLOW),
    ]
    figure.legend(handles=marks, loc="outside lower center", ncols=2)


FIGURES: dict[str, Callable[[Calibration, Figure], None]] = {
    "ranking": draw_ranking,
    "scatter": draw_scatter,
    "fit": draw_fit,
    "redundancy": draw_redundancy,
    "schedules": draw_schedules,
    "proxies": draw_proxies,
    "budget": draw_budget,
    "redundancy-of-blocks": draw_blocks,
}
