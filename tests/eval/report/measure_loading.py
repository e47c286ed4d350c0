"""How long a report takes to write and to open in Chromium; `python tests/eval/report/measure_loading.py`.

The run has 32 prompts in 4 variants; `--prompts 1000 --variants 5` is the size that reports are made for. Prints the
seconds of status, export and report, the size of the page, and the medians of five openings: until the page is loaded
and laid out, until the thumbnails of the first rows are there, and until the first row's videos show a frame. `--keep
FOLDER` keeps the run, and screenshots of the page at widths of 1280 and 390 pixels.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from conftest import NASTY, make_run, open_browser
from rich.console import Console

from galaxydit.eval.jobs.record import VideoRecord
from galaxydit.eval.jobs.run_job import load_run
from galaxydit.eval.report.export import write_csv
from galaxydit.eval.report.page import write_page
from galaxydit.eval.report.read_run import read_run

STEPS = 50
OPENINGS = 5
WIDTHS = (1280, 390)
FIRST_POSTERS = """
const row = document.querySelector("#prompts tbody");
return row !== null && [...row.querySelectorAll("video")].every((video) => video.poster);
"""
FIRST_FRAMES = """
const row = document.querySelector("#prompts tbody");
return [...row.querySelectorAll("video")].every((video) => video.readyState >= 2);
"""
LOADED = "return performance.getEntriesByType('navigation')[0].loadEventEnd / 1000;"
console = Console(highlight=False)


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--variants", type=int, default=3)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = options.keep or Path(scratch, "x")
        if not root.exists():
            count = options.prompts
            ordinary = [f"a ball of colour {index} rolls from left to right over a table" for index in range(count)]
            speedups = {"baseline": 1.0} | {
                f"galaxydit-{1.5 + 0.5 * n:g}x": 1.5 + 0.5 * n for n in range(options.variants)
            }
            make_run(root, [*NASTY, *ordinary][:count], detailed, variants=speedups)
        run = timed("reading, as export and report do", lambda: read_run(root))
        timed("status", lambda: [record for record in run.store.survey([u.id for u in load_run(root)[1].units()])])
        timed("results.csv", lambda: write_csv(run, root / "results.csv"))
        for embed in (True, False):
            path = root / f"report-{'embedded' if embed else 'linked'}.html"
            timed(path.name, lambda path=path, embed=embed: write_page(run, path, embed))
            times = zip(*(open_once(path) for _ in range(OPENINGS)), strict=True)
            loaded, posters, frames = (median(each) for each in times)
            console.print(
                f"{path.name}, {path.stat().st_size / 2**20:.1f} MiB: loaded after {loaded:.2f} s, first row after "
                f"{posters:.2f} s, its videos after {frames:.2f} s"
            )
        if options.keep:
            take_pictures(root / "report-linked.html")


def detailed(record: VideoRecord) -> VideoRecord:
    """The same unit with as many metrics, and as large a report of 50 steps in two branches, as real ones have."""
    rng = np.random.default_rng(record.prompt_index)
    more = (
        {"vmaf": 90 + rng.normal(), "lpips": abs(rng.normal()) / 10, "ms_ssim": 0.97}
        if "psnr" in record.metrics
        else {}
    )
    record = replace(record, metrics={**record.metrics, **more})
    if record.report is None:
        return record
    common = {"sigma": 0.7780246734619141, "transformer": "transformer", "reason": "schedule", "distance": None}
    common |= {
        "accumulated": None,
        "blocks_run": 30.0,
        "blocks": 30,
        "expected_error": 0.14845692603041333,
        "sample": 0,
    }
    calls = [
        {"step": step, "branch": branch, "reused": step > 9 and step % 3 > 0, **common}
        for step in range(STEPS)
        for branch in ("cond", "uncond")
    ]
    return replace(record, report={**record.report, "calls": calls})


def timed(what: str, work: Callable[[], Any]) -> Any:
    """Print how long it takes, and return its result."""
    start = time.perf_counter()
    result = work()
    console.print(f"{what}: {time.perf_counter() - start:.2f} s")
    return result


def open_once(path: Path) -> tuple[float, float, float]:
    """Seconds until the load event, until the first row is there, and until its videos can be seen."""
    with open_browser() as driver:
        start = time.perf_counter()
        driver.get(path.resolve().as_uri())
        loaded = driver.execute_script(LOADED)
        posters = wait_for(driver, FIRST_POSTERS if "linked" in path.name else "return true") - start
        driver.execute_script("document.querySelector('#prompts tbody').scrollIntoView()")
        return loaded, posters, wait_for(driver, FIRST_FRAMES) - start


def wait_for(driver: Any, script: str) -> float:
    """The time when the script first returns true."""
    while not driver.execute_script(script):
        time.sleep(0.02)
    return time.perf_counter()


def take_pictures(path: Path) -> None:
    """Screenshots beside the page: its top and its prompts at each width."""
    with open_browser() as driver:
        for width in WIDTHS:
            metrics = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": width < 500}
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
            driver.get(path.resolve().as_uri())
            driver.save_screenshot(str(path.with_name(f"top-{width}.png")))
            driver.execute_script("document.querySelector('#prompts-title').scrollIntoView()")
            time.sleep(1)
            driver.save_screenshot(str(path.with_name(f"prompts-{width}.png")))


if __name__ == "__main__":
    main()
