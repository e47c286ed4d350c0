"""Prompts of a command: a text file, or for the embedded model (wan-tiny) a number of captions not used in training."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from galaxydit.calibration.prompt_files import WAN_TINY_PROMPTS, read_prompts
from galaxydit.commands.console import say
from galaxydit.errors import refusal
from galaxydit.pipelines.model_names import EMBEDDED, EXAMPLE_CAPTION

WITH_CAPTIONS = "wan-tiny"  # the model whose unseen captions can be drawn
MOST_CAPTIONS = 10_000
SHOWN_WORDS = 10
# Literals, because `world.py` imports NumPy; a test compares them.
KNOWN_WORDS = "the colours red, yellow, green, cyan, blue and magenta, the shapes ball, square and triangle"
HELP = "A file, one prompt a line, or a number: of the 10 built-in prompts, for wan-tiny of unseen captions."
Prompts = Annotated[str, typer.Option(help=HELP)]


def calibration_prompts(given: Path | None, model: str, option: str) -> tuple[str, ...]:
    """The prompts of a file; without one, the embedded model's captions for calibration and tuning, which nothing
    scores. Raises an error that names `option` for an unreadable file, and without a file for another model."""
    if given is None and model != WITH_CAPTIONS:
        raise typer.BadParameter("is needed for this model: pass a text file, one prompt a line", param_hint=option)
    return _read(given or WAN_TINY_PROMPTS, option, model)


def read_or_draw_prompts(given: str, model: str, reserved: tuple[str, ...]) -> tuple[str, ...]:
    """The prompts of a file, or a number of built-in ones: of the embedded model unseen captions, none `reserved`."""
    if not given.isdecimal():
        return _read(Path(given), "--prompts", model)
    from galaxydit.eval.validate.validation_job import validation_prompts
    from galaxydit.pipelines.wan_tiny.world import draw_prompts

    most = MOST_CAPTIONS if model == WITH_CAPTIONS else len(validation_prompts())
    if not 0 < int(given) <= most:
        raise refusal("--prompts", int(given), f"a text file, or a number from 1 to {most}", "pass for example 8")
    if model != WITH_CAPTIONS:
        return validation_prompts()[: int(given)]
    return tuple(draw_prompts(int(given), seed=0, apart_from=reserved))


def _read(path: Path, option: str, model: str) -> tuple[str, ...]:
    try:
        if path.exists() and not path.is_file():  # a pipe that nobody writes to would be waited for without end
            raise refusal(option, str(path), "a text file", "save the prompts in a file, one a line")
        prompts = tuple(read_prompts(path, option))
    except OSError as error:
        expected = f"a text file that can be read ({error.strerror})"
        raise refusal(option, str(path), expected, "pass an existing one, with one prompt a line") from error
    warn_of_unknown_words(model, prompts)
    return prompts


def warn_of_unknown_words(model: str, prompts: Iterable[str]) -> None:
    """Warn on stderr of words in captions that are not in the vocabulary of the embedded model, if `model` names it."""
    if model != WITH_CAPTIONS:
        return
    known = json.loads((EMBEDDED[model] / "tokenizer" / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    words = dict.fromkeys(word for prompt in prompts for word in re.findall(r"\w+", prompt.lower()))
    if unknown := [word for word in words if word not in known]:
        more = f" and {len(unknown) - SHOWN_WORDS} more words" if len(unknown) > SHOWN_WORDS else ""
        listed = ", ".join(unknown[:SHOWN_WORDS])
        knows = f"it knows {KNOWN_WORDS}, and captions like '{EXAMPLE_CAPTION}'"
        say(f"warning: {model} does not know {listed}{more}; {knows}", "yellow")
