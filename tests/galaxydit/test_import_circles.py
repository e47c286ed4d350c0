"""The core's modules import each other in one direction, for type checking, too."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import galaxydit

CORE = Path(galaxydit.__file__).parent
OUTSIDE = ("pipelines", "calibration", "eval", "commands")


def modules() -> dict[str, Path]:
    """The core's files by module name."""
    found = {}
    for path in sorted(CORE.rglob("*.py")):
        parts = path.relative_to(CORE).with_suffix("").parts
        if parts[0] not in OUTSIDE and parts not in (("__init__",), ("cli",), ("__main__",)):
            found[".".join(("galaxydit", *parts)).removesuffix(".__init__")] = path
    return found


def imports_of(path: Path, names: set[str]) -> set[str]:
    """The core's modules that a file imports, whether when it is loaded, in a function or for type checking."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found & names


def test_no_module_of_the_core_needs_itself() -> None:
    files = modules()
    assert len(files) > 50
    graph = {name: imports_of(path, set(files)) - {name} for name, path in files.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(f"modules that import each other: {' -> '.join(error.args[1])}") from None


def test_a_call_imports_nothing_of_the_runtime() -> None:
    path = CORE / "runtime" / "call.py"
    assert not imports_of(path, set(modules()))
