"""`--help` in sections: options by what they are about, commands by what they are for.

The text is plain. It takes no import, breaks no word in a narrow terminal, and has no escape codes in a pipe; typer's
panels, which draw boxes, have none of these.
"""

from collections.abc import Iterable
from typing import Any

from typer.core import TyperCommand, TyperGroup

ARGUMENTS, OPTIONS, COMMANDS = "Arguments", "Options", "Commands"
LONGEST = 400  # characters of a command's line, more than any first sentence


def write_sections(formatter: Any, rows: Iterable[tuple[str, tuple[str, str]]], first: Iterable[str]) -> None:
    """Write (section, row) pairs: the sections `first`, then the others in the order of their first rows."""
    sections: dict[str, list[tuple[str, str]]] = {name: [] for name in first}
    for name, row in rows:
        sections.setdefault(name, []).append(row)
    for name, lines in sections.items():
        if lines:
            with formatter.section(name):
                formatter.write_dl(lines)


def parameter_rows(command: Any, ctx: Any) -> Iterable[tuple[str, tuple[str, str]]]:
    """Section and help of each argument and option that is not hidden."""
    for parameter in command.get_params(ctx):
        row = parameter.get_help_record(ctx)
        if row is not None:
            own = ARGUMENTS if parameter.param_type_name == "argument" else OPTIONS
            yield parameter.rich_help_panel or own, row


class SectionedCommand(TyperCommand):
    """A command whose help has its own options first, then each group of shared options."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        write_sections(formatter, parameter_rows(self, ctx), (ARGUMENTS, OPTIONS))


class SectionedGroup(TyperGroup):
    """A group whose help lists its commands by purpose, in the order in which they were added."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        self.format_commands(ctx, formatter)
        write_sections(formatter, parameter_rows(self, ctx), (ARGUMENTS, OPTIONS))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        commands = ((name, self.commands[name]) for name in self.list_commands(ctx))
        rows = (
            (getattr(command, "rich_help_panel", None) or COMMANDS, (name, command.get_short_help_str(LONGEST)))
            for name, command in commands
            if not command.hidden
        )
        write_sections(formatter, rows, ())
