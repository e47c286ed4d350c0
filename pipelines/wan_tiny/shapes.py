"""Name the shape of an object in a clip of wan-tiny's synthetic world by its outline, without a network."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from galaxydit.pipelines.video import to_float
from galaxydit.pipelines.wan_tiny.detect import Mask, colour_masks, largest_blobs, near
from galaxydit.pipelines.wan_tiny.world import parse_caption

UNCLEAR = "unclear"
MIN_SIDE = 12  # pixels of an outline's box, three cells: a smaller ball is a square
NARROW_TOP = 0.6  # width of a triangle's upper third / that of its lower third: at most
FILLED_CORNER = 0.5  # share of a square's corner cells that are filled: at least
CORNER = 3  # pixels; an outline is softer than the cells that it was drawn with


def shape_agreement(frames: NDArray[Any], caption: str) -> list[bool]:
    """Whether each clause's object has the shape of its word, for frames and captions as in `caption_agreement`."""
    masks = colour_masks(to_float(frames))
    found = []
    for clause in parse_caption(caption).objects:
        others = np.any([mask for colour, mask in masks.items() if colour != clause.colour], axis=0)
        found.append(observed_shape(masks[clause.colour], others) == clause.shape)
    return found


def observed_shape(mask: Mask, others: Mask) -> str:
    """The word of `SHAPES` in world.py that most frames show, or "unclear"; masks as for `observed_motion`.

    Frames count in which the object touches neither the border nor another object; if there are none, all frames do.
    """
    blobs = largest_blobs(mask)
    is_hidden = np.any(near(blobs) & others, axis=(1, 2))
    touches_border = blobs[:, [0, -1]].any(axis=(1, 2)) | blobs[:, :, [0, -1]].any(axis=(1, 2))
    is_whole = blobs.any(axis=(1, 2)) & ~is_hidden & ~touches_border
    chosen = blobs[is_whole] if is_whole.any() else blobs[blobs.any(axis=(1, 2))]
    votes = [outline for outline in map(_outline, chosen) if outline]
    return max(set(votes), key=votes.count) if votes else UNCLEAR


def _outline(blob: Mask) -> str:
    """The shape of one frame's blob `(height, width)`, "" if it is too small to tell."""
    rows = np.flatnonzero(blob.any(axis=1))
    columns = np.flatnonzero(blob.any(axis=0))
    box = blob[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    height, width = box.shape
    if min(height, width) < MIN_SIDE:
        return ""
    widths = box.sum(axis=1)
    third = height // 3
    if widths[:third].mean() <= NARROW_TOP * widths[-third:].mean():
        return "triangle"
    corners = [box[:CORNER, :CORNER], box[:CORNER, -CORNER:], box[-CORNER:, :CORNER], box[-CORNER:, -CORNER:]]
    return "square" if np.mean(corners) >= FILLED_CORNER else "ball"
