"""Tables in Markdown."""

from collections.abc import Container, Iterable, Sequence


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], labels: Container[str] = ()) -> str:
    """A Markdown table. Columns with a heading in `labels` are text, aligned left; the others are aligned right."""
    rules = ["---" if heading in labels else "---:" for heading in headings]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (headings, rules, *rows))
