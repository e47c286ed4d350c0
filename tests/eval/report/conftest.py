"""Finished runs made without a model, and a browser to look at their reports. Also used by measure_loading.py."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from galaxydit.eval.jobs.job import Job, Variant
from galaxydit.eval.jobs.record import SOUND, SPECTROGRAM, THUMBNAIL, VIDEO, VideoRecord, to_plain
from galaxydit.eval.jobs.run_job import open_run
from galaxydit.eval.spectrogram import encode_spectrogram
from galaxydit.pipelines.flac import encode_flac
from galaxydit.pipelines.runs import Record, Store, Unit
from galaxydit.pipelines.trial_result import TrialResult
from galaxydit.pipelines.video import Sound, encode_thumbnail, encode_video

STEPS, FRAMES, SIZE, FPS = 20, 16, 64, 8.0
RATE = 16000  # Hz, of sound
LOOKS = 6  # prompts whose videos differ; the next ones look like the first
NASTY = (
    "<script>document.title = 'broken'</script><!-- a red ball",
    "</script><img src=x onerror=\"document.title='broken'\">",
    "../../etc/passwd C:\\videos\\..\\a/b",
    "a cat 🐈 chases a ball ⚽ 日本語 naïve & \"quoted\" 'text'",
    "a very long caption " * 15,
    "a red ball!",
    "a red ball?",
    '=cmd() "a, b"\nand a second line',
)
"""Markup, path separators, emoji, 300 characters, two that are equal once cleaned for a file name, a cell formula."""

VARIANTS = {"baseline": 1.0, "galaxydit-2x": 2.0, "galaxydit-3x": 3.0, "half-steps": 2.05}
SETTINGS = {"height": SIZE, "width": SIZE, "num_frames": FRAMES, "steps": STEPS, "guidance_scale": 6.0, "fps": FPS}


def moving_square(colour: Sequence[int], shift: int, size: int = SIZE) -> np.ndarray:
    """A square that crosses a grey video `(frames, size, size, 3)` uint8."""
    video = np.full((FRAMES, size, size, 3), 200, np.uint8)
    for index in range(FRAMES):
        left = (index * 3 + shift) % (size - 16)
        video[index, 16:32, left : left + 16] = colour
    return video


def decisions(speedup: float) -> dict[str, Any]:
    """What a report keeps of each call, for as many computed steps as this speedup leaves."""
    computed = set(np.linspace(0, STEPS - 1, round(STEPS / speedup)).round().astype(int).tolist())
    calls = [
        {"step": step, "branch": branch, "transformer": "transformer", "reused": step not in computed}
        for step in range(STEPS)
        for branch in ("cond", "uncond")
    ]
    return {"calls": calls, "reused_steps": STEPS - len(computed)}


def make_record(unit: Unit, speedup: float, rng: np.random.Generator) -> VideoRecord:
    """A finished unit: faster variants are worse, later prompts too."""
    variant, index = unit.data["variant"]["name"], unit.data["prompt_index"]
    is_baseline = variant == "baseline"
    psnr = 44 - 6 * speedup - 0.2 * (index % 40) + rng.normal(0, 1.5)
    metrics = {"temporal_flickering": 0.97 + rng.normal(0, 0.004)}
    if not is_baseline:
        metrics |= {"psnr": psnr, "ssim": 1 - 10 ** (-psnr / 16)}
    return VideoRecord(
        unit=unit.id,
        data=unit.data,
        seconds=3.0,
        **{name: unit.data[name] for name in ("prompt", "prompt_index", "seed", "sample")},
        variant=variant,
        status="done",
        attempts=1,
        frames_sha256="1" * 64,
        shape=(FRAMES, SIZE, SIZE, 3),
        settings=SETTINGS,
        denoise_seconds=3.0 / speedup * (1 + rng.normal(0, 0.02)),
        end_to_end_seconds=3.0 / speedup + 0.3,
        compute_fraction=1 / speedup,
        report=decisions(speedup) if variant.startswith("galaxydit") else None,
        metrics=metrics,
        skipped={"ms_ssim": "it has 64x64 pixels: expected sides of at least 176"},
        versions={"galaxydit": "1.0", "torch": "2.13.0", "diffusers": "0.42.1"},
        device="cpu x86_64",
        worker="node0:1",
        finished_at="2026-01-01T00:00:00Z",
    )


def fail(record: VideoRecord) -> VideoRecord:
    """The same unit, failed with a traceback that holds markup."""
    nothing = {name: getattr(TrialResult(), name) for name in vars(TrialResult())}
    trace = "Traceback (most recent call last):\n  <b>\nRuntimeError: out of memory <script>alert(1)</script>"
    return replace(record, status="failed", attempts=3, traceback=trace, **nothing)


def make_run(
    root: Path,
    prompts: Sequence[str],
    change: Callable[[VideoRecord], VideoRecord | None] = lambda record: record,
    variants: Mapping[str, float] = MappingProxyType(VARIANTS),
    samples: int = 1,
    lossless: bool = False,
    sound: bool = False,
) -> Path:
    """Write a run's folder with its records and videos. `change` sees every record and may change it or take it out."""
    job = Job(
        model="wan-tiny",
        prompts=tuple(prompts),
        samples=samples,
        baseline="baseline" in variants,
        variants=tuple(Variant(name, name.split("-")[0], {"speedup": variants[name]}) for name in variants),
        video="lossless" if lossless else "h264",
    )
    store, rng = open_run(root, job), np.random.default_rng(0)
    for unit in job.units():
        name, index = unit.data["variant"]["name"], unit.data["prompt_index"]
        record = make_record(unit, variants[name], rng)
        if sound:
            record = replace(record, sound_shape=(1, RATE * FRAMES // 8), sound_rate=RATE)
        record = change(record)
        if record is not None:
            place = index % LOOKS
            contents = encode_look(place, list(variants).index(name), lossless, sound) if record.is_done else {}
            put_record(store, unit, record, contents)
    return root


@cache
def encode_look(place: int, variant: int, lossless: bool, with_sound: bool) -> dict[str, bytes]:
    """The files of a unit: a square whose colour and start, and a tone whose pitch tell prompts and variants apart."""
    frames = moving_square([40 * place, 60, 200 - 30 * variant], place)
    sound, files = None, {}
    if with_sound:
        times = np.arange(RATE * FRAMES // 8) / RATE
        samples = 0.5 * np.sin(2 * np.pi * (300 + 200 * variant) * times)
        sound = Sound(samples[None].astype(np.float32), RATE)
        files = {SOUND: encode_flac(sound), SPECTROGRAM: encode_spectrogram(sound)}
    video = encode_video(frames, FPS, lossless=lossless, sound=sound)
    return files | {VIDEO: video, THUMBNAIL: encode_thumbnail(frames[0] / 255)}


def put_record(store: Store, unit: Unit, record: VideoRecord, contents: Mapping[str, bytes]) -> None:
    """Write a record with its files, as a worker does."""
    same = ("unit", "status", "attempts", "traceback", "worker", "finished_at")
    fields = {name: getattr(record, name) for name in same}
    result = to_plain(record) if record.is_done else None
    store.commit(Record(data=unit.data, seconds=3.0, result=result, **fields), contents)


@pytest.fixture
def nasty() -> tuple[str, ...]:
    """Prompts that break what does not treat them as data."""
    return NASTY


@pytest.fixture
def failing() -> Callable[[VideoRecord], VideoRecord]:
    """Turns a finished unit's record into that of a failed one."""
    return fail


@pytest.fixture
def run_of(tmp_path: Path) -> Callable[..., Path]:
    """`make_run` into a fresh folder."""
    return lambda *arguments, **options: make_run(tmp_path / "x", *arguments, **options)


@contextmanager
def open_browser(dark: bool = False) -> Iterator[Any]:
    """Headless Chromium without a network, 1280 pixels wide."""
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = str(find_chromium())
    # Rules send every host to nowhere; the sandbox needs rights that containers lack.
    for argument in (
        "headless=new",
        "no-sandbox",
        "disable-gpu",
        "disable-dev-shm-usage",
        "host-resolver-rules=MAP * ~NOTFOUND",
        "window-size=1280,1000",
        "autoplay-policy=user-gesture-required",
    ):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]},
        )
        yield driver
    finally:
        driver.quit()


def find_chromium() -> str | None:
    """Chromium's or Chrome's program, None where there is none."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium without a network; the test is skipped where it, its driver or selenium is not installed."""
    pytest.importorskip("selenium", reason="selenium is not installed: pip install 'galaxydit[test]'")
    if find_chromium() is None or shutil.which("chromedriver") is None:
        pytest.skip("chromium or chromedriver is not installed: apt-get install chromium chromium-driver")
    with open_browser() as driver:
        yield driver
