"""The pages that the site makes beside the Markdown files, and the README of a package index.

The site itself is built by `.ci/run`, strictly, so a broken link ends the build.
"""

import re
import tomllib
from pathlib import Path

import pytest
from api_page import api_page
from model_pages import family_of, family_rows, model_index, model_page
from repository import index_description, relinked

import galaxydit
from galaxydit.families import FAMILIES
from galaxydit.pipelines.published_models import CHECKPOINTS

ROOT = Path(__file__).parent.parent
ADDRESS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]["Repository"]


@pytest.mark.parametrize("name", galaxydit.__all__)
def test_every_public_name_is_on_the_api_page_once_with_a_docstring(name: str) -> None:
    assert api_page().count(f"::: galaxydit.{name}\n") == 1
    assert getattr(galaxydit, name).__doc__


def test_every_published_model_has_a_page_with_its_family_settings_costs_and_commands() -> None:
    for name, checkpoint in CHECKPOINTS.items():
        page = model_page(name)
        assert checkpoint.hub_id in page
        assert f"| steps | {checkpoint.settings.steps} |" in page
        assert "Predicted, not measured" in page
        if "animate" not in name:
            assert f"galaxydit calibrate --model {name}" in page
        assert f"({name}.md)" in model_index()


def test_families_of_model_pages_are_those_of_the_table() -> None:
    assert family_rows().keys() == {family.name for family in FAMILIES.values()}
    assert family_of("wan2.1-vace-14b")["family"] == "Wan VACE"
    assert family_of("wan2.2-animate-14b")["family"] == "Wan Animate"
    assert family_of("hunyuanvideo-1.5-t2v-480p")["family"] == "HunyuanVideo 1.5"


def test_the_readme_of_a_package_index_has_no_relative_link_and_the_address() -> None:
    text = re.sub(r"```.*?```", "", index_description(), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    assert len(targets) > 30
    assert [target for target in targets if not target.startswith("http")] == []
    assert f"git+{ADDRESS}" in index_description()
    assert f"{ADDRESS}/raw/main/eval/results/demo" in text
    assert "ADDRESS" not in index_description()


def test_links_in_code_and_to_other_sites_stay() -> None:
    text = "[a](b.md#c) [d](https://e.f) [g](#h)\n\n```\n[i](j.md)\n```\n"
    made = relinked(text, "folder/page.md", lambda target: f"NEW/{target}")
    assert made == "[a](NEW/folder/b.md#c) [d](https://e.f) [g](#h)\n\n```\n[i](j.md)\n```\n"


def test_the_navigation_has_every_page_once() -> None:
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    named = re.findall(r": ([\w/.-]+\.md)$", text, re.MULTILINE)
    assert len(named) == len(set(named))
    written = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md")}
    assert written | {"docs/api.md"} == {name for name in named if name.startswith("docs/")}
    assert [name for name in named if not (ROOT / name).is_file()] == ["docs/api.md"]


def test_each_of_the_thirty_questions_names_where_its_answer_stands() -> None:
    """That the addresses exist is tested with all other links."""
    rows = re.findall(r"^\| (\d+) \| .* \| (.*)\|$", (ROOT / "tests" / "questions.md").read_text("utf-8"), re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 31))
    assert all(re.match(r"\[.*#.*\]\(\.\./.*#.*\) $", answer) for _, answer in rows)
