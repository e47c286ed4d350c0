"""Every command that the documentation, a docstring or an error names exists, with all its options and files."""

import re
from collections.abc import Iterator
from pathlib import Path

from typer.main import get_command

from galaxydit.cli import app

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"```(\w*)\n(.*?)```|`([^`]+)`", re.DOTALL)
COMMAND = re.compile(r"\bgalaxydit ((?:eval )?[a-z]+(?:-[a-z]+)*)\b((?:(?!&&|\bgalaxydit )[^\n]|\\\n)*)")
METHODS = ("output", "residual", "paper", "proxy", "schedule", "without")  # `galaxydit output` is a name in tables
PACKAGES = ("galaxydit", "pipelines", "calibration", "eval")


def documented() -> Iterator[tuple[str, str]]:
    """Names of files, and the code in them: blocks and inline code of Markdown, text in backticks of Python."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "tests").rglob("*.md")]
    pages += [path for package in PACKAGES for kind in ("md", "py") for path in (ROOT / package).rglob(f"*.{kind}")]
    for page in pages:
        for language, block, inline in CODE.findall(page.read_text(encoding="utf-8")):
            if language in ("python", "toml", "bibtex"):
                continue
            yield str(page.relative_to(ROOT)), block or " ".join(inline.split())


def test_documented_commands_exist_with_their_options() -> None:
    root = get_command(app)
    commands = dict(root.commands)  # type: ignore[attr-defined]
    commands |= {f"eval {name}": command for name, command in commands["eval"].commands.items()}
    found = [(page, *words) for page, code in documented() for words in COMMAND.findall(code)]
    found = [each for each in found if each[1] not in METHODS]
    assert len(found) > 50
    for page, name, rest in found:
        assert name in commands, f"{page}: galaxydit {name}"
        known = {
            option
            for command in (commands[name], *getattr(commands[name], "commands", {}).values())
            for parameter in command.params
            for option in (*parameter.opts, *parameter.secondary_opts)
        }
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", rest):
            assert option in {*known, "--help"}, f"{page}: galaxydit {name} {option}"


def test_documented_modules_and_scripts_exist() -> None:
    found = []
    for page, code in documented():
        found += [(page, name.replace(".", "/") + ".py") for name in re.findall(r"python -m (galaxydit[\w.]*\w)", code)]
        found += [(page, name) for name in re.findall(r"python (tests/[\w/]+\.py)", code)]
    assert len(found) > 5
    assert not [(page, name) for page, name in found if not (ROOT / name).is_file()]
