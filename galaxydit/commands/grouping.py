"""How typer reads a command: groups of options as dataclasses, paths of options, and --ray without an address."""

import os
import re
from collections.abc import Callable
from copy import copy
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, get_annotations, signature
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from typer.models import OptionInfo

from galaxydit.commands.help_sections import SectionedCommand
from galaxydit.errors import refusal
from galaxydit.files import check_file_kind

ADDRESS = re.compile(r"auto|local|ray://.+|[\w.-]+:\d+")
FILE_NAMES = ("out", "model", "base", "lora", "lora_2", "profile")  # options whose text may name a file
PIPED = ("recorded", "table")  # options whose file is read once
SAID_ELSEWHERE = ("job", "prompts", "calibration")  # readers of these refuse all but files, and say what they hold


class RayCommand(SectionedCommand):
    """A command whose --ray may stand without an address."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put "local" behind a --ray that no address follows."""
        given: list[str] = []
        for index, argument in enumerate(args):
            given.append(argument)
            if argument == "--ray" and not ADDRESS.fullmatch("".join(args[index + 1 : index + 2])):
                given.append("local")
        return super().parse_args(ctx, given)


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer reads it: a parameter whose type is a dataclass becomes an option for each of its fields."""
    groups: dict[str, type] = {}
    options: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        kind = parameter.annotation
        if isinstance(kind, type) and is_dataclass(kind):
            groups[name] = kind
            options += [_in_section(kind, each) for each in signature(kind).parameters.values()]
        else:
            options.append(parameter)

    @wraps(command)
    def run(**given: Any) -> None:
        given = {name: _checked_path(name, value) for name, value in given.items()}
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        command(**given)

    run.__signature__ = Signature(options)  # type: ignore[attr-defined]
    return run


def _in_section(group: type, parameter: Parameter) -> Parameter:
    """The parameter of a field as an option in the help section that the class which declares the field names."""
    parameter = parameter.replace(kind=Parameter.KEYWORD_ONLY)
    declaring = next(each for each in reversed(group.__mro__) if parameter.name in get_annotations(each))
    section, hint = getattr(declaring, "section", None), parameter.annotation
    if section is None or get_origin(hint) is not Annotated:
        return parameter
    kind, *details = get_args(hint)
    for index, detail in enumerate(details):
        if isinstance(detail, OptionInfo):
            details[index] = copy(detail)  # several commands share it
            details[index].rich_help_panel = section
    return parameter.replace(annotation=Annotated[kind, *details])


def _checked_path(name: str, value: Any) -> Any:
    """`value`; of an option that names files with the home folder in place of `~`, which shells leave in --out=~/x.

    fsspec replaces the `~`, too. Raises GalaxyDiTError without a home folder, and for FIFOs, sockets and devices.
    """
    if isinstance(value, list):
        return [_checked_path(name, each) for each in value]
    is_file = isinstance(value, Path) or (name in FILE_NAMES and isinstance(value, str))
    if not is_file:
        return value
    option = f"--{name.replace('_', '-')}"
    if isinstance(value, Path) or name == "out":  # of some commands an address
        full = os.path.expanduser(value)
        if full == str(value) and full.split("/")[0] == "~":
            raise refusal(option, full, "a path without ~, because this user has no home folder", "set HOME")
        value = type(value)(full)
    if name not in SAID_ELSEWHERE:
        check_file_kind(option, value, may_be_piped=name in PIPED)
    return value
