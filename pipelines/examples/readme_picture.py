"""Draw the picture of the README: a demo of wan-tiny, and the measured seconds and kilojoules of Wan2.1 on a GPU.

    galaxydit demo --seed 4 --out runs/readme \
        --prompt "a red ball moves left, a cyan square orbits and a blue triangle grows over a plain background"
    python pipelines/examples/readme_picture.py runs/readme eval/results/demo.png
"""

import json
import sys
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.image import imread

from galaxydit.pipelines.figures import BLUE, ORANGE
from galaxydit.pipelines.published_models import WAN_21_1_3B

MEASURED = Path(__file__).parents[2] / "eval" / "results" / "gpu" / "pipeline-1.3B-480p-compiled-H100.json"
WAYS = {"plain": BLUE, "speedup=2": ORANGE, "speedup=3": "#f2c14e"}


def draw(demo: Path, out: Path) -> None:
    frame = imread(demo / "side-by-side.png")
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    figure = Figure(figsize=(12.0, 5.68), dpi=100)
    shown = figure.add_axes((0.0, 0.0, frame.shape[1] / 1200, 1.0))
    shown.imshow(frame, interpolation="nearest", aspect="auto")
    shown.set_axis_off()
    joules = "energy_per_video_joules"
    figures = (("seconds per video", "end_to_end_seconds", 1), ("kilojoules per video", joules, 1e-3))
    for index, (title, field, scale) in enumerate(figures):
        axes = figure.add_axes((0.755, 0.47 - 0.34 * index, 0.19, 0.22))
        values = [row[field] * scale for row in measured["rows"]]
        bars = axes.barh(list(WAYS), values, color=list(WAYS.values()), height=0.68)
        axes.bar_label(bars, [f"{value:.1f}" for value in values], padding=4, fontsize=13)
        axes.invert_yaxis()
        axes.set_title(title, loc="left", fontsize=13)
        axes.spines[:].set_visible(False)
        axes.set_xticks([])
        axes.tick_params(left=False, labelsize=12)
    device, settings = measured["device"].removeprefix("NVIDIA ").split()[0], WAN_21_1_3B
    size = f"{settings.num_frames} frames of {settings.width}x{settings.height}, {settings.steps} steps"
    what = f"Wan2.1-T2V-{measured['model']} on one {device}\n{size}\ncompiled, random weights"
    figure.text(0.665, 0.80, what, fontsize=13)
    figure.savefig(out)


if __name__ == "__main__":
    draw(Path(sys.argv[1]), Path(sys.argv[2]))
