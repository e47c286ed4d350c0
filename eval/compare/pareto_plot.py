"""Plot PSNR over speedup for all methods, by compute and by seconds."""

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import isotonic_regression

from galaxydit.eval.compare.compare_job import Comparison
from galaxydit.eval.methods.galaxydit_methods import SHIPPED
from galaxydit.pipelines.disturbance import DISTURBED

GROUPS = {"control": "#7f7f7f", "this project": "#d62728", "GalaxyDiT": "#ff7f0e"}
OTHERS = ("#1f77b4", "#2ca02c", "#9467bd", "#8c564b", "#17becf", "#bcbd22", "#e377c2", "#393b79", "#637939", "#843c39")
OUR_LINE, OTHER_LINE = {"markersize": 6, "linewidth": 3, "zorder": 5}, {"markersize": 4, "linewidth": 1.2, "zorder": 2}
LABEL_GAP = 0.036  # of the axis' height between two labels


def plot_pareto(comparison: Comparison, path: Path) -> None:
    """Write the plot to `path`; each method's label is near the height of its fastest setting."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 8), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    sources = {row.method: row.source for row in comparison.rows}
    colours = colours_of(sources)
    disturbed = DISTURBED if any(row.disturbance for row in comparison.rows) else ""
    fields = (("by compute", "compute_speedup"), (f"by seconds of denoising{disturbed}", "denoise_speedup"))
    for axes, (title, field) in zip(panels, fields, strict=True):
        ends = {}
        for name, colour in colours.items():
            rows = sorted((row for row in comparison.rows if row.method == name), key=lambda row: getattr(row, field))
            if rows:
                speeds, psnrs = [getattr(row, field) for row in rows], [row.psnr_mean for row in rows]
                axes.plot(speeds, psnrs, color=colour, marker="o", **(OUR_LINE if name == SHIPPED else OTHER_LINE))
                ends[name] = speeds[-1], psnrs[-1]
        axes.set_xscale("log")
        ticks = [1.25, 1.5, 2, 2.5, 3, 3.5, 4]
        axes.set_xticks(ticks, [f"{tick:g}x" for tick in ticks])
        axes.minorticks_off()
        axes.set_xlabel(f"speedup {title}")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        _write_labels(axes, ends, colours)
    panels[0].set_ylabel("PSNR against the plain video, dB")
    conditions, plan = comparison.conditions, comparison.plan
    count = len(plan.prompts) * len(plan.seeds)
    figure.suptitle(f"{conditions['pipeline']}, {conditions['settings']['steps']} steps, {count} videos")
    figure.savefig(path, dpi=130)


def colours_of(sources: dict[str, str]) -> dict[str, str]:
    """A colour for each method by source: controls grey, this project's red, those of the paper orange."""
    others = cycle(OTHERS)
    groups = {name: [key for key in GROUPS if source.startswith(key)] for name, source in sources.items()}
    return {name: GROUPS[matching[0]] if matching else next(others) for name, matching in groups.items()}


def _write_labels(axes: Any, ends: dict[str, tuple[float, float]], colours: dict[str, str]) -> None:
    """Write the names of the methods at the right, each connected to the end of its line."""
    low, high = axes.get_ylim()
    names = sorted(ends, key=lambda name: ends[name][1])
    wanted = [(ends[name][1] - low) / (high - low) for name in names]
    for name, height in zip(names, spread_out(wanted, LABEL_GAP), strict=True):
        axes.annotate(
            name,
            xy=ends[name],
            xytext=(1.03, height),
            textcoords="axes fraction",
            color=colours[name],
            fontsize=8.5,
            fontweight="bold" if name == SHIPPED else "normal",
            verticalalignment="center",
            arrowprops={"arrowstyle": "-", "color": colours[name], "linewidth": 0.5, "alpha": 0.6, "relpos": (0, 0.5)},
            annotation_clip=False,
        )


def spread_out(heights: Sequence[float], gap: float) -> list[float]:
    """Ascending heights in [0, 1], at least `gap` apart, with the least sum of squared moves."""
    steps = gap * np.arange(len(heights))
    free = isotonic_regression(np.asarray(heights) - steps).x
    return list(np.clip(free, 0.0, max(0.0, 1.0 - gap * (len(heights) - 1))) + steps)
