"""A table of text cells, for a terminal, as Markdown and as HTML."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Column
from rich.table import Table as RichTable
from rich.text import Text

from galaxydit.pipelines.disturbance import DISTURBED
from galaxydit.pipelines.terminal import printable

DASH = "-"


@dataclass(frozen=True)
class Table:
    """`rows` of cells under `headings`; the first `labels` columns, and a last one of notes, are text, not numbers."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    labels: int = 1
    has_notes: bool = False

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, str]], leave_out: Sequence[str] = ()) -> "Table":
        """A table of cells by heading; the first one names the row."""
        headings = [heading for heading in (rows[0] if rows else ()) if heading not in leave_out]
        return cls(headings, [[row[heading] for heading in headings] for row in rows])

    def terminal(self, **options: Any) -> RichTable:
        """The table as rich prints it; `options` are those of rich's. Only the last column of text may wrap."""
        texts, numbers = self.headings[: self.labels], self.headings[self.labels :]
        columns = [Column(heading, no_wrap=True) for heading in texts[:-1]]
        columns += [Column(heading, overflow="fold") for heading in texts[-1:]]
        columns += [Column(heading, justify="right", no_wrap=True) for heading in numbers]
        table = RichTable(*columns, box=SIMPLE_HEAD, padding=(0, 0, 0, 1), **options)
        for row in self.rows:
            # Two lines keep the columns of disturbed seconds narrow.
            table.add_row(*(Text(printable(cell).replace(DISTURBED, f",\n{DISTURBED[2:]}")) for cell in row))
        return table

    def markdown(self) -> str:
        if not self.headings:
            return ""
        last = len(self.headings) - 1
        is_text = [index < self.labels or (self.has_notes and index == last) for index in range(last + 1)]
        rules = ["---" if text else "---:" for text in is_text]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in (self.headings, rules, *self.rows))

    def html(self) -> str:
        """A `<table>` with escaped cells."""
        head = "".join(f"<th>{escape(heading)}</th>" for heading in self.headings)
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in self.rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def number(value: float | None, form: str) -> str:
    """The value in a format such as ".2f", or a dash for None."""
    return DASH if value is None else format(value, form)


def digits(value: float) -> str:
    """The value with three significant digits, and without an exponent."""
    return "<0.01" if 0 < value < 0.01 else f"{float(f'{value:.3g}'):,g}" if value < 1e6 else f"{value:,.0f}"
