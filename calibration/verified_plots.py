"""The figures of a calibration that rest on generated videos; the docstring of each `draw_` function is its caption."""

import math
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from galaxydit.calibration.calibration import Calibration
from galaxydit.pipelines.disturbance import DISTURBED
from galaxydit.pipelines.figures import (
    BLUE,
    GREY,
    HOLLOW,
    LIGHT_GREY,
    MARKERS,
    ORANGE,
    PALETTE,
    draw_interval,
    words_of,
)
from galaxydit.request import PROXY, SCHEDULE


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
            rho, colour = getattr(rows[compared_proxy.proxy], kind), PALETTE[place % len(PALETTE)]
            for marker, measured in zip(MARKERS, compared_proxy.measured, strict=False):
                text = f"{words_of(compared_proxy.proxy)}, {measured.speedup:g}x"
                text += " (used)" if compared_proxy.proxy == used else ""
                axes.plot(rho, measured.psnr_db, marker, color=colour, label=text)
                draw_interval(axes, rho, measured.psnr_db, measured.psnr_low, measured.psnr_high, color=colour)
        axes.set(xlabel=f"Spearman's rho {title}")
        axes.margins(0.1)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figure.axes[0].set_ylabel("PSNR against the plain video, dB")
    psnrs = zip(*([row.psnr_db or 0.0 for row in each.measured] for each in compared), strict=False)
    if all(max(at_speedup) - min(at_speedup) < 0.05 for at_speedup in psnrs):
        figure.suptitle("The proxies coincide: their videos have the same PSNR")


def draw_budget(calibration: Calibration, figure: Figure) -> None:
    """Left: PSNR on held-out prompts by reached speedup, with its 95 % interval over prompts. Small dots: one prompt.

    Right: reached against requested speedup, in block evaluations and for the policy "schedule" also in seconds.
    Hollow crosses: seconds that other work disturbed.
    """
    if not calibration.verifications:
        return
    evidence = calibration.profile.evidence
    figure.set_size_inches(9, 4.8)
    quality, speed = figure.subplots(1, 2)
    for policy, colour, measured in (
        (SCHEDULE, BLUE, evidence.verifications),
        (PROXY, ORANGE, evidence.proxy_verifications),
    ):
        if not measured:
            continue
        reached = [1 / (row.compute_fraction or math.nan) for row in measured]
        # A larger hollow marker shows the other policy's inside it where the two coincide.
        marks: dict[str, Any] = {"marker": "o", "ms": 6, "color": colour}
        if policy == PROXY:
            marks = {"marker": "s", "ms": 10, "color": colour, **HOLLOW, "markerfacecolor": "none"}
        dashes = "--" if policy == PROXY else "-"
        quality.plot(reached, [row.psnr_db for row in measured], ls=dashes, label=f'policy "{policy}"', **marks)
        for at, row in zip(reached, measured, strict=True):
            draw_interval(quality, at, row.psnr_db, row.psnr_low, row.psnr_high, color=colour)
        speed.plot([row.speedup for row in measured], reached, ls="", label=f'blocks, policy "{policy}"', **marks)
        for video in calibration.verifications:
            if video.policy == policy:
                quality.plot(1 / video.compute_fraction, video.psnr_db, ".", ms=4, color=colour, alpha=0.35)
    quality.set(xlabel="speedup reached (block evaluations)", ylabel="PSNR against the plain video, dB")
    quality.set_title("What a speedup costs")
    quality.plot([], [], ".", ms=4, color=GREY, label="one prompt")
    quality.plot([], [], marker="_", ms=9, ls="", color=GREY, label="ends of the 95 % interval")
    _draw_reached(calibration, speed)
    for axes in (quality, speed):
        axes.legend()


def _draw_reached(calibration: Calibration, axes: Axes) -> None:
    """The requested speedup as a line, and the seconds beside the blocks."""
    evidence = calibration.profile.evidence
    speedups = [target.speedup for target in evidence.verifications]
    axes.plot([1, max(speedups)], [1, max(speedups)], color=LIGHT_GREY, lw=1, label="as requested")
    if evidence.seconds is not None:
        axes.plot(speedups, evidence.seconds.predicted_speedup, ":", color=GREY, label="seconds, predicted")
        if evidence.seconds.measured_speedup:
            disturbed = DISTURBED if evidence.seconds.disturbance else ""
            style: dict[str, Any] = {"ms": 8, "color": GREY, **(HOLLOW if disturbed else {})}
            label = f"seconds, measured{disturbed}"
            axes.plot(speedups, evidence.seconds.measured_speedup, "X", label=label, **style)
    axes.set(xlabel="requested speedup", ylabel="speedup reached, denoising only")
    axes.set_title("Whether it is reached")
