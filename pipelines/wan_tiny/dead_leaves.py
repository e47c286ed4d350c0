"""Moving backgrounds of the synthetic world, after the dead leaves model.

Opaque leaves with radii distributed as r^-3 cover each other in random order, which gives images the scale invariance
and the sharp occlusions of photographs (Lee, Mumford and Huang, 2001; Baradad et al., arXiv 2106.05963). Two layers of
leaves, at two depths, move as a camera that pans and zooms would show them. Leaves are grey: saturated colour belongs
to the captioned objects alone.

A leaf has one of four separated tones. A small error before such a choice is made can turn it, as in a natural video.
Errors of a continuum of tones stay in proportion to their cause, unlike those of Wan2.1 (eval/realism/README.md).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

MARGIN = 22  # pixels of canvas around the frame, for the camera to move in
SUPERSAMPLING = 2
TONES = (0.08, 0.36, 0.64, 0.92)
CAMERA_PAN = 0.06  # largest pan of the far layer over a clip, as a share of the frame's side
CAMERA_ZOOM = 0.06  # largest change of scale over a clip, as a logarithm
PARALLAX = 1.6  # speed of the near layer by that of the far one


@dataclass(frozen=True)
class LeafStyle:
    """Leaves of one background: radii in pixels, share with stripes, strength of shading, share of discs."""

    smallest: float
    largest: float
    striped: float
    gradient: float
    share_round: float


STYLES = {
    "plain": LeafStyle(11.0, 44.0, striped=0.0, gradient=0.0, share_round=0.5),
    "striped": LeafStyle(12.0, 44.0, striped=0.6, gradient=0.0, share_round=0.5),
    "dotted": LeafStyle(5.0, 30.0, striped=0.0, gradient=0.0, share_round=1.0),
    "cloudy": LeafStyle(9.0, 40.0, striped=0.0, gradient=0.12, share_round=0.7),
}
NEAR_COVERAGE = 0.3  # leaf area of the near layer by the area of its canvas; the far layer is covered wholly
FAR_COVERAGE = 3.0


def draw_background(kind: str, frames: int, height: int, width: int, rng: np.random.Generator) -> Array:
    """A clip `(frames, height, width, 3)` in [0, 1] of leaves in the style of a caption's background word."""
    style = STYLES[kind]
    time = np.linspace(-0.5, 0.5, frames)
    angle = rng.uniform(0, 2 * np.pi)
    pan = rng.uniform(0, CAMERA_PAN) * np.array([np.cos(angle), np.sin(angle)])
    zoom = rng.uniform(-CAMERA_ZOOM, CAMERA_ZOOM)
    video: Array = np.zeros((frames, height, width, 3), np.float32)
    for coverage, speed in ((FAR_COVERAGE, 1.0), (NEAR_COVERAGE, PARALLAX)):
        smallest = style.smallest if coverage == FAR_COVERAGE else max(style.smallest, 5.0)
        canvas = draw_leaves(style, smallest, coverage, height + 2 * MARGIN, width + 2 * MARGIN, rng)
        for frame, moment in zip(video, time, strict=True):
            rows = _sample_weights(height, canvas.shape[0], speed * pan[1] * moment * height, speed * zoom * moment)
            columns = _sample_weights(width, canvas.shape[1], speed * pan[0] * moment * width, speed * zoom * moment)
            seen = np.einsum(
                "rh,hcx->rcx", rows, np.einsum("cw,hwx->hcx", columns, canvas, optimize=True), optimize=True
            )
            frame *= 1.0 - seen[..., 3:]
            frame += seen[..., :3]
    return np.clip(video, 0.0, 1.0)


def draw_leaves(
    style: LeafStyle,
    smallest: float,
    coverage: float,
    height: int,
    width: int,
    rng: np.random.Generator,
) -> Array:
    """One layer `(height, width, 4)`: premultiplied colour and opacity of its leaves.

    `coverage` is the summed area of all leaves by the area of the layer; from 3 on the layer is covered wholly.
    """
    radius, centre, order = _draw_radii_and_places(style, smallest, coverage, height, width, rng)
    top = _topmost(radius, centre, order, rng.random(len(radius)) < style.share_round, height, width)
    covered = top >= 0
    leaf = np.maximum(top, 0)
    tones = rng.choice(TONES, (2, len(radius))).astype(np.float32)
    angle = rng.uniform(0, 2 * np.pi, len(radius))
    slope = rng.uniform(0, style.gradient, len(radius)) / radius
    pitch = rng.uniform(12.0, 20.0, len(radius))
    is_striped = rng.random(len(radius)) < style.striped
    ys, xs = (np.indices(top.shape, np.float32) + 0.5) / SUPERSAMPLING
    along = np.cos(angle)[leaf] * (xs - centre[leaf, 1]) + np.sin(angle)[leaf] * (ys - centre[leaf, 0])
    second = (np.floor(2 * along / pitch[leaf]) % 2 == 1) & is_striped[leaf]
    colour = np.where(second, tones[1, leaf], tones[0, leaf]) + slope[leaf] * along
    layer = np.stack([*[np.clip(colour, 0, 1)] * 3, np.ones(top.shape)], axis=2)
    layer *= covered[..., None]
    if coverage >= FAR_COVERAGE:
        layer += ~covered[..., None] * np.array([TONES[0]] * 3 + [1.0])
    blocks = layer.reshape(height, SUPERSAMPLING, width, SUPERSAMPLING, 4)
    return blocks.mean(axis=(1, 3)).astype(np.float32)


def _draw_radii_and_places(
    style: LeafStyle, smallest: float, coverage: float, height: int, width: int, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Radii, centres `(leaves, 2)` as row and column in pixels, and a random order of depth."""
    low, high = smallest**-2, style.largest**-2
    mean_area = np.pi * 2 * np.log(style.largest / smallest) / (low - high)  # of the density r^-3 between the limits
    count = int(np.ceil(coverage * height * width / mean_area))
    radius = (low - rng.random(count) * (low - high)) ** -0.5
    centre = rng.uniform(0, 1, (count, 2)) * [height, width]
    return radius, centre, rng.permutation(count)


def _topmost(
    radius: NDArray[np.float64],
    centre: NDArray[np.float64],
    order: NDArray[np.int64],
    is_round: NDArray[np.bool_],
    height: int,
    width: int,
) -> NDArray[np.int64]:
    """Index of the leaf on top at each point of the supersampled layer, -1 where there is none."""
    depth = np.full((height * SUPERSAMPLING, width * SUPERSAMPLING), -1, np.int64)
    reach = np.ceil(radius * SUPERSAMPLING).astype(int) + 1
    for size in np.unique(2 ** np.ceil(np.log2(reach)).astype(int)):
        group = np.flatnonzero(2 ** np.ceil(np.log2(reach)).astype(int) == size)
        window = np.arange(-size, size + 1)
        for part in np.array_split(group, max(1, len(group) * len(window) ** 2 // 400_000)):
            first = np.floor(centre[part] * SUPERSAMPLING).astype(int)
            ys, xs = first[:, :1] + window, first[:, 1:] + window
            dy = ((ys + 0.5) / SUPERSAMPLING - centre[part, :1]) / radius[part, None]
            dx = ((xs + 0.5) / SUPERSAMPLING - centre[part, 1:]) / radius[part, None]
            disc = dy[:, :, None] ** 2 + dx[:, None, :] ** 2 <= 1
            box = np.maximum(np.abs(dy)[:, :, None], np.abs(dx)[:, None, :]) <= 0.9
            inside = np.where(is_round[part, None, None], disc, box)
            inside &= ((ys >= 0) & (ys < depth.shape[0]))[:, :, None] & ((xs >= 0) & (xs < depth.shape[1]))[:, None, :]
            leaf, row, column = np.nonzero(inside)
            np.maximum.at(depth, (ys[leaf, row], xs[leaf, column]), order[part][leaf])
    leaf_of = np.empty(len(order) + 1, np.int64)
    leaf_of[order], leaf_of[-1] = np.arange(len(order)), -1
    return leaf_of[depth]


def _sample_weights(side: int, canvas_side: int, shift: float, log_scale: float) -> NDArray[np.float64]:
    """Linear interpolation `(side, canvas_side)` of a canvas at the pixels of a frame that is shifted and scaled."""
    places = (np.arange(side) + 0.5 - side / 2) * np.exp(log_scale) + canvas_side / 2 + shift - 0.5
    return np.maximum(0.0, 1.0 - np.abs(places[:, None] - np.arange(canvas_side)))
