"""What the checkout as a whole promises."""

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent
INSTALL = 'python3 -m venv .venv && .venv/bin/pip install -q -c constraints.txt -e ".[test]"'
TEST_COMMAND = f"{INSTALL} && .venv/bin/pytest -n 2"


def test_ci_ends_with_the_test_command_of_the_readme():
    assert TEST_COMMAND in (ROOT / "README.md").read_text().splitlines()
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == TEST_COMMAND


def test_each_package_is_one_package_under_galaxydit():
    for package in ("pipelines", "calibration", "eval"):
        assert (ROOT / "galaxydit" / package).resolve() == ROOT / package


PACKAGES = ("pipelines", "calibration", "eval")


def imported(file: Path) -> set[str]:
    """The packages that a file imports from anywhere in it; "galaxydit" stands for the command line."""
    nodes = list(ast.walk(ast.parse(file.read_text())))
    names = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    names += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return {name.split(".")[1] for name in names if name.startswith("galaxydit.")}


def test_imports_go_one_way_from_eval_to_the_plugin():
    known = {"galaxydit": {"commands", "cli", *PACKAGES}, "pipelines": {"commands", "cli", "calibration", "eval"}}
    known |= {"calibration": {"commands", "cli", "eval"}, "eval": {"commands", "cli"}}
    entrances = {ROOT / "galaxydit" / "__init__.py", ROOT / "galaxydit" / "cli.py"}
    for package, forbidden in known.items():
        for file in (ROOT / package).rglob("*.py"):
            parts = file.relative_to(ROOT).parts
            if package == "galaxydit" and (parts[1] in (*PACKAGES, "commands") or file in entrances):
                continue
            assert not imported(file) & forbidden, file
