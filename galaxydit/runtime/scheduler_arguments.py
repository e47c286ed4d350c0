"""Check the schedulers that a user names."""

from collections.abc import Sequence
from typing import Any

from galaxydit.errors import refusal
from galaxydit.families import Family

CURE = "pass for example pipe.scheduler"


def check_schedulers(scheduler: Any | None, schedulers: Sequence[Any]) -> None:
    """Raise GalaxyDiTError unless these are schedulers, or tuples of different ones."""
    if not isinstance(schedulers, Sequence):
        raise refusal("schedulers", schedulers, "a list of schedulers", "pass for example [other_pipe.scheduler]")
    if scheduler is not None:
        _check("scheduler", scheduler)
    for given in schedulers:
        _check("schedulers", given)


def check_outputs(given: Sequence[Any], family: Family) -> None:
    """Raise GalaxyDiTError unless each tuple has a scheduler for each output of the family's transformers."""
    names = tuple(stream.scheduler for stream in family.streams)
    for group in given:
        if isinstance(group, tuple) and len(group) != len(names):
            classes = [type(scheduler).__name__ for scheduler in group]
            if len(names) == 1:
                expected = f"one scheduler, because {family.name} has one output"
            else:
                expected = f"one scheduler for each output of {family.name}, or a single one for all"
            raise refusal("scheduler", classes, expected, f"pass ({', '.join(names)},)")


def _check(name: str, given: Any) -> None:
    if not isinstance(given, tuple):
        _check_one(name, given)
        return
    for scheduler in given:
        _check_one(name, scheduler)
    if len({id(scheduler) for scheduler in given}) < len(given) or not given:
        expected = "different objects, because each scheduler counts its own steps"
        raise refusal(name, given, expected, "pass a single scheduler, or a copy.deepcopy of it for the second output")


def _check_one(name: str, given: Any) -> None:
    is_scheduler = hasattr(given, "timesteps") or hasattr(given, "set_timesteps")
    if isinstance(given, type) or not is_scheduler:
        raise refusal(name, given, "an instance of a diffusers scheduler", CURE)
