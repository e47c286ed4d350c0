"""The names of all compared methods. Those of this folder are read from the syntax of their files, without torch."""

import ast
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from galaxydit.errors import did_you_mean, listed, refusal
from galaxydit.plugins import METHODS_GROUP, load_installed, note_declaration

if TYPE_CHECKING:
    from galaxydit.eval.methods.method import Method

ALL, PUBLISHED, ABLATIONS = GROUPS = "all", "published", "ablations"
CONTROL, OWN, ABLATION = "control", "this project", "ablation"  # sources
RESERVED = ("baseline",)  # names of variants that are no methods


@dataclass(frozen=True)
class Declaration:
    """A call `method(name, source, ...)` in a module of this folder or of a plugin."""

    name: str
    source: str
    module: str
    tuned: bool = True
    needs: str | None = None

    @property
    def group(self) -> str:
        """ "ablations"; "published" for settings that are scored as they are; "all" for all other methods."""
        return ABLATIONS if self.source == ABLATION else ALL if self.tuned else PUBLISHED


def declared() -> Mapping[str, Declaration]:
    """All methods by name: controls, other projects' methods, this project's methods, ablations of its default.

    Loads installed plugins. Raises GalaxyDiTError for one that cannot be loaded.
    """
    load_installed(METHODS_GROUP)
    found = [*built_in().values(), *(each for each in _imported() if each.name not in built_in())]
    places = {CONTROL: 0, OWN: 2, ABLATION: 3}
    found.sort(key=lambda each: places.get(each.source, 1))
    return {each.name: each for each in found}


@cache
def built_in() -> Mapping[str, Declaration]:
    """The methods of this folder by name, in the order of their files."""
    found = [each for path in sorted(Path(__file__).parent.glob("*.py")) for each in _declared_in(path)]
    return {each.name: each for each in found}


def _imported() -> Iterator[Declaration]:
    """The methods that imported modules have declared."""
    if (declaring := sys.modules.get(f"{__package__}.method")) is not None:
        for each in declaring.METHODS.values():
            yield Declaration(each.name, each.source, each.module, each.tuned, each.needs)


def check_new(name: str, module: str, others: Mapping[str, str]) -> None:
    """Raise GalaxyDiTError if a method of another module has this name, or one of the same slug.

    `others` are the modules of the imported methods by name. Notes that the module declares methods.
    """
    if module.startswith(f"{__package__}."):
        return
    note_declaration(module)
    known = {**others, **{each.name: each.module for each in built_in().values()}}
    taken = {slug_of(each): f"the method {each!r}" for each, owner in known.items() if owner != module}
    taken |= dict.fromkeys(RESERVED, "a variant of jobs")
    if (holder := taken.get(slug_of(name))) is not None:
        raise refusal("name", name, f"a name that no other has, and {holder} has it", "rename the method")


def _declared_in(path: Path) -> Iterator[Declaration]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id != "method":
            continue
        name, source = (ast.literal_eval(argument) for argument in node.args[:2])
        options: dict[str, Any] = {each.arg or "": each.value for each in node.keywords}
        given = {key: ast.literal_eval(options[key]) for key in ("tuned", "needs") if key in options}
        module = f"{__package__}.{path.stem}"
        yield Declaration(name, source, module, **given)
        if "published" in options:
            yield Declaration(f"{name} published", source, module, **given | {"tuned": False})


def load_method(name: str) -> "Method":
    """The method of this name or of this slug. Imports the method's file, and with it torch.

    Raises GalaxyDiTError for a method of a plugin that is not loaded.
    """
    from galaxydit.eval.methods.method import METHODS

    for each in declared().values():
        if name in (each.name, slug_of(each.name)):
            if each.name not in METHODS:
                import_module(each.module)
            return METHODS[each.name]
    expected = "a method of galaxydit, or of a plugin that is loaded"
    raise refusal("method", name, expected, "load its plugin: --plugin MODULE_OR_FILE")


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
        cure = f"`galaxydit compare --list` shows them, --plugin adds others{did_you_mean(given, [*methods, *GROUPS])}"
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
