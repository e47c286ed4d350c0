"""Every relative link, anchor and commit that a README names is there."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [path for path in ROOT.rglob("*.md") if not {".venv", ".pytest_cache", "node_modules"} & {*path.parts}]
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
COMMIT = re.compile(r"\b(?:git show|git checkout|at|of) ([0-9a-f]{7,40})\b|(?<=\| )([0-9a-f]{7,40})(?=:| \|)")
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def git(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_and_anchors_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_named_commits_are_in_the_history() -> None:
    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("the history is not here")
    named = {name for page in PAGES for match in COMMIT.findall(page.read_text(encoding="utf-8")) for name in match}
    assert len(named) > 5
    assert not [name for name in named - {""} if git("cat-file", "-e", f"{name}^{{commit}}").returncode]
