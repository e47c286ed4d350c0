"""A table of text cells, for a terminal, as Markdown and as HTML."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import wrap

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.table import Column
from rich.table import Table as RichTable
from rich.text import Text

from galaxydit.foreign_text import in_markdown, one_line, printable
from galaxydit.pipelines.disturbance import DISTURBED

DASH = "-"
GAP = 2  # spaces between the columns of a terminal


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

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RichTable | Text]:
        """Columns of whole words: headings wrap, then the last column of text; lists of values if that is too wide."""
        if not self.headings:
            return
        headings = [one_line(heading) for heading in self.headings]
        # Two lines keep the columns of disturbed seconds narrow.
        rows = [[one_line(cell).replace(DISTURBED, f",\n{DISTURBED[2:]}") for cell in row] for row in self.rows]
        columns = [[line for row in rows for line in row[at].split("\n")] for at in range(len(headings))]
        widths = [max(map(cell_len, column), default=0) for column in columns]
        text, free = self.labels - 1, options.max_width - GAP * (len(headings) - 1)
        for lines in range(1, 2 + max(heading.count(" ") for heading in headings)):
            fitted = [max(width, _narrowest(name, lines)) for width, name in zip(widths, headings, strict=True)]
            if sum(fitted) <= free:
                break
        rest = free - sum(fitted) + fitted[text]
        if rest < max(
            (cell_len(word) for line in (headings[text], *columns[text]) for word in line.split()), default=0
        ):
            yield Text("\n".join(_as_list(headings, row) for row in rows))
            return
        fitted[text] = min(fitted[text], rest)
        table = RichTable(
            *(
                Column(Text(name), width=width, justify="left" if at <= text else "right")
                for at, (name, width) in enumerate(zip(headings, fitted, strict=True))
            ),
            box=SIMPLE_HEAD,
            show_edge=False,
            show_header=any(headings),
            padding=(0, GAP - 1, 0, 0),
            pad_edge=False,
        )
        for row in rows:
            table.add_row(*map(Text, row))
        yield table

    def markdown(self) -> str:
        if not self.headings:
            return ""
        last = len(self.headings) - 1
        is_text = [index < self.labels or (self.has_notes and index == last) for index in range(last + 1)]
        rules = ["---" if text else "---:" for text in is_text]
        shown = [[in_markdown(cell) for cell in cells] for cells in (self.headings, *self.rows)]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in (shown[0], rules, *shown[1:]))

    def html(self) -> str:
        """A `<table>` with escaped cells."""
        rows = "".join(f"<tr>{''.join(_in_html(cell, 'td') for cell in row)}</tr>" for row in self.rows)
        head = "".join(_in_html(heading, "th") for heading in self.headings)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _narrowest(heading: str, lines: int) -> int:
    """The width at which a heading takes at most so many lines of whole words, or its longest word's."""
    widths = range(max(map(cell_len, heading.split()), default=0), cell_len(heading) + 1)
    return next(width for width in widths if len(wrap(heading, width or 1)) <= lines or width == cell_len(heading))


def _in_html(cell: str, tag: str) -> str:
    return f"<{tag}>{escape(printable(cell))}</{tag}>"


def _as_list(headings: Sequence[str], row: Sequence[str]) -> str:
    values = zip(headings[1:], row[1:], strict=True)
    return "\n".join([row[0], *(f"  {name}{': ' * bool(name)}{cell}" for name, cell in values if cell)])


def number(value: float | None, form: str) -> str:
    """The value in a format such as ".2f", or a dash for None."""
    return DASH if value is None else format(value, form)


def digits(value: float) -> str:
    """The value with three significant digits, and without an exponent."""
    return "<0.01" if 0 < value < 0.01 else f"{float(f'{value:.3g}'):,g}" if value < 1e6 else f"{value:,.0f}"


def amounts(
    seconds: float, *, gpus: int = 1, joules: float | None = None, price: float | None = None, size: float | None = None
) -> str:
    """Text such as "18.2 h, 36.4 GPU hours, 82 kWh, price 91, 5.1 GB of files"; `size` is in bytes."""
    unit, length = next((unit, length) for unit, length in (("h", 3600), ("min", 60), ("s", 0)) if seconds >= length)
    parts = [f"{digits(seconds / (length or 1))} {unit}"]
    parts += [f"{digits(seconds * gpus / 3600)} GPU hours"] * (gpus > 0)
    parts += [] if joules is None else [f"{digits(joules / 3.6e6)} kWh"]
    parts += [] if price is None else [f"price {digits(price)}"]
    parts += [] if size is None else [f"{digits(size / 1e9)} GB of files"]
    return ", ".join(parts)
