"""What the checkout as a whole promises."""

import ast
import re
import subprocess
import tomllib
from collections import Counter
from pathlib import Path

import pytest
import yaml

import galaxydit

ROOT = Path(__file__).parent.parent
INSTALL = 'python3 -m venv .venv && .venv/bin/pip install -q -c constraints.txt -e ".[test]"'
PACKAGES = ("pipelines", "calibration", "eval")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TESTED = ("bench", "core-dev", "dev", "docs", "examples", "gguf", "lora", "ray", "report", "test", "vmaf")
TEST_COMMAND = f"{INSTALL} && .venv/bin/pytest -n 3"


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
        "MANIFEST.in",
        "README.md",
        "constraints.txt",
        "mkdocs.yml",
        "pyproject.toml",
        "setup.py",
    }
    assert found == files | {"calibration", "docs", "eval", "galaxydit", "pipelines", "tests"}


def test_changes_and_citation_name_the_version_and_one_file_the_address():
    assert f"\n## {galaxydit.__version__} " in (ROOT / "CHANGELOG.md").read_text()
    assert f"\nversion: {galaxydit.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    (address,) = PROJECT["urls"].values()
    files = [
        *ROOT.glob("*.*"),
        *ROOT.glob("docs/*.*"),
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
            if file.parent == ROOT / "pipelines" / "examples" / "plugin":  # a package of its own
                continue
            if package == "galaxydit" and (parts[1] in (*PACKAGES, "commands") or file in entrances):
                continue
            assert not imported(file) & forbidden, file


def test_every_extra_that_a_message_or_a_page_names_can_be_installed() -> None:
    named = set()
    for folder in ("galaxydit", *PACKAGES, "tests"):
        for path in [*(ROOT / folder).rglob("*.py"), *(ROOT / folder).rglob("*.md")]:
            named |= set(re.findall(r"pip install[^\n]*?\[(\w+)\]", path.read_text("utf-8")))
    assert {"lora", "gguf", "docs"} <= named <= PROJECT["optional-dependencies"].keys()


def test_no_two_files_of_the_package_have_one_name() -> None:
    found = Counter()
    for folder in ("galaxydit", *PACKAGES):
        for path in (ROOT / folder).rglob("*.py"):
            is_behind_link = folder == "galaxydit" and path.relative_to(ROOT).parts[1] in PACKAGES
            if path.name != "__init__.py" and not is_behind_link:
                found[path.name] += 1
    assert found["acceleration.py"] == 1
    assert not [name for name, count in found.items() if count > 1]


def test_every_path_of_the_map_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    paths = [code for code in re.findall(r"`([^`\n]+)`", text) if "/" in code and " " not in code]
    assert len(paths) > 50
    assert not [path for path in paths if not (ROOT / path).exists()]
    drawing = text.split("```\n")[3]
    drawn = re.findall(r"[\w/]+\.py|[\w/]+/", drawing)
    assert len(drawn) > 10
    assert not [path for path in drawn if not ((ROOT / path).exists() or (ROOT / "galaxydit" / path).exists())]


def test_the_map_has_every_folder_of_code() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    for package in ("galaxydit", *PACKAGES):
        for path in (ROOT / package).rglob("*.py"):
            folder = path.parent.relative_to(ROOT)
            is_behind_link = package == "galaxydit" and len(folder.parts) > 1 and folder.parts[1] in PACKAGES
            if not is_behind_link and folder.name != "inside":
                assert f"{folder}/`" in text or f"[{folder}/]" in text, folder


def test_the_hosted_checks_are_the_ci_script_and_the_commands_for_the_core() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8"))
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    everything, core = [step["run"] for step in steps if "run" in step]
    assert everything == "bash .ci/run"
    assert f"```\n{core}```\n" in (ROOT / "CONTRIBUTING.md").read_text("utf-8")


def test_the_commit_hook_has_the_version_of_ruff_that_ci_has() -> None:
    (hooks,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"]
    assert f"ruff=={hooks['rev'].removeprefix('v')}" in (ROOT / "constraints.txt").read_text("utf-8").splitlines()


def test_an_issue_cannot_be_filed_without_the_report() -> None:
    (form,) = (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")
    fields = {each["id"]: each for each in yaml.safe_load(form.read_text("utf-8"))["body"]}
    assert fields["report"]["validations"]["required"]
    assert "print(acc.report)" in fields["report"]["attributes"]["description"]


def test_the_extra_for_the_core_has_no_package_of_evaluations() -> None:
    extra = {named(line) for line in PROJECT["optional-dependencies"]["core-dev"]}
    assert not extra & {"bitsandbytes", "galaxydit", "ray", "selenium", "torchao"}
