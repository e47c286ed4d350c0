"""Plot PSNR over speedup for all methods, by compute and by seconds."""

from itertools import cycle
from pathlib import Path

from galaxydit.eval.compare.compare_job import Comparison
from galaxydit.eval.methods.galaxydit_methods import SHIPPED
from galaxydit.pipelines.disturbance import DISTURBED

GROUPS = {"control": "#7f7f7f", "this project": "#d62728", "GalaxyDiT": "#ff7f0e"}
OTHERS = ("#1f77b4", "#2ca02c", "#9467bd", "#8c564b", "#17becf", "#bcbd22", "#e377c2", "#393b79", "#637939", "#843c39")
MARKERS = "osD^v<>PX*"
OUR_LINE, OTHER_LINE = {"markersize": 6, "linewidth": 3, "zorder": 5}, {"markersize": 4, "linewidth": 1.2, "zorder": 2}


def plot_pareto(comparison: Comparison, path: Path) -> None:
    """Write the plot to `path`; the legend begins with the highest PSNR at a method's fastest setting."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 8), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    sources = {row.method: row.source for row in comparison.rows}
    colours = colours_of(sources)
    disturbed = DISTURBED if any(row.disturbance for row in comparison.rows) else ""
    fields = (("by compute", "compute_speedup"), (f"by seconds of denoising{disturbed}", "denoise_speedup"))
    for axes, (title, field) in zip(panels, fields, strict=True):
        for (name, colour), marker in zip(colours.items(), cycle(MARKERS), strict=False):
            rows = sorted((row for row in comparison.rows if row.method == name), key=lambda row: getattr(row, field))
            if rows:
                speeds, psnrs = [getattr(row, field) for row in rows], [row.psnr_mean for row in rows]
                style = OUR_LINE if name == SHIPPED else OTHER_LINE
                axes.plot(speeds, psnrs, color=colour, marker=marker, label=name, **style)
        axes.set_xscale("log")
        ticks = [1.25, 1.5, 2, 2.5, 3, 3.5, 4]
        axes.set_xticks(ticks, [f"{tick:g}x" for tick in ticks])
        axes.minorticks_off()
        axes.set_xlabel(f"speedup {title}")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("PSNR against the plain video, dB")
    lines = sorted(zip(*panels[0].get_legend_handles_labels(), strict=True), key=lambda each: -each[0].get_ydata()[-1])
    figure.legend(*zip(*lines, strict=True), loc="outside right center", frameon=False)
    conditions, plan = comparison.conditions, comparison.plan
    count = len(plan.prompts) * len(plan.seeds)
    figure.suptitle(f"{conditions['pipeline']}, {conditions['settings']['steps']} steps, {count} videos")
    figure.savefig(path, dpi=130)


def colours_of(sources: dict[str, str]) -> dict[str, str]:
    """A colour for each method by source: controls grey, this project's red, those of the paper orange."""
    others = cycle(OTHERS)
    groups = {name: [key for key in GROUPS if source.startswith(key)] for name, source in sources.items()}
    return {name: GROUPS[matching[0]] if matching else next(others) for name, matching in groups.items()}
