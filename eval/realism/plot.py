"""Plot a model beside the published numbers."""

from pathlib import Path
from typing import Any

import numpy as np

from galaxydit.calibration.published import Published

OURS, THEIRS = "#d62728", "#1f77b4"


def draw(found: dict[str, Any], published: Published, path: Path) -> None:
    """Write a picture with a panel for each part that `found` (the content of realism.json) holds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(19, 9), layout="constrained")
    panels = figure.subplots(2, 4).ravel()
    for panel, part in zip(panels, ("step lists", "methods shift 3", "methods shift 5"), strict=False):
        _bars(panel, found.get(part), f"{part[0].upper()}{part[1:]}: PSNR, dB")
    data = published.data
    if "curvature" in found:
        panels[3].semilogy(found["curvature"]["change_per_step"], color=OURS, label="this model")
        panels[3].semilogy(data["curvature"]["steps"], data["curvature"]["change_per_step"], color=THEIRS)
        panels[3].set_title("Change of the guided velocity per step")
    if "propagation" in found:
        gains = {int(step): gain for step, gain in found["propagation"]["gains"].items()}
        scale = gains[40] / published.gain(40)
        panels[4].plot(list(gains), [gain / scale for gain in gains.values()], "o-", color=OURS)
        panels[4].plot(range(50), [published.gain(step) for step in range(50)], color=THEIRS)
        panels[4].set_title("Final deviation / error of one step, equal at step 40")
    if "residual" in found:
        ours = np.array(found["residual"]["magnitude_ratio"])
        panels[5].plot(range(1, len(ours) + 1), ours[:, 0], color=OURS)
        panels[5].plot(data["residual"]["conditional"], color=THEIRS)
        panels[5].set_ylim(0.75, 1.25)
        panels[5].set_title("Magnitude ratio of the residual")
        cosines = np.array(found["residual"]["cosine_distance"])
        panels[6].semilogy(range(1, len(cosines) + 1), cosines[:, 0], color=OURS)
        shown = data["residual"]["cosine_distance"]
        panels[6].semilogy([int(step) for step in shown], list(shown.values()), "o", color=THEIRS)
        panels[6].set_title("Cosine distance of the residual")
    panels[7].axis("off")
    for panel in panels[3:7]:
        panel.set_xlabel("step")
        panel.grid(alpha=0.3)
    figure.suptitle(f"This model (red) and published numbers of {data['model']} (blue)")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def _bars(panel: Any, part: dict[str, Any] | None, title: str) -> None:
    panel.set_title(title)
    if part is None:
        return
    rows = part["rows"]
    places = np.arange(len(rows))
    panel.barh(places + 0.2, [row["published"] for row in rows], 0.4, color=THEIRS)
    panel.barh(places - 0.2, [row["mean"] for row in rows], 0.4, color=OURS)
    panel.set_yticks(places, [row["name"] for row in rows], fontsize=8)
    panel.invert_yaxis()
