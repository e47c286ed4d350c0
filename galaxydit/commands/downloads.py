"""Progress of downloads: bars in a terminal, a line a file elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import DownloadColumn, Progress, TaskID, TimeRemainingColumn, TransferSpeedColumn

from galaxydit.commands.console import messages, say


@contextmanager
def download_bars() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function of a file's name, its bytes so far and all of them, 0 where they are not known."""
    if messages().is_terminal:
        columns = ("{task.description}", DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        tasks: dict[str, TaskID] = {}
        with Progress(*columns, console=messages()) as progress:

            def draw(name: str, done: int, total: int) -> None:
                if name not in tasks:
                    tasks[name] = progress.add_task(name, total=total or None)
                progress.update(tasks[name], completed=done)

            yield draw
        return
    named: set[str] = set()

    def tell(name: str, _: int, total: int) -> None:
        if name not in named:
            named.add(name)
            say(f"downloading {name}" + (f", {total / 1e6:.1f} MB" if total else ""))

    yield tell
