"""The figures of a calibration report, one PNG each; the docstring of each `draw_` function is its caption."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from galaxydit.calibration.calibration import Calibration
from galaxydit.calibration.fit import points_of
from galaxydit.calibration.recording import LAGS
from galaxydit.calibration.thresholds import planned_steps
from galaxydit.foreign_text import drawable
from galaxydit.pipelines.disturbance import DISTURBED
from galaxydit.pipelines.figures import BLUE, GREY, ORANGE, drawn
from galaxydit.request import PROXY, SCHEDULE


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

    Circles: along a trajectory, best on top. Crosses: between samples at the same step.
    """
    rows = list(reversed(calibration.profile.evidence.ranking))
    figure.set_size_inches(8, 1.5 + 0.2 * len(rows))
    axes = figure.add_subplot()
    for place, row in enumerate(rows):
        colour = ORANGE if row.proxy == calibration.profile.recipe.proxy else BLUE
        axes.plot([row.low, row.high], [place, place], color=colour, lw=4, alpha=0.45, solid_capstyle="round")
        axes.plot(row.rho, place, "o", color=colour)
        axes.plot([row.between_low, row.between_high], [place, place], color=GREY, lw=2, alpha=0.45)
        axes.plot(row.between, place, "x", color=GREY)
    axes.axvline(0, color=GREY, lw=1)
    axes.set_yticks(range(len(rows)), [_name_of(row.proxy) for row in rows], fontsize=7)
    used = _name_of(calibration.profile.recipe.proxy)
    axes.set(xlabel="Spearman's rho with the error of reuse, 95 % interval over prompts", title=f"Used: {used}")


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
            colour = _ramp((lag - 1) / (len(LAGS) - 1))
            axes.plot(x, y, ".", ms=3, color=colour, alpha=0.5, label=f"{lag} step{'s' if lag > 1 else ''}")
        name = _name_of(row.proxy)
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
    axes.plot(distance[::7], error[::7], ".", ms=2, color=GREY, alpha=0.25)
    curves = profile.recipe.error_map.curves
    for place, curve in enumerate(curves):
        x, y, spread = (np.array(values) for values in (curve.distances, curve.errors, curve.spread))
        colour = _ramp(place / max(1, len(curves) - 1))
        axes.plot(x, y, "-o", ms=3, color=colour, label=f"sigma {curve.sigma:.2f}")
        axes.fill_between(x, np.maximum(0, y - spread), y + spread, color=colour, alpha=0.1)
    name = _name_of(profile.recipe.proxy)
    axes.set(xlabel=f"{name}: distance since the last full step", ylabel="relative error of the prediction")
    axes.set_ylim(0, 1.15 * max(float(np.max(np.add(curve.errors, curve.spread))) for curve in curves))
    axes.legend()
    if (scores := profile.evidence.fit) is not None:
        used = "by noise level" if len(curves) > 1 else "one for all noise levels"
        shares = f"one curve {scores.r2_one_curve:.2f}, by noise level {scores.r2_by_sigma:.2f}"
        axes.set_title(f"Held-out R²: {shares}; used: {used}")


def draw_redundancy(calibration: Calibration, figure: Figure) -> None:
    """Relative change of the guided prediction over 1 and over 4 steps: mean, 10th to 90th percentile over samples."""
    axes = figure.add_subplot()
    for lag, colour in ((1, BLUE), (4, ORANGE)):
        rows = np.array([recording.guided_change(lag)[lag:] for recording in calibration.recordings])
        steps = np.arange(lag, rows.shape[1] + lag)
        axes.plot(steps, rows.mean(axis=0), color=colour, label=f"over {lag} step{'s' if lag > 1 else ''}")
        low, high = np.quantile(rows, [0.1, 0.9], axis=0)
        axes.fill_between(steps, low, high, color=colour, alpha=0.2)
    axes.set(yscale="log", xlabel="step", ylabel="relative change of the guided prediction")
    axes.set_title("Redundancy per step: mean, and 10th to 90th percentile over the samples")
    axes.legend()


def draw_blocks(calibration: Calibration, figure: Figure) -> None:
    """Relative L1 change of block outputs since the step before, by step and block, in one generation.

    First column: the output of the whole block. Other columns: outputs of parts of the block. Rows: guidance branches.
    """
    if (redundancy := calibration.redundancy) is None:
        return
    changes = np.maximum(redundancy.array[..., 1:], 1e-4)
    rows, columns = changes.shape[:2]
    figure.set_size_inches(2.6 * columns, 2.2 * rows + 0.6)
    norm = LogNorm(0.003, 1.0)
    for row, axes_of_row in enumerate(figure.subplots(rows, columns, squeeze=False)):
        for column, axes in enumerate(axes_of_row):
            image = axes.imshow(changes[row, column], aspect="auto", origin="lower", norm=norm, cmap="viridis")
            axes.set_title(f"{_name_of(redundancy.parts[column])}, {_name_of(redundancy.branches[row])}", fontsize=8)
            axes.set(xlabel="step", ylabel="block")
            axes.grid(False)
    figure.colorbar(image, ax=figure.axes, label="relative L1 change", shrink=0.8)


def draw_schedules(calibration: Calibration, figure: Figure) -> None:
    """Full steps of the schedule of each requested speedup (dots); the other steps are reused."""
    profile, axes = calibration.profile, figure.add_subplot()
    speedups = [row.speedup for row in profile.evidence.verifications]
    for row, speedup in enumerate(speedups):
        full = planned_steps(profile, speedup)
        axes.plot([0, profile.conditions.steps - 1], [row, row], color=GREY, lw=1, alpha=0.4)
        axes.plot(full, [row] * len(full), "o", ms=5, color=BLUE)
    axes.set_yticks(range(len(speedups)), [f"{speedup:g}x" for speedup in speedups])
    axes.grid(False)
    axes.set(xlabel="step", ylabel="speedup (block evaluations)")


def draw_proxies(calibration: Calibration, figure: Figure) -> None:
    """PSNR of videos of the policy "proxy" with different proxies, mean over sample prompts with its 95 % interval.

    Each dot is one proxy at one requested speedup: 2x and 3x, or the nearest planned speedups. Horizontal axis:
    Spearman's rho of the proxy's distance with the error of reuse, on the left along a trajectory, on the right between
    samples at the same step.
    """
    compared, used = calibration.profile.evidence.compared_proxies, calibration.profile.recipe.proxy
    if not compared:
        return
    rows = {row.proxy: row for row in calibration.profile.evidence.ranking}
    titles = {"rho": "along a trajectory", "between": "between samples at the same step"}
    for axes, (kind, title) in zip(figure.subplots(1, 2, sharey=True), titles.items(), strict=True):
        for place, compared_proxy in enumerate(compared):
            rho, colour = getattr(rows[compared_proxy.proxy], kind), f"C{place}"
            for marker, measured in zip("osD^v", compared_proxy.measured, strict=False):
                text = f"{_name_of(compared_proxy.proxy)}, {measured.speedup:g}x"
                text += " (used)" if compared_proxy.proxy == used else ""
                axes.plot(rho, measured.psnr_db, marker, color=colour, label=text)
                if measured.psnr_low is not None and measured.psnr_high is not None:
                    axes.plot([rho, rho], [measured.psnr_low, measured.psnr_high], color=colour, lw=4, alpha=0.35)
        axes.set(xlabel=f"Spearman's rho {title}")
        axes.margins(0.1)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=7)
    figure.axes[0].set_ylabel("PSNR against the plain video, dB")
    psnrs = zip(*([row.psnr_db or 0.0 for row in each.measured] for each in compared), strict=False)
    if all(max(at_speedup) - min(at_speedup) < 0.05 for at_speedup in psnrs):
        figure.suptitle("The proxies coincide: their videos have the same PSNR")


def draw_budget(calibration: Calibration, figure: Figure) -> None:
    """Left: PSNR on held-out prompts by reached speedup, policies "schedule" and "proxy". Small dots: single prompts.

    Right: reached against requested speedup, in block evaluations (dots) and for "schedule" also in seconds (dashed
    line: predicted, crosses: measured).
    """
    if not calibration.verifications:
        return
    evidence = calibration.profile.evidence
    speedups = [target.speedup for target in evidence.verifications]
    axes, second = figure.subplots(1, 2)
    second.plot([1, max(speedups)], [1, max(speedups)], color=GREY, lw=1)
    for policy, colour, measured in (
        (SCHEDULE, BLUE, evidence.verifications),
        (PROXY, ORANGE, evidence.proxy_verifications),
    ):
        if not measured:
            continue
        reached = [1 / (row.compute_fraction or math.nan) for row in measured]
        # An open marker shows the other policy's below it where the two coincide.
        style = {"color": colour, "mfc": "none" if policy == PROXY else colour, "ms": 10 if policy == PROXY else 6}
        axes.plot(
            reached, [row.psnr_db for row in measured], "o", ls="--" if policy == PROXY else "-", label=policy, **style
        )
        second.plot([row.speedup for row in measured], reached, "o", label=f"blocks, {policy}", **style)
        for row in calibration.verifications:
            if row.policy == policy:
                axes.plot(1 / row.compute_fraction, row.psnr_db, ".", ms=4, color=colour, alpha=0.35)
    axes.set(xlabel="speedup reached (block evaluations)", ylabel="PSNR against the plain video, dB")
    axes.legend()
    if evidence.seconds is not None:
        second.plot(speedups, evidence.seconds.predicted_speedup, "--", color=GREY, label="seconds, predicted")
        if evidence.seconds.measured_speedup:
            label = f"seconds, measured{DISTURBED if evidence.seconds.disturbance else ''}"
            second.plot(speedups, evidence.seconds.measured_speedup, "x", color=GREY, label=label)
    second.set(xlabel="requested speedup", ylabel="denoise speedup measured")
    second.legend()


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


def _name_of(text: str) -> str:
    """A proxy, a part of a block or a branch in words that matplotlib draws as they are."""
    return drawable(text.replace("_", " "))


def _ramp(share: float) -> tuple[float, float, float]:
    """Colour from blue at 0 to orange at 1, RGB in [0, 1]."""
    return 0.85 * share + 0.1, 0.35, 0.85 - 0.75 * share
