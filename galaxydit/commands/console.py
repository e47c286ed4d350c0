"""Output of commands: results on stdout, messages and progress on stderr."""

import json
import math
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from textwrap import wrap
from typing import Any

import typer
from rich.console import Console, Group
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table as RichTable

from galaxydit.commands.exit_codes import ExitCode
from galaxydit.foreign_text import one_line, printable
from galaxydit.pipelines.heartbeat import QUIET, Heartbeat, draws_live
from galaxydit.pipelines.interrupts import heeding_interrupts
from galaxydit.pipelines.table import Table


@cache
def messages() -> Console:
    """The console of stderr. All messages share it, so that a warning does not tear a live display."""
    return Console(stderr=True)


def say(text: str, style: str | None = None) -> None:
    """Print one line to stderr, in a `style` of rich such as "red"."""
    messages().print(wrapped(text, messages()), style=style, markup=False, highlight=False, soft_wrap=True)


def show(*lines: object, console: Console | None = None) -> None:
    """Print each argument in lines of its own, by default to stdout: an empty line after a table, text wrapped in a
    terminal."""
    console = console or Console()
    for line in lines:
        if isinstance(line, Table | Group | RichTable):
            console.print(line, "")
        else:
            console.print(wrapped(line, console), markup=False, highlight=False, soft_wrap=True)


def wrapped(text: object, console: Console) -> str:
    """Printable text; in a terminal its lines break between words, and go on with the indentation of the line."""
    lines = printable(text).split("\n")
    if draws_live(console):
        lines = [part for line in lines for part in _parts(line, console.width)]
    return "\n".join(lines)


def _parts(line: str, width: int) -> list[str]:
    indent = re.match(r"\s*(- )?", line)
    spaces = " " * len(indent[0]) if indent else ""
    return wrap(line, width, subsequent_indent=spaces, break_long_words=False, break_on_hyphens=False) or [""]


def between_commas(*texts: str) -> list[str]:
    """The words of texts that may each hold several, separated by commas."""
    return [word.strip() for text in texts for word in text.split(",") if word.strip()]


def show_json(data: Any) -> None:
    """Print JSON to stdout: `data` itself, or the content of the JSON file if `data` is a `Path`."""
    content = json.loads(data.read_text(encoding="utf-8")) if isinstance(data, Path) else data
    sys.stdout.write(json.dumps(content, indent=2) + "\n")  # rich would colour it where FORCE_COLOR is set


@contextmanager
def resumable(how_far: Callable[[], str]) -> Iterator[None]:
    """End at Ctrl-C and SIGTERM with exit code 130 or 143, saying `how_far` and that the same command resumes."""
    code = ExitCode.INTERRUPTED

    def interrupt(*_: Any) -> None:
        nonlocal code
        code = ExitCode.TERMINATED
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one would disturb the clean-up
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        with heeding_interrupts():
            yield
    except KeyboardInterrupt:
        say(f"stopped, {how_far()}; run the same command again to continue")
        raise typer.Exit(code) from None
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def narrating() -> Iterator[Callable[[str], None]]:
    """Yield a `say` for stages; each silence of `QUIET` seconds says the last one again, with its seconds so far."""
    stage, began = "", time.monotonic()
    heart = Heartbeat(lambda _: say(f"{stage}: {time.monotonic() - began:.0f} s so far") if stage else None)

    def tell(text: str) -> None:
        nonlocal stage, began
        stage, began = text, time.monotonic()
        heart.said()
        say(text)

    with heart:
        yield tell


@contextmanager
def step_bar(unit: str = "step") -> Iterator[Callable[[int, int], None]]:
    """Yield a function of finished and all steps: a bar with the time left, or lines that name `unit`.

    There are about ten lines, and more after `QUIET` seconds without one. The time left is that of the steps after the
    first one, because the time before it is no step's.
    """
    if draws_live(messages()):
        columns = (f"{unit}s", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), "left")
        with Progress(*columns, console=messages(), transient=True) as progress:
            task = progress.add_task("", total=None)
            yield lambda done, total: progress.update(task, completed=done, total=total)
        return
    first: tuple[int, float] | None = None
    shown = time.monotonic()
    text = f"before the first {unit}"
    heart = Heartbeat(lambda seconds: say(f"{text}: {seconds:.0f} s so far"))

    def tell(done: int, total: int) -> None:
        nonlocal first, shown, text
        now = time.monotonic()
        first = first or (done, now)
        text = f"after {unit} {done} of {total}"
        heart.said()
        if done == total or done % math.ceil(total / 10) == 0 or now - shown >= QUIET:
            shown = now
            rate = (now - first[1]) / (done - first[0]) if done > first[0] else None
            left = "" if rate is None or done == total else f", {rate * (total - done):.0f} s left"
            say(f"{unit} {done} of {total}{left}")

    with heart:
        yield tell


@contextmanager
def download_bars() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function of file name, bytes so far and size (0 if unknown): a bar, or a line, for each file."""
    if draws_live(messages()):
        columns = ("{task.description}", DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        tasks: dict[str, TaskID] = {}
        with Progress(*columns, console=messages()) as progress:

            def draw(name: str, done: int, total: int) -> None:
                if name not in tasks:
                    tasks[name] = progress.add_task(escape(one_line(name)), total=total or None)
                progress.update(tasks[name], completed=done)

            yield draw
        return
    named: set[str] = set()

    def tell(name: str, _: int, total: int) -> None:
        if name not in named:
            named.add(name)
            say(f"downloading {name}" + (f", {total / 1e6:.1f} MB" if total else ""))

    yield tell
