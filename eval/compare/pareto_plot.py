"""Plot PSNR over speedup for all methods, by compute and by seconds."""

from collections import defaultdict
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

from galaxydit.eval.compare.compare_job import Comparison
from galaxydit.eval.methods.galaxydit_methods import SHIPPED
from galaxydit.foreign_text import drawable
from galaxydit.pipelines.disturbance import DISTURBED
from galaxydit.pipelines.figures import drawn

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GROUPS = {
    "control": ("#7f7f7f",),
    "this project": ("#d62728", "#7a0f10", "#ff8a80", "#b5446e", "#f4b6b6"),
    "GalaxyDiT": ("#ff7f0e", "#b35900"),
}
OTHERS = ("#1f77b4", "#2ca02c", "#9467bd", "#8c564b", "#17becf", "#bcbd22", "#e377c2", "#393b79", "#637939", "#843c39")
TICKS, WIDE_TICKS = (1.25, 1.5, 2, 2.5, 3, 3.5, 4), (0.125, 0.25, 0.5, 1, 2, 4)
MARKERS = "osD^v<>PX*"
OUR_LINE, OTHER_LINE = {"markersize": 6, "linewidth": 3, "zorder": 5}, {"markersize": 4, "linewidth": 1.2, "zorder": 2}


def plot_pareto(comparison: Comparison, path: Path, model: str) -> None:
    """Write the plot to `path`; the legend begins with the highest PSNR at a method's fastest setting.

    Methods with the same points by compute are said to coincide.
    """
    with drawn(path, 15, 8) as figure:
        _draw(comparison, model, figure)


def _draw(comparison: Comparison, model: str, figure: "Figure") -> None:
    panels = figure.subplots(1, 2, sharey=True)
    sources = {row.method: row.source for row in comparison.rows}
    colours = colours_of(sources)
    disturbed = DISTURBED if any(row.disturbance for row in comparison.rows) else ""
    labels = _labels(comparison)
    fields = (("by compute", "compute_speedup"), (f"by seconds of denoising{disturbed}", "denoise_speedup"))
    for axes, (title, field) in zip(panels, fields, strict=True):
        for (name, colour), marker in zip(colours.items(), cycle(MARKERS), strict=False):
            rows = sorted((row for row in comparison.rows if row.method == name), key=lambda row: getattr(row, field))
            if rows:
                speeds, psnrs = [getattr(row, field) for row in rows], [row.psnr_mean for row in rows]
                style = OUR_LINE if name == SHIPPED else OTHER_LINE
                axes.plot(speeds, psnrs, color=colour, marker=marker, label=drawable(labels[name]), **style)
        axes.set_xscale("log")
        wide = axes.get_xlim()[0] < 0.8  # by an outlier of slow seconds
        ticks = [tick for tick in (WIDE_TICKS if wide else TICKS) if axes.get_xlim()[0] < tick < axes.get_xlim()[1]]
        axes.set_xticks(ticks, [f"{tick:g}x" for tick in ticks])
        axes.minorticks_off()
        axes.set_xlabel(f"speedup {title}")
    panels[0].set_ylabel("PSNR against the plain video, dB")
    lines = sorted(zip(*panels[0].get_legend_handles_labels(), strict=True), key=lambda each: -each[0].get_ydata()[-1])
    figure.legend(*zip(*lines, strict=True), loc="outside right center")
    conditions, plan = comparison.conditions, comparison.plan
    count = len(plan.prompts) * len(plan.seeds)
    figure.suptitle(f"{drawable(model)}, {conditions['settings']['steps']} steps, {count} videos")


def colours_of(sources: dict[str, str]) -> dict[str, str]:
    """A colour for each method by source: controls grey, this project's shades of red, the paper's of orange."""
    shades = {group: cycle(colours) for group, colours in GROUPS.items()}
    others, colours = cycle(OTHERS), {}
    for name, source in sources.items():
        group = next((group for group in GROUPS if source.startswith(group)), None)
        colours[name] = next(others if group is None else shades[group])
    return colours


def _labels(comparison: Comparison) -> dict[str, str]:
    """The name of each method, with that of an earlier method whose points by compute it has."""
    points: dict[str, set[tuple[float, float]]] = defaultdict(set)
    for row in comparison.rows:
        points[row.method].add((round(row.compute_speedup, 2), round(row.psnr_mean, 2)))
    first: dict[frozenset[tuple[float, float]], str] = {}
    names = {name: first.setdefault(frozenset(each), name) for name, each in points.items()}
    return {name: name if alike == name else f"{name} (coincides with {alike})" for name, alike in names.items()}
