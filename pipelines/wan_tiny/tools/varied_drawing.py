"""Clips of the varied world: captions of world.py, with contrast, motion, brightness and texture drawn for each clip.

No property depends on the background's word, because guidance would drive a property that follows a word to its
extreme. Clips are made of cells as in drawing.py. Objects are larger than there, and symmetric, because their outlines
lie on the borders of cells.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from galaxydit.pipelines.wan_tiny.tools import drawing
from galaxydit.pipelines.wan_tiny.tools.dead_leaves import draw_background
from galaxydit.pipelines.wan_tiny.world import COLOURS, DIRECTIONS, Scene, draw_scene

BACKGROUND_CONTRAST = (0.12, 0.7)  # range of the tones / that of drawing.py
OBJECT_CONTRAST = (0.7, 1.1)  # distance of an object's colour from grey / that of `COLOURS`
LARGEST_SHIFT = 0.15  # of a background's brightness
STILL_SHARE = 0.25  # of clips whose background stands still
BACKGROUND_SPEED = (0.25, 2.0)  # of those that move, / that of drawing.py
OBJECT_SPEED = (0.75, 1.25)  # a slower object does not travel `MIN_TRAVEL` of detect.py
TEXTURE_SCALE = (0.9, 2.0)  # radii of leaves / those of drawing.py
LARGEST_RUSTLING = 0.25  # share of rustling leaves / that of drawing.py
OBJECT_SIZE = 1.3  # radii of objects / those of drawing.py
SMALLEST_SIZE = 4  # cells; a ball of 3 would be a square
CELLS = drawing.WIDTH // drawing.CELL  # of a frame's side

MIN_VISIBLE = 0.6  # share of an object's cells in a pose that shows it clearly
MIN_CLEAR_POSES = 4  # of `drawing.POSES`, for a moving object; one less for a still one, which another one passes
DRAWS = 200

Array = NDArray[np.float32]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Variation:
    """Properties of one clip, relative to drawing.py, where they are 1 and `brightness` is 0."""

    background_contrast: float
    object_contrast: float
    brightness: float
    background_speed: float
    texture_scale: float
    rustling: float


def draw_variation(rng: np.random.Generator) -> Variation:
    """A random variation; speeds, scales and the background's contrast are uniform in their logarithm."""
    is_still = rng.random() < STILL_SHARE
    speed = _log_uniform(rng, BACKGROUND_SPEED)
    return Variation(
        background_contrast=_log_uniform(rng, BACKGROUND_CONTRAST),
        object_contrast=rng.uniform(*OBJECT_CONTRAST),
        brightness=rng.uniform(-LARGEST_SHIFT, LARGEST_SHIFT),
        background_speed=0.0 if is_still else speed,
        texture_scale=_log_uniform(rng, TEXTURE_SCALE),
        rustling=rng.uniform(0.0, LARGEST_RUSTLING),
    )


def _log_uniform(rng: np.random.Generator, limits: tuple[float, float]) -> float:
    return float(np.exp(rng.uniform(*np.log(limits))))


def render(scene: Scene, variation: Variation, rng: np.random.Generator) -> Array:
    """A clip of the scene, `(frames, height, width, 3)` in [0, 1]; `rng` draws places, sizes and leaves."""
    cells = draw_background(
        scene.background,
        drawing.POSES,
        CELLS,
        CELLS,
        rng,
        scale=variation.texture_scale,
        speed=variation.background_speed,
        rustling=0.0 if variation.background_speed == 0 else variation.rustling,
    )
    cells = 0.5 + variation.brightness + variation.background_contrast * (cells - 0.5)
    masks = _draw_objects(scene, rng)
    for clause, mask in reversed(list(zip(scene.objects, masks, strict=True))):
        cells[mask] = 0.5 + variation.object_contrast * (np.array(COLOURS[clause.colour]) - 0.5)
    frames = np.clip(cells, 0.0, 1.0)[drawing.POSE_OF_FRAME]
    return frames.repeat(drawing.CELL, axis=1).repeat(drawing.CELL, axis=2)


def _draw_objects(scene: Scene, rng: np.random.Generator) -> list[Mask]:
    """Cells of each object, `(poses, height, width)`, drawn anew until all objects are clear, up to `DRAWS` times."""
    for _ in range(DRAWS):
        speed = _log_uniform(rng, OBJECT_SPEED)
        paths = [_object_path(clause.motion, speed, rng) for clause in scene.objects]
        if len(paths) == 2 and not scene.objects[1].motion:
            paths[1] = drawing.still_behind(paths[0], rng)
        masks = []
        is_clear = True
        hidden = np.zeros((drawing.POSES, CELLS, CELLS), bool)  # by the objects in front
        for clause, path in zip(scene.objects, paths, strict=True):
            stamps = [shape_stamp(clause.shape, _size(clause.shape, radius)) for radius in path[:, 2]]
            mask = np.stack([_place(stamp, x, y) for stamp, (x, y, _) in zip(stamps, path, strict=True)])
            visible = (mask & ~hidden).sum(axis=(1, 2)) / [stamp.sum() for stamp in stamps]
            is_clear &= (visible >= MIN_VISIBLE).sum() >= (MIN_CLEAR_POSES if clause.motion else MIN_CLEAR_POSES - 1)
            hidden |= mask
            masks.append(mask)
        if is_clear:
            break
    return masks


def _object_path(motion: str, speed: float, rng: np.random.Generator) -> Array:
    """Centre x, centre y and radius as `drawing.object_path` returns; straight paths are `speed` times as long."""
    path = drawing.object_path(motion, rng)
    path[:, 2] *= OBJECT_SIZE
    if motion in DIRECTIONS:
        middle = path[:, :2].mean(axis=0)
        path[:, :2] = middle + speed * (path[:, :2] - middle)
    return path


def _size(shape: str, radius: float) -> int:
    """Width of an object in cells."""
    size = max(SMALLEST_SIZE, round(2 * radius * CELLS))
    if shape == "triangle":
        size += 1 - size % 2  # an odd width, so that the apex is one cell
    return size


def shape_stamp(shape: str, size: int) -> Mask:
    """An object of `size` cells as `(size, size)` cells; a triangle has an odd size."""
    offset = np.arange(size) - (size - 1) / 2
    if shape == "ball":
        return np.asarray(np.hypot(offset[:, None], offset) <= size / 2)
    if shape == "square":
        return np.ones((size, size), bool)
    row = np.arange(size)[:, None]
    half_width = row * (size - 1) / 2 / (size - 2)  # the last row but one is the widest
    return np.asarray((np.abs(offset) <= half_width + 0.5) & (row < size - 1))


def _place(stamp: Mask, x: float, y: float) -> Mask:
    """The frame's cells `(height, width)` that an object covers, with its outline moved to the nearest cell borders."""
    size = len(stamp)
    left, top = round(x * CELLS - size / 2), round(y * CELLS - size / 2)
    # The canvas is three frames wide, because an object may lie partly outside the frame.
    canvas = np.zeros((3 * CELLS, 3 * CELLS), bool)
    canvas[CELLS + top : CELLS + top + size, CELLS + left : CELLS + left + size] = stamp
    return canvas[CELLS : 2 * CELLS, CELLS : 2 * CELLS]


def draw_clip(index: int, seed: int, *, held_out: bool = False) -> tuple[str, Array]:
    """Caption and frames `(frames, height, width, 3)` in [0, 1] of clip `index`, the same on every machine."""
    rng = np.random.default_rng([seed, index, int(held_out), 2])  # drawing.py draws without the 2
    scene = draw_scene(rng, held_out=held_out, shares=drawing.PROMPT_SHARES if held_out else drawing.TRAINING_SHARES)
    return scene.caption, render(scene, draw_variation(rng), rng)
