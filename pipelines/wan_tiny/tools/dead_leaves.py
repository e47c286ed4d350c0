"""Moving backgrounds of the synthetic world, after the dead leaves model, as pixel art.

Opaque leaves with radii distributed as r^-3 cover each other, which gives the scale invariance and sharp occlusions of
photographs (Lee, Mumford and Huang, 2001; Baradad et al., arXiv 2106.05963). Two layers pan as before a camera. Each
cell has one of four tones, so that a small error in an early step can reverse a choice, as in a natural video; with a
continuum of tones errors would stay in proportion to their cause, unlike those of Wan2.1 (eval/results/README.md).
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

MARGIN = 6  # cells of canvas around the frame, for the camera to move in
TONES = (0.08, 0.36, 0.64, 0.92)
CAMERA_PAN = 0.12  # largest pan of the far layer over a clip, as a share of the frame's side
PARALLAX = 1.6  # speed of the near layer by that of the far one
REDRAWN = 0.5  # share of a rustling leaf's cells that change at each pose, at speed 1


@dataclass(frozen=True)
class LeafStyle:
    """Leaves of one background: radii in cells, and shares in [0, 1]."""

    smallest: float
    largest: float
    striped: float
    rustling: float  # flickering between two tones, as foliage does
    share_round: float  # instead of square


STYLES = {
    "plain": LeafStyle(2.0, 11.0, striped=0.0, rustling=0.4, share_round=0.5),
    "striped": LeafStyle(2.5, 11.0, striped=0.6, rustling=0.4, share_round=0.5),
    "dotted": LeafStyle(0.8, 6.0, striped=0.0, rustling=0.5, share_round=1.0),
    "cloudy": LeafStyle(3.0, 11.0, striped=0.0, rustling=0.8, share_round=0.7),
}
NEAR_COVERAGE = 0.3  # leaf area of the near layer by the area of its canvas; the far layer is covered wholly
FAR_COVERAGE = 3.0


def draw_background(
    kind: str,
    poses: int,
    height: int,
    width: int,
    rng: np.random.Generator,
    *,
    scale: float = 1.0,
    speed: float = 1.0,
    rustling: float = 1.0,
) -> Array:
    """A background of leaves, `(poses, height, width, 3)` in [0, 1]; height and width in cells, `kind` of `STYLES`.

    `scale` multiplies the radii, `speed` (at most 3) the camera's pan and the rate of rustling, and `rustling` (at most
    1) the share of rustling leaves.
    """
    style = STYLES[kind]
    style = replace(
        style,
        smallest=scale * style.smallest,
        largest=scale * style.largest,
        rustling=rustling * style.rustling,
    )
    redrawn = min(1.0, speed * REDRAWN)
    angle = rng.uniform(0, 2 * np.pi)
    pan = speed * rng.uniform(0, CAMERA_PAN) * np.array([np.sin(angle) * height, np.cos(angle) * width])
    video: Array = np.zeros((poses, height, width, 3), np.float32)
    for coverage, nearness in ((FAR_COVERAGE, 1.0), (NEAR_COVERAGE, PARALLAX)):
        layer = draw_leaves(style, coverage, poses, height + 2 * MARGIN, width + 2 * MARGIN, redrawn, rng)
        for cells, tone, moment in zip(video, layer, np.linspace(-0.5, 0.5, poses), strict=True):
            row, column = MARGIN + np.rint(nearness * pan * moment).astype(int)
            seen = tone[row : row + height, column : column + width, None]
            np.copyto(cells, seen, where=~np.isnan(seen))
    return video


def draw_leaves(
    style: LeafStyle, coverage: float, poses: int, height: int, width: int, redrawn: float, rng: np.random.Generator
) -> Array:
    """One layer of leaves, `(poses, height, width)` in cells: one of `TONES`, NaN where no leaf lies.

    `coverage` is the area of all leaves / that of the layer; from `FAR_COVERAGE` on the darkest tone replaces NaN.
    `redrawn` is the share of the cells of a rustling leaf whose tone is drawn anew at each pose.
    """
    low, high = style.smallest**-2, style.largest**-2
    # The mean of pi r^2 under the density r^-3 between the limits.
    mean_area = np.pi * 2 * np.log(style.largest / style.smallest) / (low - high)
    count = int(np.ceil(coverage * height * width / mean_area))
    radius = (low - rng.random(count) * (low - high)) ** -0.5
    centre = rng.uniform(0, 1, (count, 2)) * [height, width]  # row and column
    depth = rng.permutation(count)
    is_round = rng.random(count) < style.share_round
    ys, xs = np.indices((height, width)) + 0.5
    top = np.full((height, width), -1, np.int64)  # index of the leaf on top of each cell; -1 for none
    for index in depth:  # from the bottom; the side of a square is 1.8 times its radius
        dy, dx = (ys - centre[index, 0]) / radius[index], (xs - centre[index, 1]) / radius[index]
        top[dy**2 + dx**2 <= 1 if is_round[index] else np.maximum(abs(dy), abs(dx)) <= 0.9] = index
    leaf = np.maximum(top, 0)
    first = rng.integers(0, len(TONES), count)
    second = (first + rng.integers(2, len(TONES), count) * np.where(first < 2, 1, -1)).clip(0, len(TONES) - 1)
    angle = rng.uniform(0, 2 * np.pi, count)
    pitch = rng.uniform(4.0, 7.0, count)
    kind = rng.random(count)
    along = np.cos(angle)[leaf] * (xs - centre[leaf, 1]) + np.sin(angle)[leaf] * (ys - centre[leaf, 0])
    stripes = (np.floor(2 * along / pitch[leaf]) % 2 == 1) & (kind > 1 - style.striped)[leaf]
    flicker = rng.random((poses, height, width)) < 0.5
    for pose in range(1, poses):
        kept = rng.random((height, width)) >= redrawn
        flicker[pose, kept] = flicker[pose - 1, kept]
    is_second = stripes | (flicker & (kind < style.rustling)[leaf])
    layer = np.where(is_second, np.take(TONES, second)[leaf], np.take(TONES, first)[leaf])
    return np.where(top >= 0, layer, TONES[0] if coverage >= FAR_COVERAGE else np.nan).astype(np.float32)
