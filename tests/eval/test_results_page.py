"""Each generated section is what its data make, and no page or docstring shows a result without a source."""

import ast
import json
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from galaxydit.eval.compare.compare_job import Comparison
from galaxydit.eval.compare.equal_compute import AtSpeedup, ScoredSetting, compare_at
from galaxydit.eval.compare.plan import ComparisonPlan
from galaxydit.eval.compared import RESULTS, ROOT, ResultsFile, lead
from galaxydit.eval.results_page import PAGES, SECTION, rewritten

STORED = sorted((RESULTS / "protocol-2").rglob("results.json"))
PACKAGES = ("calibration", "eval", "galaxydit", "pipelines")
# A folder's table.md is what the command of its data writes.
MARKDOWN = [
    *ROOT.glob("*.md"),
    *(path for name in (*PACKAGES, "docs", "tests") for path in (ROOT / name).rglob("*.md") if path.name != "table.md"),
]
CODE = [path for name in PACKAGES for path in (ROOT / name).rglob("*.py")]

FENCE = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
NUMBER = r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?"
UNIT = r"dB|s|ms|kJ|kWh|GB|MB|GiB|MiB|seconds|hours|points|times as fast"
RESULT = re.compile(rf"{NUMBER}(?: (?:{UNIT})\b| ?%|x(?!\w))|\brho\b[^.|]{{0,40}}?\d\.\d")
MEASURED = re.compile(rf"\b(?:{UNIT}|PSNR|rho)\b")  # in the heading of a table
CELL = re.compile(rf"\| *[*(]*{NUMBER}[^|]*(?=\|)")
SOURCE = re.compile(
    r"\]\((?:[^)]*results/|[^)]*tables?\.md|[^)]*\.(?:json|toml|png|py)\)|https?:)"  # a link to data or a test
    r"|arXiv \d{4}\.\d{5}|\bdoi\b"
    r"|`(?:GALAXYDIT_TEST\w*=\w+ )?(?:galaxydit|python|pytest) [^`]+`"  # a command
    r"|(?<![\w.])(?=[a-f]*\d)[0-9a-f]{7}(?!\w)"  # a commit
)
# Requested speedups and levels of confidence.
REQUESTED = re.compile(r"(?<![\w.])(?:1|1\.25|1\.5|1\.75|2|2\.5|3|3\.25|4)x|\b9[05] %")
# Options, definitions and examples.
NO_RESULTS = (
    "4 plain videos or 2 hours",
    "0 to 120 dB",
    "their PSNR of 120 dB stands for infinity",
    "the largest one that kept a mean of 28 dB",
    "ends its workers within 30 s",
    "with 10 % caption dropout",
    "an interval from -0.5 dB or above",
    "within 3 %, else found by bisection",
    '"threshold=0.08 (1.62x)"',
    "from 10 s on none is added",
    "compresses 8x in space and 4x in time",
    "both compute 14 of 50 steps in full (2.01x)",
    "r_c^2 + 2 s (1 - s) rho",
    "the fastest 2 % of the pixels",
    "82 kWh, price 91, 5.1 GB of files",
    "by more than 5 %",
    "at most 0.1 dB more error than the schedule with it",
    "videos of up to 24 MiB in total",
    "at most 4 MB",
    "A video lasts 5 to 15 s, and has 17 n + 5 frames",
)
# Timings that explain a line of code, and a range that a grid covers.
IN_CODE = ("takes 2 ms per step with UniPC", "0.4 ms a call on one CPU", "change by 0.1 to 30 % a step")
EXCEPTIONS = (*NO_RESULTS, *IN_CODE)


def shown(text: str, exceptions: Sequence[str] = EXCEPTIONS) -> list[str]:
    """The results in a text, without code, targets of links and what is no result."""
    for phrase in exceptions:
        text = text.replace(phrase, "")
    plain = re.sub(r"`[^`]*`", "code", re.sub(r"\]\([^)]*\)", "]", text))
    return [found[0] for found in RESULT.finditer(REQUESTED.sub("", plain))]


def without_source(text: str, exceptions: Sequence[str] = EXCEPTIONS) -> Iterator[str]:
    """Rows, items and paragraphs outside generated sections that show a result and name no source.

    The paragraph before a table may name the source of all rows.
    """
    before = ""
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:- |\d+\. ))", FENCE.sub("", SECTION.sub("", text))):
        heading, *rows = block.strip().splitlines() or [""]
        if heading.startswith("|"):
            has_numbers = bool(MEASURED.search(heading))
            for row in [] if SOURCE.search(before) or SOURCE.search(heading) else rows:
                if not SOURCE.search(row) and (shown(row, exceptions) or (has_numbers and CELL.search(row))):
                    yield row
        elif not SOURCE.search(block) and shown(" ".join(block.split()), exceptions):
            yield block
        before = block


@cache
def all_docstrings() -> list[str]:
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    found = []
    for path in CODE:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, documented):
                found.append(ast.get_docstring(node) or "")
    return found


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_result_on_a_page_names_its_source(page: Path) -> None:
    assert list(without_source(page.read_text(encoding="utf-8"))) == []


def test_every_result_in_a_docstring_names_its_source() -> None:
    assert [part for text in all_docstrings() for part in without_source(text)] == []


@pytest.mark.parametrize(
    "text",
    [
        "It has 38.4 dB on wan-tiny.",
        "It saves 12 % of the energy, 3.1 kJ.",
        "The video takes 61.5 s, so the plugin is 2.13x as fast.",
        "It ranks proxies with a rho of 0.81.",
        "2x is 1.9 times as fast.",
        "See [how](README.md#how-it-works): 18 MB.",
        "- 0.3 dB more\n- 0.1 dB less ([data](results.json))",
        "| method | PSNR, dB |\n|---|---:|\n| ours | 31.5 |",
        "| claim | number |\n|---|---|\n| one | +0.4 dB ([data](a.json)) |\n| another | +0.5 dB |",
        "<!-- made by: lead -->\n1.0 dB\n<!-- end -->\n\nIt gains 1.0 dB.",
    ],
)
def test_a_result_without_a_source_is_found(text: str) -> None:
    assert len(list(without_source(text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "It has 38.4 dB ([data](results/compare/results.json)).",
        "The paper reports 1.87x (arXiv 2512.03451).",
        "Ask for 2x or 2.5x; brackets are 95 % intervals.",
        "`--max-memory 4 GB` is an option.",
        "<!-- made by: lead -->\n1.0 dB\n<!-- end -->",
        "By `galaxydit compare --prompts 8`:\n\n| method | PSNR, dB |\n|---|---:|\n| ours | 31.5 |",
        "| claim | number | repeated by |\n|---|---|---|\n| one | +0.4 dB | 4286565:study |",
    ],
)
def test_a_result_with_a_source_passes(text: str) -> None:
    assert list(without_source(text)) == []


@pytest.mark.parametrize("phrase", EXCEPTIONS)
def test_each_exception_is_still_needed(phrase: str) -> None:
    others = [each for each in EXCEPTIONS if each != phrase]
    pages = [page.read_text(encoding="utf-8") for page in MARKDOWN]
    texts = [text for text in (*pages, *all_docstrings()) if phrase in " ".join(text.split())]
    assert any(list(without_source(text, others)) for text in texts)


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_what_the_command_makes(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert SECTION.search(text)
    assert rewritten(text, ROOT / name) == text


def test_a_section_without_data_says_so(tmp_path: Path) -> None:
    text = "<!-- made by: lead -->\n1.0 dB\n<!-- end -->"
    assert (
        rewritten(text, tmp_path / "README.md", tmp_path) == "<!-- made by: lead -->\nNot measured yet.\n<!-- end -->"
    )


def test_the_command_makes_every_page_with_a_section() -> None:
    pages = {str(page.relative_to(ROOT)) for page in MARKDOWN if SECTION.search(page.read_text(encoding="utf-8"))}
    assert pages == set(PAGES)


def stored(path: Path) -> Comparison:
    data = json.loads(path.read_text(encoding="utf-8"))
    rows = tuple(ScoredSetting(**row | {"psnr_of_prompt": tuple(row["psnr_of_prompt"])}) for row in data["rows"])
    results = tuple(AtSpeedup(**row | {"psnr_of_prompt": tuple(row["psnr_of_prompt"])}) for row in data["at_speedups"])
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in data["plan"].items()}
    plan = ComparisonPlan(**given)
    return Comparison(data["conditions"], plan, rows, results, data["failed"])


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.parent.name)
def test_scores_are_those_of_the_scored_settings(path: Path) -> None:
    comparison = stored(path)
    for speedup in comparison.plan.speedups:
        made = {row.method: row for row in compare_at(comparison.rows, speedup)}
        for row in (row for row in comparison.at_speedups if row.speedup == speedup):
            assert made[row.method].psnr_of_prompt == pytest.approx(row.psnr_of_prompt)
            assert made[row.method].psnr == pytest.approx(row.psnr)


def has_row(page: Path, cells: list[str]) -> bool:
    """Whether a table of the page has a row that holds all of the cells, empty ones apart."""
    rows = [{cell.strip() for cell in line.split("|")} for line in page.read_text(encoding="utf-8").splitlines()]
    return any(set(cells) <= row for row in rows)


def test_the_table_of_vbench_is_that_of_its_data() -> None:
    data = json.loads((RESULTS / "vbench" / "wan-tiny.json").read_text(encoding="utf-8"))
    for variant in data["variants"].values():
        found = variant["dimensions"]["temporal_flickering"]
        drop = found["drop"]
        lost = [f"{drop['mean']:+.2f} ({drop['low']:+.2f} to {drop['high']:+.2f})"] if drop else []
        assert has_row(ROOT / "eval" / "README.md", [f"{found['score']:.4f}", f"{found['points']:.2f}", *lost])


def test_the_words_for_differences() -> None:
    assert lead([0.0, 0.0]) == "same"
    assert lead([1.0, 1.0, 1.2] * 2) == "+1.1 (+1.0 to +1.1)"
    assert lead([1.0, 1.0, 1.2]) == "+1.1"
    assert lead([1.0, -1.0] * 3).endswith("), level")
    assert lead([]) == "-"


def test_commands_name_the_captions() -> None:
    made = [ResultsFile(path).command() for path in STORED]
    assert all(re.search(r"--prompts (?:\d+(?:(?:-\d+)?\.txt)?|eval/results/\S+\.txt) ", command) for command in made)
