"""A table of text cells: in a terminal, as Markdown and as HTML; and a table of values as CSV."""

import csv
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod
from rich.table import Table as RichTable
from rich.text import Text

from galaxydit.files import replacing
from galaxydit.foreign_text import in_markdown, one_line, printable
from galaxydit.pipelines.disturbance import DISTURBED

CODE = re.compile("`([^`]+)`")  # in a cell of HTML
DASH = "-"
GAP = 2  # spaces between the columns of a terminal
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how a cell begins that a spreadsheet evaluates
UNITS_OF_TIME = (("h", 3600), ("min", 60))


@dataclass(frozen=True)
class Table:
    """`rows` of cells under `headings`; the first `labels` columns, and a last one of notes, are text, not numbers."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    labels: int = 1
    has_notes: bool = False

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, str]], leave_out: Sequence[str] = (), labels: int = 1) -> "Table":
        """A table of cells by heading; the first one names the row."""
        if not rows:
            return cls((), ())
        headings = [heading for heading in rows[0] if heading not in leave_out]
        return cls(headings, [[row[heading] for heading in headings] for row in rows], labels)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RichTable | Text]:
        """Columns of whole words: headings wrap, then the last column of text; lists of values if that is too wide."""
        if not self.headings:
            return
        headings = [one_line(heading) for heading in self.headings]
        rows = [[_terminal_cell(cell) for cell in row] for row in self.rows]
        widths = _widths(headings, rows, self.labels - 1, options.max_width)
        if widths is None:
            yield Text("\n".join(_as_list(headings, row) for row in rows))
            return
        table = RichTable(
            box=SIMPLE_HEAD,
            show_edge=False,
            show_header=any(headings),
            padding=(0, GAP - 1, 0, 0),
            pad_edge=False,
        )
        for index, (heading, width) in enumerate(zip(headings, widths, strict=True)):
            justify: JustifyMethod = "left" if index < self.labels else "right"
            table.add_column(Text(heading), width=width, justify=justify)
        for row in rows:
            table.add_row(*map(Text, row))
        yield table

    def markdown(self) -> str:
        """The table as Markdown, with escaped cells; "" without columns."""
        if not self.headings:
            return ""
        rules = ["---" if index < self.labels else "---:" for index in range(len(self.headings))]
        if self.has_notes:
            rules[-1] = "---"
        lines = [_markdown_line(self.headings), f"| {' | '.join(rules)} |"]
        lines += [_markdown_line(row) for row in self.rows]
        return "\n".join(lines)

    def html(self) -> str:
        """A `<table>` with escaped cells; columns of text have the class "text", the first cell names its row."""
        text = {*range(self.labels), *([len(self.headings) - 1] if self.has_notes else [])}
        head = "".join(_html_cell(cell, "th", 'scope="col"', index in text) for index, cell in enumerate(self.headings))
        body = "".join(f"<tr>{_html_cells(row, text)}</tr>" for row in self.rows)
        heading = f"<thead><tr>{head}</tr></thead>" if any(self.headings) else ""
        return f'<table class="plain">{heading}<tbody>{body}</tbody></table>'


def write_csv(path: Path, columns: Collection[str], rows: Iterable[Mapping[str, Any]]) -> Path:
    """Write UTF-8 CSV (RFC 4180) and return its path: absent values are empty, infinite ones `inf`.

    Text that begins like a formula gets an apostrophe, so that no spreadsheet evaluates it
    (owasp.org/www-community/attacks/CSV_Injection).
    """
    with replacing(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows({name: _inert(value) for name, value in row.items()} for row in rows)
    return path


def _inert(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(FORMULA):
        return f"'{value}"
    return value


def _terminal_cell(cell: str) -> str:
    """A cell in one line; disturbed seconds take two lines, which keeps their column narrow."""
    return one_line(cell).replace(DISTURBED, f",\n{DISTURBED[2:]}")


def _widths(
    headings: Sequence[str], rows: Sequence[Sequence[str]], text_column: int, max_width: int
) -> list[int] | None:
    """Widths of the columns in a terminal; None if they do not fit.

    Headings wrap into as few lines as fit. If no number of lines fits, cells of the column `text_column` wrap, too.
    """
    columns = [[line for row in rows for line in row[index].split("\n")] for index in range(len(headings))]
    needed = [max(map(cell_len, column), default=0) for column in columns]
    free = max_width - GAP * (len(headings) - 1)
    most_lines = 1 + max(heading.count(" ") for heading in headings)
    for lines in range(1, most_lines + 1):
        narrowest = [_narrowest(heading, lines) for heading in headings]
        widths = [max(pair) for pair in zip(needed, narrowest, strict=True)]
        if sum(widths) <= free:
            return widths
    left = free - (sum(widths) - widths[text_column])
    words = [word for line in (headings[text_column], *columns[text_column]) for word in line.split()]
    if left < max(map(cell_len, words), default=0):
        return None
    widths[text_column] = min(widths[text_column], left)
    return widths


def _narrowest(heading: str, lines: int) -> int:
    """The width at which a heading takes at most so many lines of whole words, or its longest word's."""
    longest_word = max(map(cell_len, heading.split()), default=0)
    for width in range(longest_word, cell_len(heading)):
        if len(wrap(heading, width or 1)) <= lines:
            return width
    return cell_len(heading)


def _as_list(headings: Sequence[str], row: Sequence[str]) -> str:
    lines = [row[0]]
    for heading, cell in zip(headings[1:], row[1:], strict=True):
        if cell:
            lines.append(f"  {heading}: {cell}" if heading else f"  {cell}")
    return "\n".join(lines)


def _markdown_line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(in_markdown, cells))} |"


def _html_cells(row: Sequence[str], text: Collection[int]) -> str:
    first, *others = row
    cells = [_html_cell(cell, "td", "", index in text) for index, cell in enumerate(others, 1)]
    return _html_cell(first, "th", 'scope="row"', 0 in text) + "".join(cells)


def _html_cell(cell: str, tag: str, attribute: str, is_text: bool) -> str:
    attributes = [tag, *filter(None, (attribute, 'class="text"' if is_text else ""))]
    code = CODE.sub(r"<code>\1</code>", escape(printable(cell)))
    return f"<{' '.join(attributes)}>{code}</{tag}>"


def number(value: float | None, form: str) -> str:
    """The value in a format such as ".2f", or a dash for None."""
    return DASH if value is None else format(value, form)


def digits(value: float) -> str:
    """The value with three significant digits, and without an exponent."""
    if 0 < value < 0.01:
        return "<0.01"
    if value < 1e6:
        return f"{float(f'{value:.3g}'):,g}"
    return f"{value:,.0f}"


def amounts(
    seconds: float, *, gpus: int = 1, joules: float | None = None, price: float | None = None, size: float | None = None
) -> str:
    """Text such as "18.2 h, 36.4 GPU hours, 82 kWh, price 91, 5.1 GB of files"; `size` is in bytes."""
    parts = [_duration(seconds)]
    if gpus > 0:
        parts.append(f"{digits(seconds * gpus / 3600)} GPU hours")
    if joules is not None:
        parts.append(f"{digits(joules / 3.6e6)} kWh")
    if price is not None:
        parts.append(f"price {digits(price)}")
    if size is not None:
        parts.append(f"{digits(size / 1e9)} GB of files")
    return ", ".join(parts)


def _duration(seconds: float) -> str:
    for unit, length in UNITS_OF_TIME:
        if seconds >= length:
            return f"{digits(seconds / length)} {unit}"
    return f"{digits(seconds)} s"
