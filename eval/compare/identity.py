"""Hashes of source code: a stored result is reused only while the code that produced it is the same.

Functions that take `pipe` do not read it; they take it because they serve as `Method.identity`.
"""

import ast
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from diffusers import DiffusionPipeline

import galaxydit
from galaxydit import extrapolation

PLUGIN = Path(galaxydit.__file__).parent
RULES = Path(__file__).parent / "rules"
RECORDS = Path(__file__).parent / "trajectory.py"


def core_identity(pipe: DiffusionPipeline) -> str:
    """SHA-256 of the code that runs when a pipeline is accelerated (without calibration, evaluation and commands)."""
    folders = (PLUGIN, PLUGIN / "policies", PLUGIN / "profiles", PLUGIN / "runtime")
    return code_identity([path for folder in folders for path in sorted(folder.glob("*.py"))])


def prediction_identity(pipe: DiffusionPipeline) -> str:
    """SHA-256 of the plugin's extrapolation, the only part of it that a fixed schedule depends on."""
    return code_identity([Path(extrapolation.__file__)])


def with_rules(method_file: str) -> Callable[[DiffusionPipeline], str]:
    """Return the `Method.identity` of a method with a rule, an object that decides at each step whether to reuse it.

    `method_file` is the `__file__` of the method. The returned function gives the SHA-256 of this file, of `rules/`
    (the rules and their attachment to a pipeline), of the plugin's code that carries decisions out (`runtime/`,
    `acceleration.py`, `proxies.py`), and of the code that records generations (`RECORDS`).
    """
    shared = [path for folder in (RULES, PLUGIN / "runtime") for path in sorted(folder.glob("*.py"))]
    shared += [PLUGIN / "acceleration.py", PLUGIN / "proxies.py", RECORDS]
    return lambda pipe: code_identity([Path(method_file), *shared])


def code_identity(paths: Sequence[Path]) -> str:
    """SHA-256 of Python files without comments and docstrings."""
    digest = hashlib.sha256()
    for path in paths:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                node.body = [statement for statement in node.body if not _is_text(statement)]
        digest.update(ast.dump(tree).encode())
    return digest.hexdigest()


def _is_text(node: ast.stmt) -> bool:
    """Whether a statement is a docstring; the string below a constant counts as a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
