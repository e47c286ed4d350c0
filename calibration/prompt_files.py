"""The prompts of a calibration: read from a file, divided into recorded and held-out ones. Needs no torch."""

from collections.abc import Sequence
from pathlib import Path

from galaxydit.errors import GalaxyDiTError, refusal
from galaxydit.policies.policy import FEW_STEPS

WAN_TINY_PROMPTS = Path(__file__).parent / "prompts" / "wan-tiny.txt"
"""The captions that are reserved for the embedded model's calibration and tuning."""


def read_lines(path: Path) -> list[str]:
    """The lines of a text file that are not blank, without white space at their ends."""
    return [text for line in path.read_text(encoding="utf-8-sig").split("\n") if (text := line.strip())]


def read_prompts(path: Path) -> list[str]:
    """The prompts of a text file with one prompt a line, without empty lines and repetitions.

    Raises GalaxyDiTError for a file without prompts.
    """
    prompts = list(dict.fromkeys(read_lines(path)))
    if not prompts:
        raise GalaxyDiTError(f"prompts={str(path)!r} holds no prompt; write one a line")
    return prompts


def split_prompts(
    prompts: Sequence[str], samples: int, verified_prompts: int, steps: int | None
) -> tuple[list[str], list[str]]:
    """The prompts to record and the held-out prompts, after repetitions in `prompts` are removed.

    The last `verified_prompts` are held out. The first `samples` of the others are recorded, or all if there are fewer.
    `steps` is the number of steps of the generations, None if it is unknown. Raises GalaxyDiTError for fewer than
    `verified_prompts` + 2 different prompts, fewer than 2 samples, or 8 steps or fewer.
    """
    if samples < 2:
        raise refusal("samples", samples, "at least 2", "pass 16")
    if steps is not None and steps <= FEW_STEPS:
        expected = f"more than {FEW_STEPS}, because shorter generations are never reused"
        raise refusal("steps", steps, expected, "pass more steps")
    given = list(dict.fromkeys(prompts))
    if len(given) < verified_prompts + 2:
        raise GalaxyDiTError(
            f"prompts holds {len(given)} different ones, which is not allowed: expected at least "
            f"{verified_prompts + 2}, of which {verified_prompts} are held out for verification; pass more, or verify "
            "on fewer"
        )
    cut = len(given) - verified_prompts
    return given[:cut][:samples], given[cut:]
