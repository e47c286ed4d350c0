"""Tables in Markdown."""

from collections.abc import Container, Iterable, Sequence


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], labels: Container[str] = ()) -> str:
    """A table; the columns under `labels` are texts, the others numbers."""
    rules = ["---" if heading in labels else "---:" for heading in headings]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (headings, rules, *rows))
