"""Plot PSNR over speedup for all methods, by compute and by seconds."""

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from galaxydit.calibration.bootstrap import FEWEST_PROMPTS, interval
from galaxydit.eval.compare.compare_job import Comparison
from galaxydit.eval.compare.equal_compute import ScoredSetting
from galaxydit.eval.methods.galaxydit_methods import SHIPPED
from galaxydit.eval.methods.method_registry import CONTROL
from galaxydit.foreign_text import drawable
from galaxydit.pipelines.figures import (
    BLUE,
    DISTURBED_NOTE,
    GREEN,
    GREY,
    HOLLOW,
    MARKERS,
    ORANGE,
    PINK,
    SKY,
    draw_interval,
    drawn,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

GROUPS = {
    CONTROL: ("#7f7f7f", "#3d3d3d", "#a9a9a9", "#5c5c5c"),
    "this project": (ORANGE, "#8c2d04", "#f08a4b", "#b5446e", "#d9a066"),
    "GalaxyDiT": ("#b8860b", "#7a5c00"),
}
OTHERS = (BLUE, GREEN, PINK, SKY, "#5d4fc4", "#00695c", "#8fa8c9", "#6a994e", "#3b3f8f", "#9c6b98")
TICKS, WIDE_TICKS = (1, 1.25, 1.5, 2, 2.5, 3, 3.5, 4), (0.125, 0.25, 0.5, 1, 2, 4)
WIDE = 0.8  # an axis that begins below it has an outlier of slow seconds
FEWEST_TICKS = 3
FINE_STEPS = (0.25, 0.1, 0.05, 0.02, 0.01)
ROUNDING = 1e-9  # of a quotient of decimal fractions
OUR_LINE = {"markersize": 6, "linewidth": 3, "zorder": 5}
OTHER_LINE = {"markersize": 5, "linewidth": 1.2, "zorder": 2}
CONTROL_LINE = OTHER_LINE | {"linestyle": (0, (5, 2))}


def plot_pareto(comparison: Comparison, path: Path, model: str) -> None:
    """Write the plot to `path`; the legend begins with the highest PSNR at a method's fastest setting.

    Bars are 95 % intervals over prompts; controls are grey and dashed; hollow markers without a line show disturbed
    seconds. Methods with the same points by compute are said to coincide. Settings that left a video unchanged are not
    drawn, unless all did, because their PSNR stands for infinity.
    """
    with drawn(path, 15, 8) as figure:
        draw_pareto(comparison, model, figure)


def draw_pareto(comparison: Comparison, model: str, figure: "Figure") -> None:
    """Both panels: speedup by compute, and by seconds."""
    panels = figure.subplots(1, 2, sharey=True)
    changing = [row for row in comparison.rows if row.changes_every_video] or comparison.rows
    sources = {row.method: row.source for row in changing}
    colours = colours_of(sources)
    labels = _labels(changing)
    fields = (("by compute", "compute_speedup"), ("by seconds of denoising", "denoise_speedup"))
    for axes, (title, field) in zip(panels, fields, strict=True):
        for (name, colour), marker in zip(colours.items(), cycle(MARKERS), strict=False):
            rows = sorted((row for row in changing if row.method == name), key=lambda row: getattr(row, field))
            style = {"color": colour, "marker": marker} | _line_of(name, sources[name])
            draw_method(axes, rows, field, drawable(labels[name]), style)
        axes.set_xscale("log")
        ticks = ticks_of(*axes.get_xlim())
        axes.set_xticks(ticks, [f"{tick:g}x" for tick in ticks])
        axes.minorticks_off()
        axes.set_xlabel(f"speedup {title}")
    panels[0].set_ylabel("PSNR against the plain video, dB")
    lines = sorted(zip(*panels[0].get_legend_handles_labels(), strict=True), key=lambda each: -each[0].get_ydata()[-1])
    handles = [*(handle for handle, _ in lines), *_marks(comparison)]
    figure.legend(handles=handles, loc="outside right center")
    conditions, plan = comparison.conditions, comparison.plan
    count = len(plan.prompts) * len(plan.seeds)
    figure.suptitle(f"{drawable(model)}, {conditions['settings']['steps']} steps, {count} videos")


def ticks_of(low: float, high: float) -> list[float]:
    """Round speedups between the ends of an axis: of a narrow axis finer ones, until there are `FEWEST_TICKS`."""
    usual = WIDE_TICKS if low < WIDE else TICKS
    ticks = [tick for tick in usual if low < tick < high]
    for step in FINE_STEPS:
        if len(ticks) >= FEWEST_TICKS:
            break
        first, last = math.ceil(low / step - ROUNDING), math.floor(high / step + ROUNDING)
        ticks = [step * count for count in range(first, last + 1)]
    return ticks


def _line_of(name: str, source: str) -> dict[str, Any]:
    if name == SHIPPED:
        return OUR_LINE
    return CONTROL_LINE if source == CONTROL else OTHER_LINE


def draw_method(axes: "Axes", rows: Sequence[ScoredSetting], field: str, label: str, style: dict[str, Any]) -> None:
    """The settings of one method as a line with intervals.

    Where the seconds are drawn and disturbed, markers are hollow and no line joins them, because their order is chance.
    """
    if not rows:
        return
    speeds, psnrs = [getattr(row, field) for row in rows], [row.psnr_mean for row in rows]
    is_disturbed = field == "denoise_speedup" and any(row.disturbance for row in rows)
    axes.plot(speeds, psnrs, label=label, **style | ({"linestyle": ""} if is_disturbed else {}))
    for row, speed in zip(rows, speeds, strict=True):
        low, high = interval(row.psnr_of_prompt)
        draw_interval(axes, speed, row.psnr_mean, low, high, color=style["color"], alpha=0.5)
        if row.disturbance and field == "denoise_speedup":
            axes.plot(speed, row.psnr_mean, **style | HOLLOW)


def _marks(comparison: Comparison) -> list["Line2D"]:
    """What the legend says of intervals and of disturbed seconds, as far as there are any."""
    from matplotlib.lines import Line2D

    marks = []
    if len(comparison.plan.prompts) >= FEWEST_PROMPTS:
        marks.append(Line2D([], [], color=GREY, marker="_", ls="", ms=9, label="ends: 95 % interval over prompts"))
    if any(row.disturbance for row in comparison.rows):
        marks.append(Line2D([], [], color=GREY, marker="o", ls="", label=DISTURBED_NOTE, **HOLLOW))
    return marks


def colours_of(sources: dict[str, str]) -> dict[str, str]:
    """A colour for each method by source: controls grey, this project's shades of orange, the paper's of gold."""
    shades = {group: cycle(colours) for group, colours in GROUPS.items()}
    others, colours = cycle(OTHERS), {}
    for name, source in sources.items():
        group = next((group for group in GROUPS if source.startswith(group)), None)
        colours[name] = next(others if group is None else shades[group])
    return colours


def _labels(rows: Sequence[ScoredSetting]) -> dict[str, str]:
    """The name of each method, with that of an earlier method whose points by compute it has."""
    points: dict[str, set[tuple[float, float]]] = defaultdict(set)
    for row in rows:
        points[row.method].add((round(row.compute_speedup, 2), round(row.psnr_mean, 2)))
    first: dict[frozenset[tuple[float, float]], str] = {}
    names = {name: first.setdefault(frozenset(each), name) for name, each in points.items()}
    return {name: name if alike == name else f"{name} (coincides with {alike})" for name, alike in names.items()}
