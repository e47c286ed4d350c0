"""Prompts of a command: a text file, or for the embedded model (wan-tiny) a number of captions not used in training."""

import re
from collections.abc import Container
from pathlib import Path
from typing import Annotated

import typer

from galaxydit.calibration.prompt_files import WAN_TINY_PROMPTS, read_prompts
from galaxydit.commands.console import say
from galaxydit.errors import refusal

WITH_CAPTIONS = "wan-tiny"  # the model whose unseen captions can be drawn
MOST_CAPTIONS = 10_000
Prompts = Annotated[str, typer.Option(help="A file, one prompt a line; for wan-tiny also a number of unseen captions.")]


def calibration_prompts(given: Path | None, model: str, option: str) -> tuple[str, ...]:
    """The prompts of the text file `given`; if it is None, the embedded model's captions for calibration and tuning.

    No comparison scores these captions. `model` is the name of the model, `option` the command line option that errors
    name. Raises typer.BadParameter if `given` is None and `model` is not the embedded model, GalaxyDiTError for a file
    that cannot be read.
    """
    if given is None and model != WITH_CAPTIONS:
        raise typer.BadParameter("is needed for this model: pass a text file, one prompt a line", param_hint=option)
    return _read(given or WAN_TINY_PROMPTS, option)


def read_or_draw_prompts(given: str, model: str, reserved: tuple[str, ...]) -> tuple[str, ...]:
    """The prompts of the text file `given`; for the embedded model, a number `given` draws that many unseen captions.

    The captions are none of `reserved`. Raises GalaxyDiTError for a number that is too large and for a file that cannot
    be read.
    """
    if model != WITH_CAPTIONS or not given.isdecimal():
        return _read(Path(given), "--prompts")
    if not 0 < int(given) <= MOST_CAPTIONS:
        expected = f"a text file, or a number from 1 to {MOST_CAPTIONS}"
        raise refusal("--prompts", int(given), expected, "pass for example 32")
    from galaxydit.pipelines.wan_tiny.world import draw_prompts

    return tuple(draw_prompts(int(given), seed=0, apart_from=reserved))


def _read(path: Path, option: str) -> tuple[str, ...]:
    try:
        if path.exists() and not path.is_file():  # a pipe that nobody writes to would be waited for without end
            raise refusal(option, str(path), "a text file", "save the prompts in a file, one a line")
        return tuple(read_prompts(path, option))
    except OSError as error:
        expected = f"a text file that can be read ({error.strerror})"
        raise refusal(option, str(path), expected, "pass an existing one, with one prompt a line") from error


def warn_of_unknown_words(prompt: str, known: Container[str]) -> None:
    """Warn on stderr of words in a caption that are not among `known`, the vocabulary of the embedded model."""
    if unknown := ", ".join(word for word in re.findall(r"\w+", prompt.lower()) if word not in known):
        example = "a red ball moves left over a plain background"
        say(f"warning: {WITH_CAPTIONS} does not know {unknown}; it knows captions like '{example}'", "yellow")
