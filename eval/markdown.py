"""Tables in Markdown."""

from collections.abc import Container, Iterable, Sequence


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], labels: Container[str] = ()) -> str:
    """A Markdown table. Columns with a heading in `labels` are text, aligned left; the others are aligned right."""
    rules = ["---" if heading in labels else "---:" for heading in headings]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (headings, rules, *rows))


def digits(value: float) -> str:
    """The value with three significant digits, and without an exponent."""
    return "<0.01" if 0 < value < 0.01 else f"{float(f'{value:.3g}'):,g}" if value < 1e6 else f"{value:,.0f}"
