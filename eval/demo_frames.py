"""Frames of the demo: three videos, the differences from the plain one, and which steps were computed."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from galaxydit.pipelines.video import GAP, display_scale, enlarge, side_by_side, to_float, to_uint8
from galaxydit.report import COMPUTED, REUSED, Report

GAIN = 4  # of the differences


def demo_frames(
    videos: Sequence[NDArray[Any]], labels: Sequence[str], measured: Sequence[str], report: Report
) -> NDArray[np.uint8]:
    """Two rows: the videos, the first one plain, with what was `measured` under each; steps, and differences.

    The steps are those of `report`, the differences |video - plain| times `GAIN`.
    """
    scale, plain = display_scale(videos[0]), to_float(videos[0])
    shown = [enlarge(to_uint8(video), scale) for video in videos]
    differences = [np.minimum(np.abs(to_float(video) - plain) * GAIN, 1.0) for video in videos[1:]]
    steps = np.broadcast_to(_draw_steps(report, *shown[0].shape[1:3]), shown[0].shape)
    below = [steps, *(enlarge(to_uint8(each), scale) for each in differences)]
    what = f"difference from plain, x{GAIN}"
    rows = (
        side_by_side(shown, labels, below=measured),
        side_by_side(below, ["steps of the accelerated video", what, what]),
    )
    gap = np.zeros((len(plain), GAP, *rows[0].shape[2:]), np.uint8)
    return np.concatenate([rows[0], gap, rows[1]], axis=1)


def typical_frame(video: NDArray[Any], plain: NDArray[Any]) -> int:
    """Index of the frame whose squared error is nearest to the mean of the video, so that it looks as its PSNR says."""
    errors = np.square(to_float(video) - to_float(plain)).mean(axis=(1, 2, 3))
    return int(np.abs(errors - errors.mean()).argmin())


def _draw_steps(report: Report, height: int, width: int) -> NDArray[np.uint8]:
    """A bar for each step, tall if it was computed, with a legend; `(height, width, 3)` uint8."""
    image = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(image)
    computed = {step for step, _ in report.computed_steps}
    reused = [step not in computed for step in sorted({call.step for call in report.calls})]
    left, bottom, pitch = 0.06 * width, 0.55 * height, 0.88 * width / max(1, len(reused))
    for index, is_reused in enumerate(reused):
        place = left + index * pitch
        top = bottom - (0.15 if is_reused else 0.35) * height
        draw.rectangle((place, top, place + max(1.0, 0.7 * pitch), bottom), fill=REUSED if is_reused else COMPUTED)
    font = ImageFont.load_default(max(9, width // 19))
    draw.text((left, bottom + 0.02 * height), "step 1", fill="black", font=font)
    draw.text((width - left, bottom + 0.02 * height), str(len(reused)), fill="black", font=font, anchor="ra")
    counts = ((COMPUTED, "computed", len(reused) - sum(reused)), (REUSED, "predicted", sum(reused)))
    for line, (colour, word, count) in enumerate(counts):
        draw.text((left, (0.70 + 0.11 * line) * height), f"{count} {word}", fill=colour, font=font)
    return np.asarray(image)
