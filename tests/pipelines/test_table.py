"""One table, for a terminal, as Markdown, as HTML and as CSV."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from galaxydit.pipelines.table import Table, digits, number, write_csv

TABLE = Table(("name", "dB", "note"), [("a <b>", "30.1", "first"), ("c", "-", "")], has_notes=True)


def test_markdown_aligns_text_left_and_numbers_right():
    assert TABLE.markdown() == "| name | dB | note |\n| --- | ---: | --- |\n| a &lt;b> | 30.1 | first |\n| c | - |  |"
    assert Table.of([]).markdown() == ""


def test_a_table_without_columns_prints_nothing():
    screen = StringIO()
    Console(file=screen, width=80).print(Table.of([]), end="")
    assert screen.getvalue() == ""


def test_html_is_escaped():
    assert '<th scope="row" class="text">a &lt;b&gt;</th><td>30.1</td>' in TABLE.html()
    assert TABLE.html().startswith('<table class="plain"><thead><tr><th scope="col" class="text">name</th>')


def test_a_terminal_shows_disturbed_seconds_in_two_lines():
    screen = StringIO()
    table = Table.of([{"name": "a", "speedup": "(2.00x, disturbed)", "page": "x"}], leave_out=("page",))
    Console(file=screen, width=80).print(table)
    lines = [line.strip() for line in screen.getvalue().splitlines()]
    assert any(line.endswith("(2.00x,") for line in lines)
    assert "disturbed)" in lines
    assert "page" not in screen.getvalue()


def test_numbers_have_a_dash_for_none_and_three_digits():
    assert (number(None, ".2f"), number(1.234, ".2f")) == ("-", "1.23")
    assert [digits(value) for value in (0.001, 12.345, 1234567)] == ["<0.01", "12.3", "1,234,567"]


@pytest.mark.parametrize("width", [20, 40, 80, 120])
def test_a_terminal_of_any_width_shows_whole_words(width: int):
    row = ("plain at scheduled levels", "(2.00x, disturbed)", "31.52", "-10.25 to +14.75")
    table = Table(("method", "speedup by seconds", "PSNR, dB", "95 % interval"), [row])
    screen = StringIO()
    Console(file=screen, width=width).print(table)
    shown = screen.getvalue()
    assert max(map(len, shown.splitlines())) <= width
    assert set(" ".join(row).split()) <= set(shown.split())
    assert ("method" in shown) == (width >= 80)  # else a list of values under each method's name


def test_csv_holds_values_and_no_formula(tmp_path: Path):
    rows = [{"name": "=1+1", "dB": -1.5, "note": None}, {"name": "c", "dB": float("inf"), "note": "a, b"}]
    path = write_csv(tmp_path / "t.csv", ("name", "dB", "note"), rows)
    assert path.read_bytes() == b'name,dB,note\r\n\'=1+1,-1.5,\r\nc,inf,"a, b"\r\n'
