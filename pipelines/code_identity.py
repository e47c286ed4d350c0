"""SHA-256 of the code and data that results depend on."""

import ast
import hashlib
from functools import cache
from pathlib import Path

import galaxydit

PACKAGE = Path(galaxydit.__file__).parent
FOLDERS = (
    *("", "policies", "profiles", "runtime", "pipelines", "pipelines/wan_tiny", "calibration"),
    *("eval/methods", "eval/metrics"),
)


@cache
def code_identity() -> str:
    """First 16 digits of the hash of this project's code and profiles, without comments and docstrings."""
    digest = hashlib.sha256()
    for folder in FOLDERS:
        for path in sorted((PACKAGE / folder).iterdir()):
            if path.suffix == ".py":
                digest.update(without_texts(path.read_text(encoding="utf-8")).encode())
            elif path.suffix == ".json":
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def without_texts(code: str) -> str:
    """The syntax tree as text, without docstrings and the strings below constants."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [each for each in node.body if not _is_text(each)]
    return ast.dump(tree)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
