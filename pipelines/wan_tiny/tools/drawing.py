"""Clips of wan-tiny's synthetic world, drawn for the captions of world.py as pixel art.

A clip is drawn in cells of `CELL` pixels a side, and poses shown for `FRAMES_PER_POSE` frames, the first for one.
"""

import numpy as np
from numpy.typing import NDArray

from galaxydit.pipelines.wan_tiny.tools.dead_leaves import draw_background
from galaxydit.pipelines.wan_tiny.world import COLOURS, DIRECTIONS, PROMPT_SHARES, Scene, draw_scene

HEIGHT, WIDTH, FRAMES = 64, 64, 9
CELL = 4  # pixels of a side: one position of the latent
FRAMES_PER_POSE = 2
POSES = 1 + (FRAMES - 1) // FRAMES_PER_POSE
POSE_OF_FRAME = -(-np.arange(FRAMES) // FRAMES_PER_POSE)
TRAINING_SHARES = (0.25, 0.4, 0.15, 0.2)  # of `KINDS` of scene; training shows more scenes of several objects

Array = NDArray[np.float32]


def render(scene: Scene, rng: np.random.Generator) -> Array:
    """A clip of the scene, `(frames, height, width, 3)` in [0, 1]; `rng` draws places, sizes and speeds."""
    height, width = HEIGHT // CELL, WIDTH // CELL
    xs: Array = np.tile(((np.arange(width) + 0.5) / width).astype(np.float32), (height, 1))
    ys: Array = np.tile(((np.arange(height) + 0.5) / height).astype(np.float32)[:, None], (1, width))
    cells = draw_background(scene.background, POSES, height, width, rng)
    paths = [object_path(clause.motion, rng) for clause in scene.objects]
    if len(paths) == 2 and not scene.objects[1].motion:
        paths[1] = still_behind(paths[0], rng)
    for clause, path in reversed(list(zip(scene.objects, paths, strict=True))):
        x, y, radius = path.T[:, :, None, None]
        inside = is_inside(clause.shape, (xs - x) / radius, (ys - y) / radius)
        cells[inside] = np.array(COLOURS[clause.colour]) * rng.uniform(0.92, 1.05)
    return np.clip(cells, 0.0, 1.0)[POSE_OF_FRAME].repeat(CELL, axis=1).repeat(CELL, axis=2)


def object_path(motion: str, rng: np.random.Generator) -> Array:
    """Centre x, centre y and radius, `(poses, 3)`, as shares of the frame's side; y points down."""
    t = np.linspace(0.0, 1.0, POSES)
    radius = np.full(POSES, rng.uniform(0.13, 0.2))
    x, y = np.full(POSES, rng.uniform(0.2, 0.8)), np.full(POSES, rng.uniform(0.2, 0.8))
    if motion in DIRECTIONS:
        dx, dy = DIRECTIONS[motion]
        way = rng.uniform(0.4, 0.65)
        middle = rng.uniform(0.5 - (0.7 - way) / 2, 0.5 + (0.7 - way) / 2)
        shift = middle + way * (t - 0.5) * (dx + dy)
        x, y = (shift, y) if dx else (x, shift)
    elif motion == "orbits":
        turn = rng.uniform(0, 2 * np.pi) + rng.choice([-1, 1]) * 2 * np.pi * rng.uniform(0.7, 1.2) * t
        reach = rng.uniform(0.16, 0.26)
        x, y = rng.uniform(0.4, 0.6) + reach * np.cos(turn), rng.uniform(0.4, 0.6) + reach * np.sin(turn)
    elif motion == "bounces":
        height = rng.uniform(0.3, 0.5)
        y = rng.uniform(0.72, 0.82) - height * np.abs(np.sin(np.pi * (rng.uniform(0, 1) + rng.uniform(1.2, 2.0) * t)))
    elif motion in ("grows", "shrinks"):
        radius = rng.uniform(0.07, 0.1) + rng.uniform(0.12, 0.18) * (t if motion == "grows" else 1 - t)
        x, y = np.full(POSES, rng.uniform(0.3, 0.7)), np.full(POSES, rng.uniform(0.3, 0.7))
    return np.stack([x, y, radius], axis=1).astype(np.float32)


def still_behind(front: Array, rng: np.random.Generator) -> Array:
    """Path of a still object somewhere along the path `front`."""
    place = front[int(rng.integers(POSES // 3, POSES - POSES // 3))]
    offset = rng.uniform(-0.05, 0.05, 2)
    still = np.array([place[0] + offset[0], place[1] + offset[1], rng.uniform(0.15, 0.22)])
    return np.repeat(still[None], POSES, axis=0).astype(np.float32)


def is_inside(shape: str, dx: Array, dy: Array) -> NDArray[np.bool_]:
    """Whether cells lie in an object, by their distances from its centre in radii."""
    if shape == "ball":
        return np.asarray(dx**2 + dy**2 <= 1.0)
    if shape == "square":
        return np.asarray(np.maximum(np.abs(dx), np.abs(dy)) <= 0.88)
    return np.asarray(np.maximum(0.9 * np.abs(dx) - 0.45 * (dy + 1.0), dy - 0.8) <= 0.0)


def draw_clip(index: int, seed: int, *, held_out: bool = False) -> tuple[str, Array]:
    """Caption and frames `(frames, height, width, 3)` in [0, 1] of clip `index`, the same on every machine."""
    rng = np.random.default_rng([seed, index, int(held_out)])
    scene = draw_scene(rng, held_out=held_out, shares=PROMPT_SHARES if held_out else TRAINING_SHARES)
    return scene.caption, render(scene, rng)
