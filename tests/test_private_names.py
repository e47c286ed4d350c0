"""Tests use public names of the package, but for those that the page on tests lists with the reason."""

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = [
    path for folder in ("galaxydit", "pipelines", "calibration", "eval") for path in (ROOT / folder).rglob("*.py")
]

# Names of diffusers, PyTorch and IPython, which the package sets, too.
OF_OTHERS = {
    "_attention_backend",
    "_compiled_call_impl",
    "_diffusers_hook",
    "_hook_order",
    "_repr_html_",
    "_step_index",
}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and len(name) > 1


def defined_in_the_package() -> set[str]:
    """Private functions, classes, attributes of `self` and constants."""
    names: set[str] = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names.add(node.attr)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
    return {name for name in names if is_private(name)} - OF_OTHERS


def used_in(path: Path) -> set[str]:
    """Private names that a test reads or replaces: attributes but those of `self`, imports, and texts of `setattr`."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and not (isinstance(node.value, ast.Name) and node.value.id == "self"):
            names.add(node.attr)
        elif isinstance(node, ast.ImportFrom):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr":
            names.update(str(each.value) for each in node.args[1:2] if isinstance(each, ast.Constant))
    return {name for name in names if is_private(name)}


def test_private_names_in_tests_are_those_of_the_list() -> None:
    package = defined_in_the_package()
    found: dict[str, set[str]] = defaultdict(set)
    for path in (ROOT / "tests").rglob("*.py"):
        if names := used_in(path) & package:
            found[path.relative_to(ROOT / "tests").as_posix()] = names
    page = (ROOT / "tests" / "README.md").read_text(encoding="utf-8").split("## Private names")[1]
    listed = {}
    for file, names in re.findall(r"^\| `([^`]*\.py)` \| ([^|]*) \|", page, re.MULTILINE):
        listed[file] = set(re.findall(r"`(\w+)`", names))
    assert found == listed
