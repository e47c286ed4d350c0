"""A picture of one generation's decisions."""

from pathlib import Path
from typing import IO, TYPE_CHECKING

from galaxydit.policies.threshold import Threshold

if TYPE_CHECKING:
    from galaxydit.report import Report

COMPUTED, REUSED, SIGNAL = "#1f6f8b", "#f2a541", "#444444"


def plot_decisions(report: "Report", path: Path | IO[bytes]) -> None:
    """One row of cells per branch and sample, dark where the stack ran, light where reused; below, the distance."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    rows = list(dict.fromkeys((call.transformer, call.branch, call.sample) for call in report.calls))
    signal = [call for call in report.calls if call.accumulated is not None and call.accumulated < float("inf")]
    figure = Figure(figsize=(10, 1.6 + 0.4 * len(rows) + (2.0 if signal else 0)), layout="constrained")
    FigureCanvasAgg(figure)
    heights = [0.4 * len(rows) + 0.2] + ([2.0] if signal else [])
    axes = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
    for call in report.calls:
        row = rows.index((call.transformer, call.branch, call.sample))
        axes[0].bar(call.step, 0.86, 0.92, row - 0.43, color=REUSED if call.reused else COMPUTED)
    samples = sorted({sample for _, _, sample in rows})
    several = len({transformer for transformer, _, _ in rows}) > 1
    labels = [
        " ".join([*([name] if several else []), branch, *([f"sample {sample}"] if len(samples) > 1 else [])])
        for name, branch, sample in rows
    ]
    axes[0].set_yticks(range(len(rows)), labels)
    axes[0].invert_yaxis()
    axes[0].set_title(
        f"{report.reused_steps} of {report.steps_run} steps reused, compute fraction {report.compute_fraction:.2f}",
        loc="left",
    )
    patches = [Patch(color=COMPUTED, label="computed"), Patch(color=REUSED, label="reused")]
    axes[0].legend(handles=patches, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False)
    if signal:
        for sample in samples:
            points = [(call.step, call.accumulated) for call in signal if call.sample == sample]
            axes[1].plot(*zip(*points, strict=True), color=SIGNAL, marker="o", markersize=3)
        policy = report.config.policy
        if isinstance(policy, Threshold) and policy.threshold > 0:
            axes[1].axhline(policy.threshold, color=REUSED, linestyle="--", label="threshold")
            axes[1].legend(frameon=False)
        axes[1].set_ylabel(f"{report.config.proxy}\ndistance since full step")
        axes[1].set_ylim(bottom=0)
    axes[-1].set_xlabel("step")
    axes[-1].set_xlim(-0.6, report.steps - 0.4)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)
