"""Detect the objects in a clip of wan-tiny's synthetic world by colour, without a network; compare with a caption.

Centres over time tell moving, orbiting and bouncing apart; newly covered and uncovered pixels tell growing, shrinking
and standing still apart.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from galaxydit.errors import refusal
from galaxydit.pipelines.video import to_float
from galaxydit.pipelines.wan_tiny.world import COLOURS, DIRECTIONS, Clause, parse_caption

MIN_CHROMA = 0.25  # backgrounds stay below 0.1, objects above 0.5
MIN_PIXELS = 12  # the smallest object of the world, a triangle about to grow, covers 30
MIN_FRAMES = 5
MIN_FRAME_SHARE = 0.4  # an object may be hidden for a while
MIN_TRAVEL = 0.15  # share of the frame's side; the world's objects travel 0.4 or more
MAX_STRAY = 0.2  # distance from a straight path, as a share of its length
MIN_ALONG = 0.9  # cosine of the angle between a path and its axis
MAX_STILL_CHANGE = 0.2  # share of an object's pixels
MIN_SIZE_CHANGE = 0.4  # share of an object's pixels; the world's objects change 0.8 or more
MIN_ASPECT = 0.4  # of the box around a path; a flatter one has one axis
MIN_TURN = np.pi  # the world's objects orbit through 1.4 pi or more
MIN_RETURN = 1.5  # length of a vertical path over its height: 1 for one way, 2 for there and back
TOUCHED_WEIGHT = 0.25  # of frames in which another object may hide part of this one

Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ClauseAgreement:
    """Whether the object of one clause was found by its colour, and whether it moves (or not) as the clause says."""

    clause: Clause
    colour_found: bool
    motion_found: bool


@dataclass(frozen=True)
class Track:
    """Positions of one object in the `seen` frames that show it, as shares of the frame's sides; y points down."""

    time: Floats  # `(seen,)`, from 0 to 1 over the clip
    x: Floats  # centre, `(seen,)`
    y: Floats
    columns: Floats  # left and right edge, `(seen, 2)`
    rows: Floats  # upper and lower edge, `(seen, 2)`
    weight: Floats  # of each frame in fits, `(seen,)`; below 1 where other objects touch this one


def caption_agreement(frames: NDArray[Any], caption: str) -> list[ClauseAgreement]:
    """Agreement of a clip `(frames, height, width, 3)`, uint8 or in [0, 1], with each clause of a caption of world.py.

    Raises ValueError for other frames, for under 5 of them and for a caption outside the grammar.
    """
    scene = parse_caption(caption)
    frames = to_float(frames)
    if len(frames) < MIN_FRAMES:
        raise refusal("frames", len(frames), f"at least {MIN_FRAMES}", "pass a longer clip")
    masks = colour_masks(frames)
    clauses = []
    for clause in scene.objects:
        mask = masks[clause.colour]
        blobs = largest_blobs(mask)
        is_seen = bool(blobs.any(axis=(1, 2)).mean() >= MIN_FRAME_SHARE)
        others = np.any([other for colour, other in masks.items() if colour != clause.colour], axis=0)
        moves_so = is_seen and observed_motion(blobs, mask, others) == clause.motion
        clauses.append(ClauseAgreement(clause, is_seen, moves_so))
    return clauses


def colour_masks(frames: NDArray[np.floating]) -> dict[str, Mask]:
    """Masks `(frames, height, width)` of the saturated pixels nearest in hue to each colour.

    A morphological opening removes the seam of a third colour where two blurred objects touch.
    """
    red, green, blue = np.moveaxis(frames, -1, 0)  # compared as pictures: numpy is slow along an axis of three
    chroma = np.maximum(np.maximum(red, green), blue) - np.minimum(np.minimum(red, green), blue)
    saturated = chroma > MIN_CHROMA
    hues = _hue(np.array(list(COLOURS.values())))
    # Hues are on a circle, so a difference is at most half a turn.
    differences = (_hue(frames[saturated])[:, None] - hues + 0.5) % 1.0 - 0.5
    nearest = np.full(frames.shape[:-1], -1)
    nearest[saturated] = np.abs(differences).argmin(axis=1)
    masks = {}
    for index, colour in enumerate(COLOURS):
        mask = nearest == index
        # Most colours of the world are absent from a clip, and opening an empty mask takes as long as any other.
        masks[colour] = ndimage.binary_opening(mask, np.ones((1, 3, 3))) if mask.any() else mask
    return masks


def observed_motion(blobs: Mask, mask: Mask, others: Mask) -> str:
    """A word of `MOTIONS` in world.py, "" if the object stands still, or "unclear"; at least two frames must show it.

    `mask` holds the pixels of its colour, `blobs` the largest blobs of them, `others` the pixels of all other colours,
    each `(frames, height, width)`.
    """
    track = _track(blobs, others)
    if direction := _direction(track):
        return direction
    taken, freed = _changed_pixels(blobs, mask, others)
    if max(taken, freed) <= MAX_STILL_CHANGE:
        return ""
    if min(taken, freed) <= MAX_STILL_CHANGE and max(taken, freed) >= MIN_SIZE_CHANGE:
        return "grows" if taken > freed else "shrinks"
    # A box that is not flat is that of an orbit; a high one that is passed several times, that of a bounce.
    width, height = np.ptp(track.x), np.ptp(track.y)
    if max(width, height) < MIN_TRAVEL:
        return "unclear"
    if min(width, height) >= MIN_ASPECT * max(width, height):
        if _turn(track) >= MIN_TURN:
            return "orbits"
    elif height > width and np.abs(np.diff(track.y)).sum() >= MIN_RETURN * height:
        return "bounces"
    return "unclear"


def _hue(rgb: NDArray[np.floating]) -> Floats:
    """Hue in turns from -0.5 to 0.5; meaningless for grey."""
    red, green, blue = np.asarray(rgb, np.float64).T
    return np.asarray(np.arctan2(np.sqrt(3.0) * (green - blue), 2 * red - green - blue) / (2 * np.pi))


def largest_blobs(mask: Mask) -> Mask:
    """The largest connected blob of at least `MIN_PIXELS` of each frame."""
    kept = np.zeros_like(mask)
    for index, frame in enumerate(mask):
        labels, _ = ndimage.label(frame)
        sizes = np.bincount(labels.ravel())[1:]
        if sizes.size and sizes.max() >= MIN_PIXELS:
            kept[index] = labels == sizes.argmax() + 1
    return kept


def near(mask: Mask) -> Mask:
    """The mask, widened by two pixels in each frame."""
    # A square is its row and its column in turn, which takes less time.
    return np.asarray(ndimage.binary_dilation(ndimage.binary_dilation(mask, np.ones((1, 1, 5))), np.ones((1, 5, 1))))


def _track(blobs: Mask, others: Mask) -> Track:
    frames, height, width = blobs.shape
    seen = np.flatnonzero(blobs.any(axis=(1, 2)))
    centres = np.array([ndimage.center_of_mass(blobs[index]) for index in seen])
    touched = np.any(near(blobs) & others, axis=(1, 2))[seen]
    return Track(
        time=seen / (frames - 1),
        x=(centres[:, 1] + 0.5) / width,
        y=(centres[:, 0] + 0.5) / height,
        columns=_edges(np.any(blobs[seen], axis=1)),
        rows=_edges(np.any(blobs[seen], axis=2)),
        weight=np.where(touched, TOUCHED_WEIGHT, 1.0),
    )


def _edges(shadows: Mask) -> Floats:
    """First and last edge of an object along a side, `(frames, 2)`, as shares; each frame must show it."""
    side = shadows.shape[1]
    return np.stack([shadows.argmax(axis=1), side - shadows[:, ::-1].argmax(axis=1)], axis=1) / side


def _line(track: Track, values: Floats) -> tuple[float, float]:
    """Change over the clip of a line fitted to `values` `(seen,)`, and their root mean square distance from it."""
    line = np.polyfit(track.time, values, 1, w=np.sqrt(track.weight))
    squares = (values - np.polyval(line, track.time)) ** 2
    return float(line[0]), float(np.sqrt(np.average(squares, weights=track.weight)))


def _direction(track: Track) -> str:
    """The key of `DIRECTIONS`, such as "moves left", for a straight path along an axis; "" for any other path."""
    dx, stray_x = _line(track, track.x)
    dy, stray_y = _line(track, track.y)
    travel = np.hypot(dx, dy)
    if travel >= MIN_TRAVEL and np.hypot(stray_x, stray_y) <= MAX_STRAY * travel:
        for motion, (sign_x, sign_y) in DIRECTIONS.items():
            # The centre of an object that another one gradually hides travels, too, but not both of its edges.
            edges = track.columns if sign_x else track.rows
            follow = min(_line(track, edge)[0] * (sign_x + sign_y) for edge in edges.T)
            if dx * sign_x + dy * sign_y >= MIN_ALONG * travel and follow >= 0:
                return motion
    return ""


def _changed_pixels(blobs: Mask, mask: Mask, others: Mask) -> tuple[float, float]:
    """Shares of the object's pixels that it newly covers and newly frees; 1 for an object too small to tell.

    Only the first is large if it grows, only the second if it shrinks: pixels near another object do not count as free.
    """
    free = ~mask & ~near(others)
    taken = np.any(np.logical_or.accumulate(free) & blobs, axis=0)
    freed = np.any(np.logical_or.accumulate(blobs) & free, axis=0)
    place = ndimage.binary_erosion(blobs.any(axis=0), np.ones((3, 3)))  # an outline may flicker
    if not place.any():
        return 1.0, 1.0
    return float(taken[place].mean()), float(freed[place].mean())


def _turn(track: Track) -> float:
    """Angle in radians, at least 0, that the track turns through around the circle that fits it best."""
    # The circle (x - a)^2 + (y - b)^2 = r^2 is linear in a, b and r^2 - a^2 - b^2: x^2 + y^2 = 2 a x + 2 b y + (...).
    root = np.sqrt(track.weight)
    design = np.stack([2 * track.x, 2 * track.y, np.ones_like(track.x)], axis=1)
    x, y, _ = np.linalg.lstsq(design * root[:, None], (track.x**2 + track.y**2) * root, rcond=None)[0]
    angle = np.unwrap(np.arctan2(track.y - y, track.x - x))
    return float(abs(angle[-1] - angle[0]))
