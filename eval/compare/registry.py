"""Every method of the arena, and the choice among them by name."""

from collections.abc import Sequence
from pathlib import Path

from galaxydit.eval.arena import (
    ablations,
    attention_caches,
    cache_dit_methods,
    diffusers_caches,
    own,
    plain_methods,
    policies,
)
from galaxydit.eval.arena.method import Method
from galaxydit.eval.arena.searched import GENERATIONS, searched_methods

ALL = "all"
ABLATIONS = "ablations"


def every_method(
    speedups: Sequence[float], search_generations: int = GENERATIONS, kept: Path | None = None
) -> tuple[Method, ...]:
    """All methods in the order in which they run: controls, those of others, this project's, its ablations.

    The searched schedule is searched for the wanted speedups; `kept` is the folder for its scores.
    """
    return (
        *plain_methods.METHODS,
        *searched_methods(speedups, search_generations, kept),
        *diffusers_caches.METHODS,
        *attention_caches.METHODS,
        *cache_dit_methods.METHODS,
        *policies.METHODS,
        *own.METHODS,
        *ablations.METHODS,
    )


def choose_methods(names: Sequence[str], methods: Sequence[Method]) -> tuple[Method, ...]:
    """The methods of these names, in the arena's order.

    "all" means all whose packages are installed, but for the ablations, which have a word of their own: "ablations".
    Raises ValueError for a name that there is not, and for a method whose package is missing.
    """
    known = {method.name: method for method in methods}
    unknown = [name for name in names if name not in known and name not in (ALL, ABLATIONS)]
    if unknown or not names:
        given = ", ".join(repr(name) for name in unknown) or "empty"
        raise ValueError(f"methods is {given}, allowed are {ALL}, {ABLATIONS} or some of: {'; '.join(known)}")
    missing = [known[name] for name in names if name in known and not known[name].is_available]
    if missing:
        raise ValueError(
            f"method {missing[0].name!r} needs {missing[0].needs}, which is not installed: "
            "pip install 'galaxydit[bench]', or leave the method out"
        )

    def is_chosen(method: Method) -> bool:
        group = ABLATIONS if method.source == ablations.SOURCE else ALL
        return method.name in names or (group in names and method.is_available)

    return tuple(method for method in methods if is_chosen(method))
