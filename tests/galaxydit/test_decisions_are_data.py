"""No control flow of the core reads texts: reasons and discontinuities are Enums, errors have fields."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import galaxydit

FOLDER = Path(galaxydit.__file__).parent
FILES = [
    FOLDER / "report.py",
    FOLDER / "config.py",
    *(FOLDER / "runtime").glob("*.py"),
    *(FOLDER / "policies").glob("*.py"),
]
TEXTS = {"reason", "note", "notes", "text", "message", "change"}
CUTS = {"startswith", "endswith", "partition", "rpartition", "removeprefix", "removesuffix"}


def name_of(node: ast.expr) -> str:
    """The variable or attribute that an expression reads, "" for others."""
    return getattr(node, "attr", getattr(node, "id", ""))


def decisions_on_texts(source: str) -> Iterator[str]:
    """Comparisons of reasons and notes with a text, and calls that cut an error's or a reason's text."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            is_text = any(isinstance(side, ast.Constant) and isinstance(side.value, str) for side in sides)
            is_sentence = any(
                isinstance(side, ast.Constant) and isinstance(side.value, str) and " " in side.value for side in sides
            )
            if is_sentence or (is_text and any(name_of(side) in TEXTS for side in sides)):
                yield ast.unparse(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CUTS:
            cut = node.func.value
            if name_of(cut) in TEXTS or (isinstance(cut, ast.Call) and name_of(cut.func) == "str" and is_error(cut)):
                yield ast.unparse(node)


def is_error(call: ast.Call) -> bool:
    return any(name_of(argument) == "error" for argument in call.args)


def test_no_control_flow_reads_texts() -> None:
    for path in FILES:
        assert not list(decisions_on_texts(path.read_text(encoding="utf-8"))), path


@pytest.mark.parametrize(
    "source",
    [
        'if decision.reason == "warm-up": pass',
        'if difference == "shape has changed": pass',
        'planned = reason.startswith("schedule")',
        'cause = str(error).rpartition("; ")[0]',
        'known = "too few" in note',
    ],
)
def test_the_patterns_are_recognised(source: str) -> None:
    assert list(decisions_on_texts(source))
