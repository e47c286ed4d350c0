"""The names of all compared methods, read from the syntax of their files, so that listing them needs no torch."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from galaxydit.errors import did_you_mean, listed, refusal

if TYPE_CHECKING:
    from galaxydit.eval.methods.method import Method

ALL, PUBLISHED, ABLATIONS = GROUPS = "all", "published", "ablations"
CONTROL, OWN, ABLATION = "control", "this project", "ablation"  # sources


@dataclass(frozen=True)
class Declaration:
    """A call `method(name, source, ...)` in the file `module` of this folder."""

    name: str
    source: str
    module: str
    tuned: bool = True
    needs: str | None = None

    @property
    def group(self) -> str:
        """ "ablations"; "published" for settings that are scored as they are; "all" for all other methods."""
        return ABLATIONS if self.source == ABLATION else ALL if self.tuned else PUBLISHED


@cache
def declared() -> Mapping[str, Declaration]:
    """All methods by name: controls, other projects' methods, this project's methods, ablations of its default."""
    found = [each for path in sorted(Path(__file__).parent.glob("*.py")) for each in _declared_in(path)]
    places = {CONTROL: 0, OWN: 2, ABLATION: 3}
    found.sort(key=lambda each: places.get(each.source, 1))
    return {each.name: each for each in found}


def _declared_in(path: Path) -> Iterator[Declaration]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id != "method":
            continue
        name, source = (ast.literal_eval(argument) for argument in node.args[:2])
        options: dict[str, Any] = {each.arg or "": each.value for each in node.keywords}
        given = {key: ast.literal_eval(options[key]) for key in ("tuned", "needs") if key in options}
        yield Declaration(name, source, path.stem, **given)
        if "published" in options:
            yield Declaration(f"{name} published", source, path.stem, **given | {"tuned": False})


def load_method(name: str) -> "Method":
    """The method of this name or of this slug. Imports the method's file, and with it torch."""
    from galaxydit.eval.methods.method import METHODS

    for each in declared().values():
        if name in (each.name, slug_of(each.name)):
            import_module(f"{__package__}.{each.module}")
    return next(method for method in METHODS.values() if name in (method.name, method.slug))


def source_of(name: str) -> str:
    """The source of a method; a space and the name of a profile file may follow the name. "" for an unknown method."""
    known = [method for method in declared() if name == method or name.startswith(f"{method} ")]
    return declared()[max(known, key=len)].source if known else ""


def slug_of(name: str) -> str:
    """The name of a method in lower case with hyphens, for files and job files: "uniform-skip-order-0"."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def is_installed(module: str | None) -> bool:
    """Whether the module that a method needs can be imported; True for None."""
    return module is None or find_spec(module) is not None


def names_of(words: Sequence[str]) -> list[str]:
    """The methods that names and names of groups stand for; a group omits methods whose packages are not installed.

    Raises GalaxyDiTError for an empty list, an unknown name, and a named method whose package is not installed.
    """
    methods, words = declared(), listed("methods", words)
    wrong = [word for word in words if word not in methods and word not in GROUPS]
    if wrong or not words:
        given = wrong[0] if wrong else ""
        expected = f"{', '.join(GROUPS)}, or names of methods with commas"
        cure = f"`galaxydit compare --list` shows them{did_you_mean(given, [*methods, *GROUPS])}"
        raise refusal("methods", given, expected, cure)
    for word in words:
        if word in methods and not is_installed(module := methods[word].needs):
            cure = "pip install 'galaxydit[bench]', or leave the method out"
            raise refusal("methods", word, f"methods whose packages are installed, and {module} is not", cure)
    return [
        each.name
        for each in methods.values()
        if each.name in words or (each.group in words and is_installed(each.needs))
    ]
