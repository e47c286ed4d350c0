"""A report as HTML for notebooks: a small table, and a strip of the steps, without scripts and style sheets."""

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, Protocol

from galaxydit.foreign_text import one_line
from galaxydit.outcome import Reported, expected_fidelity

COMPUTED, REUSED = "#1f6f8b", "#f2a541"
MOST_ROWS = 8  # of the strip: transformers, branches and samples
WIDTH, HEIGHT, GAP = 720, 18, 4  # pixels of the strip, of a row, and between two rows
LABEL = 12  # pixels of a label's letters
# Where a page has no doctype, tables do not inherit colours and fonts.
TABLE = "border-collapse:collapse;color:inherit;font:inherit;margin-bottom:6px"
# The text has the notebook's colours; the two colours of the strip are seen on light and on dark ones.
CELL = "padding:2px 12px 2px 0;text-align:left;vertical-align:top"


class Shown(Reported, Protocol):
    """The part of a `galaxydit.report.Report` that a notebook shows."""

    @property
    def taken(self) -> str: ...
    @property
    def all_notes(self) -> Sequence[str]: ...


def report_html(report: Shown) -> str:
    """The HTML of a report. Names and notes, which models and users wrote, are escaped."""
    rows = "".join(
        f'<tr><th scope="row" style="{CELL}">{_text(name)}</th><td style="{CELL}">{_text(value)}</td></tr>'
        for name, value in _facts(report)
    )
    return f'<table style="{TABLE}">{rows}</table>{_strip(report) if report.calls else ""}'


def _text(value: object) -> str:
    return escape(one_line(str(value)))


def _facts(report: Shown) -> Iterator[tuple[str, str]]:
    fraction = report.compute_fraction
    reached = f"{1 / fraction:.2f}x" if fraction else "infinite"
    yield "asked for", "settings by hand" if report.goal is None else report.goal.text
    yield "reached", f"{reached} in block evaluations: {report.reused_steps} of {report.steps_run} steps reused"
    yield "expected PSNR", expected_fidelity(report).removeprefix("expected PSNR against the plain video: ")
    yield "took", report.taken
    reasons = Counter(reason for _, reason in report.computed_steps)
    if reasons:
        yield "computed because of", ", ".join(f"{each.value} ({count})" for each, count in reasons.most_common())
    for note in report.all_notes:
        yield "note", note


def _strip(report: Shown) -> str:
    """An SVG with a row for each branch: high dark cells are computed steps, low light ones reused."""
    calls: dict[str, list[Any]] = {}
    for call, label in zip(report.calls, _labels(report.calls), strict=True):
        calls.setdefault(label, []).append(call)
    shown = dict(list(calls.items())[:MOST_ROWS])
    left = 8 + 7 * max(map(len, shown))
    step_width = (WIDTH - left) / report.steps
    parts = []
    for row, (label, of_row) in enumerate(shown.items()):
        top = row * (HEIGHT + GAP)
        parts.append(
            f'<text x="0" y="{top + HEIGHT - 4}" font-size="{LABEL}" fill="currentColor">{_text(label)}</text>'
        )
        for call in of_row:
            height = HEIGHT / 2 if call.reused else HEIGHT  # so that print and colour-blind readers see it, too
            what = f"step {call.step}: {'reused' if call.reused else 'computed'}, {call.reason.value}"
            parts.append(
                f'<rect x="{left + call.step * step_width:.1f}" y="{top + HEIGHT - height:.0f}" '
                f'width="{max(step_width - 1, 0.5):.1f}" height="{height:.0f}" '
                f'fill="{REUSED if call.reused else COMPUTED}"><title>{_text(what)}</title></rect>'
            )
    height = len(shown) * (HEIGHT + GAP)
    what = f"{report.reused_steps} of {report.steps_run} steps reused"
    more = f"; {len(calls) - len(shown)} more rows are not shown" if len(calls) > len(shown) else ""
    return (
        f'<svg role="img" aria-label="{what}" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'style="max-width:100%;height:auto;font-family:sans-serif">{"".join(parts)}</svg>'
        f'<div>steps 0 to {report.steps - 1}: <span style="color:{COMPUTED}">&#9608;</span> computed, '
        f'<span style="color:{REUSED}">&#9604;</span> reused{more}</div>'
    )


def _labels(calls: Sequence[Any]) -> list[str]:
    """The row of each call: its branch, with transformer and sample where there are several."""
    has_transformers = len({call.transformer for call in calls}) > 1
    has_samples = len({call.sample for call in calls}) > 1
    labels = []
    for call in calls:
        label = f"{call.transformer} {call.branch}" if has_transformers else call.branch
        labels.append(f"{label} sample {call.sample}" if has_samples else label)
    return labels
