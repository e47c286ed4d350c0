"""How long Chromium takes to open a report of 4 variants and 32 prompts; `python tests/eval/report/measure_loading.py`.

Prints the medians of five openings, videos embedded and linked: until the page is loaded and laid out, and until the
first row's videos show a frame. `--keep FOLDER` keeps the run and screenshots of the page there.
"""

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

from conftest import NASTY, make_run, open_browser
from rich.console import Console

from galaxydit.eval.report.page import write_page
from galaxydit.eval.report.read_run import read_run

PROMPTS = 32
OPENINGS = 5
FIRST_FRAMES = """
const row = document.querySelector("#prompts tbody:not([hidden])");
return [...row.querySelectorAll("video")].every((video) => video.readyState >= 2);
"""
LOADED = "return performance.getEntriesByType('navigation')[0].loadEventEnd / 1000;"


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path)
    keep = parser.parse_args().keep
    console = Console()
    with tempfile.TemporaryDirectory() as scratch:
        root = keep or Path(scratch, "x")
        if not root.exists():
            ordinary = [f"a ball of colour {index} rolls from left to right over a table" for index in range(PROMPTS)]
            make_run(root, [*NASTY, *ordinary][:PROMPTS])
        for embed in (True, False):
            path = write_page(read_run(root), root / f"report-{'embedded' if embed else 'linked'}.html", embed)
            loaded, first = zip(*(open_once(path) for _ in range(OPENINGS)), strict=True)
            console.print(
                f"{path.name}, {path.stat().st_size / 2**20:.1f} MiB: loaded after {median(loaded):.2f} s, "
                f"first row's videos after {median(first):.2f} s",
                highlight=False,
            )


def open_once(path: Path) -> tuple[float, float]:
    """Seconds until the load event, and until the first row of videos can be seen."""
    with open_browser() as driver:
        start = time.perf_counter()
        driver.get(path.resolve().as_uri())
        loaded = driver.execute_script(LOADED)
        driver.execute_script("document.querySelector('#prompts tbody').scrollIntoView()")
        while not driver.execute_script(FIRST_FRAMES):
            time.sleep(0.02)
        return loaded, time.perf_counter() - start


if __name__ == "__main__":
    main()
