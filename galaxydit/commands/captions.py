"""Prompts of a command: a text file, or for the embedded model a number of captions that training never showed."""

import re
from collections.abc import Container
from pathlib import Path
from typing import Annotated

import typer

from galaxydit.calibration.samples import WAN_TINY_PROMPTS, read_prompts
from galaxydit.commands.checks import check_text_file
from galaxydit.commands.console import say

WITH_CAPTIONS = "wan-tiny"
"""The model whose unseen captions can be drawn."""
MOST_CAPTIONS = 10_000
Prompts = Annotated[
    str, typer.Option(help="A text file, one prompt a line; for wan-tiny also a number of unseen captions.")
]


def calibration_prompts(given: Path | None, model: str, option: str) -> list[str]:
    """The prompts of a text file, or the captions that are reserved for the embedded model's calibration and tuning, so
    that no result is scored on them.

    Raises typer.BadParameter if another model is given no file, GalaxyDiTError for a file that cannot be read.
    """
    if given is not None:
        check_text_file(option, given)
    elif model != WITH_CAPTIONS:
        raise typer.BadParameter("is needed for this model: pass a text file, one prompt a line", param_hint=option)
    return read_prompts(given or WAN_TINY_PROMPTS)


def warn_of_unknown_words(prompt: str, known: Container[str]) -> None:
    """Say which words of a caption the embedded model has never seen."""
    if unknown := [word for word in re.findall(r"\w+", prompt.lower()) if word not in known]:
        example = "a red ball moves left over a plain background"
        say(
            f"warning: {WITH_CAPTIONS} does not know {', '.join(unknown)}; it knows captions like '{example}'", "yellow"
        )


def read_or_draw_prompts(given: str, model: str, reserved: tuple[str, ...]) -> tuple[str, ...]:
    """The prompts of a text file, or `given` unseen captions that are not reserved.

    Raises typer.BadParameter for a number with another model and for a file that does not exist, GalaxyDiTError for one
    that cannot be read.
    """
    if given.isdecimal():
        if not 0 < int(given) <= MOST_CAPTIONS:
            raise typer.BadParameter(f"is {given}, allowed are 1 to {MOST_CAPTIONS}", param_hint="--prompts")
        if model != WITH_CAPTIONS:
            raise typer.BadParameter(
                f"is {given}, allowed for this model is a text file, one prompt a line", param_hint="--prompts"
            )
        from galaxydit.pipelines.wan_tiny.world import draw_prompts

        drawn = draw_prompts(int(given) + len(reserved), seed=0)
        return tuple(prompt for prompt in drawn if prompt not in reserved)[: int(given)]
    if not Path(given).is_file():
        raise typer.BadParameter(
            f"is {given!r}, allowed are a number from 1 and an existing text file", param_hint="--prompts"
        )
    check_text_file("--prompts", Path(given))
    return tuple(read_prompts(Path(given)))
