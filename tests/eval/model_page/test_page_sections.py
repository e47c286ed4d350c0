"""The sections of wan-tiny's page are made from the files of its measuring commands alone."""

import json
from pathlib import Path
from typing import Any

import pytest

from galaxydit.eval.compared import NotMeasuredError
from galaxydit.eval.model_page import page_sections

PAGE = Path("pipelines/wan_tiny/README.md")
SECTIONS = [
    page_sections.figures_section,
    page_sections.proxies_section,
    page_sections.plans_section,
    page_sections.ideas_section,
    page_sections.published_section,
]


def store(results: Path, name: str, content: dict[str, Any]) -> None:
    path = results / page_sections.FOLDER / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))


def figure(name: str, value: float) -> dict[str, Any]:
    return {"name": name, "value": value, "count": 48, "low": value - 0.1, "high": value + 0.1}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Figures that all reach their goals but one."""
    figures = [figure(name, (goal or 0.0) + 0.001) for name, goal in page_sections.GOALS.items()]
    figures = [each for each in figures if each["name"] != "shapes found"] + [figure("shapes found", 0.8)]
    figures += [figure(f"{page_sections.WORDS}{block}", share) for block, share in enumerate((0.9, 0.6, 0.7))]
    for proxy, rho in (("block_input", 0.1), ("block_output", 0.4), ("block_output_l2", 0.3)):
        figures += [figure(f"rho of {proxy} {way}", rho) for way in ("along steps", "between videos")]
    store(tmp_path, page_sections.FIGURES, {"figures": figures, "rows": []})
    return tmp_path


@pytest.mark.parametrize("section", SECTIONS)
def test_without_data_no_section_is_made(section: Any, tmp_path: Path) -> None:
    with pytest.raises(NotMeasuredError):
        section(tmp_path, PAGE)


def test_a_goal_that_is_missed_is_marked(results: Path) -> None:
    lines = page_sections.figures_section(results, PAGE).splitlines()
    assert [line for line in lines if "not reached" in line] == [
        "| shapes found | 0.8 | 0.7 to 0.9 | 48 | 0.85, **not reached** |"
    ]
    assert lines[-1] == "| attention on words, of the block that has least | 0.6 | 0.5 to 0.7 | 48 | 0.5 |"


def test_proxies_are_in_the_order_of_their_rho_along_steps(results: Path) -> None:
    _, _, *rows = page_sections.proxies_section(results, PAGE).splitlines()
    assert [row.split(" | ")[0] for row in rows] == ["| block_output", "| block_output_l2", "| block_input"]


def test_the_former_weights_stand_beside_the_shipped_ones(results: Path) -> None:
    run = {"published": 20.0, "seen": True, "psnr": {"a": 21.0}}
    store(results, page_sections.ROWS, {"25 steps": run})
    assert "| 25 steps | 20.0 | 21.0 | yes |" in page_sections.published_section(results, PAGE)
    store(results, page_sections.FORMER_ROWS, {"25 steps": run | {"psnr": {"a": 19.0}}})
    assert "| 25 steps | 20.0 | 21.0 | 19.0 | yes |" in page_sections.published_section(results, PAGE)


def test_plans_are_compared_from_their_file_alone(results: Path) -> None:
    named = {"one plan for all": "0 1", "the video's own": "0 2", "by its proxy": "0 1"}
    content = {"plans": {"2": {"a": named}}, "psnr": {"a": {"0 1": 30.0, "0 2": 30.5}}}
    store(results, page_sections.PLANS, content)
    section = page_sections.plans_section(results, PAGE)
    assert "| 2x, the video's own | 30.5 | +0.50 | 1 |" in section
    assert "| 2x, by its proxy | 30.0 | same | 1 |" in section


def test_ideas_name_their_conditions(results: Path) -> None:
    psnrs = {"schedule, 2x": 30.0, "DBCache, 2x": 29.0}
    row = {variant: {"psnr": psnr, "compute_fraction": 0.5} for variant, psnr in psnrs.items()}
    content = {"device": "cpu", "conditions": {"versions": {"torch": "2.13.0"}}, "thresholds": {}, "rows": {"a": row}}
    store(results, page_sections.IDEAS, content)
    section = page_sections.ideas_section(results, PAGE)
    assert section.startswith("cpu, float32, torch 2.13.0.")
    assert "| schedule, 2x - DBCache, 2x | +1.00 | 1 |" in section


def test_the_ranking_of_proxies_stands_beside_their_psnr(results: Path) -> None:
    psnrs = {"block_input": 33.0, "block_output": 31.0, "block_output_l2": 32.0}
    row = {f"threshold on {name}, 2x": {"psnr": psnr, "compute_fraction": 0.5} for name, psnr in psnrs.items()}
    content = {"device": "cpu", "conditions": {"versions": {}}, "thresholds": {}, "rows": {"a": row}}
    store(results, page_sections.IDEAS, content)
    lines = page_sections.ideas_section(results, PAGE).splitlines()
    assert lines[-4:] == [
        "| block_output | 0.40 | 31.00 | 0.500 |",
        "| block_output_l2 | 0.30 | 32.00 | 0.500 |",
        "| block_input | 0.10 | 33.00 | 0.500 |",
        "| Spearman's rho of both columns |  | -1.00 |  |",
    ]
