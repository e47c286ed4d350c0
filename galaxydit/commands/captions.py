"""Prompts of a command: a text file, or for the embedded model a number of captions that training never showed."""

from pathlib import Path

import typer

WITH_CAPTIONS = "wan-tiny"
"""The model whose unseen captions can be drawn."""


def reserved_captions() -> Path:
    """The file of captions that calibration and tuning may use, so that no result is scored on them."""
    import galaxydit.calibration

    return Path(galaxydit.calibration.__file__).parent / "prompts" / f"{WITH_CAPTIONS}.txt"


def read_or_draw_prompts(given: str, model: str, reserved: tuple[str, ...]) -> tuple[str, ...]:
    """The prompts of a text file, or `given` unseen captions that are not reserved.

    Raises typer.BadParameter for a number with another model, and for a file that does not exist.
    """
    from galaxydit.calibration import read_prompts

    if given.isdigit() and int(given) > 0:
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
    return tuple(read_prompts(Path(given)))
