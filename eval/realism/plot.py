"""Plot the numbers measured on a model beside the published ones of Wan2.1-T2V-1.3B."""

from pathlib import Path
from typing import Any

import numpy as np

from galaxydit.calibration.published import Published
from galaxydit.eval.realism import PSNR_PARTS, STEPS

OURS, THEIRS = "#d62728", "#1f77b4"


def draw(results: dict[str, Any], published: Published, path: Path) -> None:
    """Write a picture to `path` with the measured and the published numbers.

    `results` is the content of the realism.json that `galaxydit realism` writes, by part of the measurement, such as
    "curvature". The panels of a part that it lacks stay empty.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(19, 9), layout="constrained")
    *bars, change, gain, magnitude, cosine, empty = figure.subplots(2, 4).ravel()
    for panel, part in zip(bars, PSNR_PARTS, strict=True):
        panel.set_title(f"{part[0].upper()}{part[1:]}: PSNR, dB")
        rows = results[part]["rows"] if part in results else []
        places = np.arange(len(rows))
        panel.barh(places + 0.2, [row["published"] for row in rows], 0.4, color=THEIRS)
        panel.barh(places - 0.2, [row["mean"] for row in rows], 0.4, color=OURS)
        panel.set_yticks(places, [row["name"] for row in rows], fontsize=8)
        panel.invert_yaxis()
    data = published.data
    if "curvature" in results:
        change.semilogy(results["curvature"]["change_per_step"], color=OURS)
        change.semilogy(data["curvature"]["steps"], data["curvature"]["change_per_step"], color=THEIRS)
        change.set_title("Change of the guided velocity per step")
    if "propagation" in results:
        gains = {int(step): value for step, value in results["propagation"]["gains"].items()}
        scale = gains[40] / published.gain(40)
        gain.plot(list(gains), [value / scale for value in gains.values()], "o-", color=OURS)
        gain.plot(range(STEPS), [published.gain(step) for step in range(STEPS)], color=THEIRS)
        gain.set_title("Final deviation / error of one step, equal at step 40")
    if "residual" in results:
        # The first number of each step is of the conditional branch, from step 1.
        ratios, distances = (np.array(results["residual"][key])[:, 0] for key in ("magnitude_ratio", "cosine_distance"))
        magnitude.plot(range(1, len(ratios) + 1), ratios, color=OURS)
        magnitude.plot(data["residual"]["conditional"], color=THEIRS)
        magnitude.set_ylim(0.75, 1.25)
        magnitude.set_title("Magnitude ratio of the residual")
        cosine.semilogy(range(1, len(distances) + 1), distances, color=OURS)
        shown = data["residual"]["cosine_distance"]
        cosine.semilogy([int(step) for step in shown], list(shown.values()), "o", color=THEIRS)
        cosine.set_title("Cosine distance of the residual")
    empty.axis("off")
    for panel in (change, gain, magnitude, cosine):
        panel.set_xlabel("step")
        panel.grid(alpha=0.3)
    figure.suptitle(f"This model (red) and published numbers of {data['model']} (blue)")
    figure.savefig(path, dpi=110)
