"""What the checkout as a whole promises."""

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import galaxydit

ROOT = Path(__file__).parent.parent
INSTALL = 'python3 -m venv .venv && .venv/bin/pip install -q -c constraints.txt -e ".[test]"'
PACKAGES = ("pipelines", "calibration", "eval")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TESTED = ("bench", "dev", "docs", "examples", "gguf", "lora", "ray", "report", "test", "vmaf")
TEST_COMMAND = f"{INSTALL} && .venv/bin/pytest -n 2"


def test_ci_ends_with_the_test_command_of_the_readme():
    assert TEST_COMMAND in (ROOT / "README.md").read_text().splitlines()
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == TEST_COMMAND


def test_the_top_level_holds_the_packages_and_what_people_look_for_there():
    if not (ROOT / ".git").exists():
        pytest.skip("no history is here")
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split(
        "\n"
    )
    found = {line.split("/")[0] for line in tracked if line and not line.startswith(".")}
    files = {
        "CHANGELOG.md",
        "CITATION.cff",
        "CONTRIBUTING.md",
        "LICENSE",
        "README.md",
        "constraints.txt",
        "pyproject.toml",
    }
    assert found == files | {"calibration", "eval", "galaxydit", "pipelines", "tests"}


def test_changes_and_citation_name_the_version_and_one_file_the_address():
    assert f"\n## {galaxydit.__version__} " in (ROOT / "CHANGELOG.md").read_text()
    assert f"\nversion: {galaxydit.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    (address,) = PROJECT["urls"].values()
    files = [
        *ROOT.glob("*.*"),
        *(path for name in ("galaxydit", *PACKAGES) for path in (ROOT / name).rglob("*.[pm][yd]")),
    ]
    assert [path.name for path in files if path.is_file() and address in path.read_text()] == ["pyproject.toml"]


def test_constraints_pin_every_dependency_of_the_tests():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    extras = PROJECT["optional-dependencies"]
    needed = [*PROJECT["dependencies"], *(line for name in TESTED for line in extras[name])]
    assert {named(line) for line in needed} - {named(line) for line in lines if line[0] != "#"} == {"galaxydit"}


def named(line: str) -> str:
    """The normalised name of the package of a requirement."""
    return re.split(r"[^\w.-]", re.sub("[-_.]+", "-", line.lower()))[0]


def test_each_package_is_one_package_under_galaxydit():
    for package in PACKAGES:
        assert (ROOT / "galaxydit" / package).resolve() == ROOT / package


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


def test_every_extra_that_a_message_or_a_page_names_can_be_installed() -> None:
    named = set()
    for folder in ("galaxydit", *PACKAGES, "tests"):
        for path in [*(ROOT / folder).rglob("*.py"), *(ROOT / folder).rglob("*.md")]:
            named |= set(re.findall(r"pip install[^\n]*?\[(\w+)\]", path.read_text("utf-8")))
    assert {"lora", "gguf", "docs"} <= named <= PROJECT["optional-dependencies"].keys()
