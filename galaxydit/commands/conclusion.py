"""How a long command ends: what it made, what that means in one sentence, and the next command, ready to paste."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console

from galaxydit.commands.console import show
from galaxydit.foreign_text import printable

PROGRAM = "galaxydit"


@dataclass(frozen=True)
class NextCommand:
    """A command to run next: `purpose` completes "To ..."; `arguments` are those of `galaxydit`."""

    purpose: str
    arguments: Sequence[object]

    @property
    def line(self) -> str:
        """The command in one line, quoted for a POSIX shell."""
        return printable(shlex.join([PROGRAM, *map(str, self.arguments)]))


def conclude(made: Iterable[object], meaning: str, *following: NextCommand) -> None:
    """Print the paths in `made`, the sentence `meaning`, and each next command in a line that is never broken."""
    console = Console()
    if files := [f"  {each}" for each in made]:
        show("Made:", *files, console=console)
    show(meaning, console=console)
    for command in following:
        show(f"To {command.purpose}:", console=console)
        style = "bold" if console.is_terminal and not console.no_color else None
        console.print(f"  {command.line}", style=style, markup=False, highlight=False, soft_wrap=True)


def model_arguments(source: object) -> list[str]:
    """The options of `options.ModelOptions` that the user gave, for a command on the same model."""
    given = {name: value for name, value in vars(source).items() if value not in (None, False, "none")}
    arguments: list[str] = []
    for name, value in given.items():
        option = f"--{name.replace('_', '-')}"
        arguments += [option] if value is True else [option, str(value)]
    return arguments


def size_arguments(sizes: object) -> list[str]:
    """The options of `options.Sizes` that the user gave, for a command that makes videos of the same size."""
    names = {"num_frames": "frames", "guidance_scale": "guidance"}
    arguments: list[str] = []
    for name, value in vars(sizes).items():
        if value is not None:
            option = f"--{names.get(name, name).replace('_', '-')}"
            arguments += [option, f"{value:g}" if isinstance(value, float) else str(value)]
    return arguments
