"""The captions of wan-tiny's synthetic world, such as "a red ball moves left over a plain background"."""

import hashlib
import re
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

COLOURS: dict[str, tuple[float, float, float]] = {
    "red": (0.92, 0.12, 0.12),
    "yellow": (0.93, 0.87, 0.10),
    "green": (0.12, 0.78, 0.15),
    "cyan": (0.10, 0.82, 0.86),
    "blue": (0.13, 0.20, 0.95),
    "magenta": (0.90, 0.13, 0.85),
}
SHAPES = ("ball", "square", "triangle")
DIRECTIONS = {"moves left": (-1.0, 0.0), "moves right": (1.0, 0.0), "moves up": (0.0, -1.0), "moves down": (0.0, 1.0)}
MOTIONS = (*DIRECTIONS, "orbits", "bounces", "grows", "shrinks")
CLAUSE = re.compile(
    f"a (?P<colour>{'|'.join(COLOURS)}) (?P<shape>{'|'.join(SHAPES)})( (?P<motion>{'|'.join(MOTIONS)}))?"
)
BACKGROUNDS = ("plain", "striped", "dotted", "cloudy")

KINDS = {"one": 1, "two": 2, "occlusion": 2, "three": 3}  # of scene, with their number of objects
PROMPT_SHARES = (0.65, 0.2, 0.1, 0.05)  # of the kinds of scene among prompts
MAX_OBJECTS = 3


@dataclass(frozen=True)
class Clause:
    """The part of a caption that describes one object; `motion` is "" for a still object behind a moving one."""

    colour: str
    shape: str
    motion: str

    def __str__(self) -> str:
        return f"a {self.colour} {self.shape} {self.motion}".rstrip()


@dataclass(frozen=True)
class Scene:
    """Objects, the first in front of the others, over a background."""

    objects: tuple[Clause, ...]
    background: str

    @property
    def caption(self) -> str:
        names = [str(clause) for clause in self.objects]
        if len(names) == 2 and not self.objects[1].motion:
            text = f"{names[0]} in front of {names[1]}"
        else:
            text = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
        return f"{text} over a {self.background} background"


def parse_caption(caption: str) -> Scene:
    """The scene of a caption. Raises ValueError, naming the words that do not fit."""
    text, separator, background = caption.strip().rpartition(" over a ")
    background = background.removesuffix(" background")
    if not separator or background not in BACKGROUNDS:
        raise ValueError(
            f"caption {caption!r} does not end in 'over a B background' with B one of {', '.join(BACKGROUNDS)}"
        )
    still_after = " in front of " in text
    parts = text.replace(" in front of ", ", ").replace(" and ", ", ").split(", ")
    objects = []
    for position, part in enumerate(parts):
        match = CLAUSE.fullmatch(part)
        if match is None or bool(match["motion"]) == (still_after and position == len(parts) - 1):
            raise ValueError(
                f"caption part {part!r} is not 'a COLOUR SHAPE MOTION' with COLOUR one of {', '.join(COLOURS)}; "
                f"SHAPE one of {', '.join(SHAPES)}; MOTION one of {', '.join(MOTIONS)}"
            )
        objects.append(Clause(match["colour"], match["shape"], match["motion"] or ""))
    if len({clause.colour for clause in objects}) != len(objects):
        raise ValueError(f"caption {caption!r} names a colour twice; colours within one scene must differ")
    scene = Scene(tuple(objects), background)
    if len(objects) > MAX_OBJECTS or scene.caption != caption.strip():
        raise ValueError(
            f"caption {caption!r} joins its parts as the grammar does not; allowed are one to {MAX_OBJECTS} objects, "
            "joined as in 'A', 'A and B', 'A, B and C' or 'A in front of a COLOUR SHAPE'"
        )
    return scene


def is_held_out(caption: str) -> bool:
    """Whether this caption (one in eight, by hash) is kept out of training."""
    return int.from_bytes(hashlib.sha256(caption.encode()).digest()[:4], "big") % 8 == 0


def draw_scene(rng: np.random.Generator, *, held_out: bool = False, shares: tuple[float, ...] = PROMPT_SHARES) -> Scene:
    """A random scene with a training caption or a `held_out` one; `shares` are the probabilities of `KINDS`."""
    while True:
        kind = str(rng.choice(list(KINDS), p=shares))
        colours = rng.permutation(list(COLOURS))[: KINDS[kind]]
        objects = [Clause(str(colour), str(rng.choice(SHAPES)), str(rng.choice(MOTIONS))) for colour in colours]
        if kind == "occlusion":
            objects = [replace(objects[0], motion=str(rng.choice(list(DIRECTIONS)))), replace(objects[1], motion="")]
        scene = Scene(tuple(objects), str(rng.choice(BACKGROUNDS)))
        if is_held_out(scene.caption) == held_out:
            return scene


def draw_prompts(count: int, seed: int, apart_from: Collection[str] = ()) -> list[str]:
    """`count` different random captions, neither used in training nor among `apart_from`; fixed by `seed`."""
    rng = np.random.default_rng([seed, 1])
    prompts: dict[str, None] = {}
    while len(prompts) < count:
        caption = draw_scene(rng, held_out=True).caption
        if caption not in apart_from:
            prompts.setdefault(caption)
    return list(prompts)
