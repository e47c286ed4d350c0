"""Every page has the design's head, escapes what comes from outside, and loads nothing."""

import re
from html import unescape

from galaxydit.pipelines.page_design import Brief, box, coded, render_page
from galaxydit.pipelines.table import Table

NASTY = "<script>alert('x')</script> & \"a ball\" \x1b[31m"
BRIEF = Brief("galaxydit made two videos.", "They are equal.", "see them", "galaxydit eval report runs/x")
TEMPLATE = '{% extends "base.html" %}{% block main %}<p>{{ text }}</p>{{ box(table, text) }}{% endblock %}'


def page(text: str = "a ball", **values: object) -> str:
    table = Table(["name", "PSNR, dB"], [[text, "30.1"]])
    return render_page(TEMPLATE, text, BRIEF, text=text, table=table, **values)


def test_what_was_run_what_it_means_and_the_next_command_stand_before_everything_else() -> None:
    head = page().split("<main")[0]
    assert "What was run</dt><dd>galaxydit made two videos." in head
    assert "What it means</dt><dd>They are equal." in head
    assert "Next</dt><dd>see them: <code>galaxydit eval report runs/x</code>" in head


def test_text_from_outside_is_shown_as_text() -> None:
    made = page(NASTY, facts=[(NASTY, NASTY)], notes=[NASTY])
    assert "<script" not in made
    assert "\x1b" not in made
    assert made.count("&lt;script&gt;") == 8


def test_a_page_loads_nothing_and_serves_dark_windows_narrow_windows_and_paper() -> None:
    made = page(style="p { color: red; }", script="document.title;")
    assert not re.search(r"(?:src|href)=\"(?!data:|#)|https?:|@import|url\(", made)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', made)
    assert unescape(policy).startswith("default-src 'none';")
    assert "unsafe" not in policy
    for query in ("(prefers-color-scheme: dark)", "(max-width: 40rem)", "print"):
        assert f"@media {query}" in made


def test_a_table_scrolls_in_a_box_that_the_keyboard_reaches() -> None:
    made = box(Table(["name", "PSNR, dB"], [["a", "30.1"]]), 'scores at "2x"')
    assert made.startswith('<div class="scroll" role="region" tabindex="0" aria-label="scores at &#34;2x&#34;"><table')
    assert box(Table((), ()), "nothing") == ""


def test_code_between_backticks_is_escaped() -> None:
    assert coded("pass `a < b` or <b>") == "pass <code>a &lt; b</code> or &lt;b&gt;"
