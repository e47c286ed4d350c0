"""Jobs of pipelines that make sound: what is stored, measured, gated and shown."""

import functools
import re
import tomllib
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from command_line import exit_code
from diffusers import WanPipeline
from PIL import Image

from galaxydit.eval.jobs.gates import Gates
from galaxydit.eval.jobs.job import Job, Variant
from galaxydit.eval.jobs.jobfile import read_job
from galaxydit.eval.jobs.maker import VideoMaker
from galaxydit.eval.jobs.run_job import open_run, run_job
from galaxydit.eval.metrics import LOG_MEL, SI_SDR
from galaxydit.eval.metrics import METRICS as ALL
from galaxydit.eval.report.page import write_page
from galaxydit.eval.report.payload import page_data
from galaxydit.eval.report.read_run import Run, read_run
from galaxydit.eval.report.verdicts import check_run
from galaxydit.eval.spectrogram import encode_spectrogram, rms_of_tenths
from galaxydit.pipelines.flac import encode_flac, load_flac
from galaxydit.pipelines.generate import GeneratedVideo
from galaxydit.pipelines.runs import Outcome, Unit, run
from galaxydit.pipelines.video import Sound

checked = functools.partial(exit_code, "eval", "check")

RATE = 16000
METRICS = ("psnr", "si_sdr", "log_mel", "rms_ratio")
Change = Callable[[np.ndarray], np.ndarray]
CHANGES: dict[str, Change] = {
    "repeat": lambda samples: samples,
    "backwards": lambda samples: samples[:, ::-1],
    "louder": lambda samples: 2 * samples,
    "quieter": lambda samples: 0.7 * samples,
    "silent": lambda samples: 0 * samples,
}


def plain_sound(seed: int) -> np.ndarray:
    """Noise of 0.6 s whose loudness and colour change, in stereo."""
    noise = np.random.default_rng(seed).normal(0, 0.1, (2, 9601))
    return (noise * np.linspace(0.2, 1, 9601) + np.roll(noise, 1)).clip(-0.5, 0.5).astype(np.float32)


@pytest.fixture
def sound_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, invented_maker: Callable[..., VideoMaker], invented_job: Job
) -> Callable[..., Run]:
    """Makes a run of these variants, whose videos are invented and whose sounds are changed as their names say."""

    def make(*names: str, sound: bool = True) -> Run:
        variants = tuple(Variant(name, "galaxydit") for name in names)
        job = replace(invented_job, variants=(*invented_job.variants[:1], *variants), metrics=METRICS)
        maker, invent = invented_maker(tmp_path / "run", job), VideoMaker._generate

        def with_sound(maker: VideoMaker, unit: Unit) -> GeneratedVideo:
            change = CHANGES.get(unit.data["variant"]["name"], CHANGES["repeat"])
            samples = np.ascontiguousarray(change(plain_sound(unit.data["seed"])))
            return replace(invent(maker, unit), sound=Sound(samples, RATE) if sound else None)

        monkeypatch.setattr(VideoMaker, "_generate", with_sound)
        assert run(job.units(), maker, maker.store) == Outcome(len(names) + 1, 0)
        return read_run(tmp_path / "run")

    return make


def test_a_gate_on_si_sdr_fails_a_reversed_sound_and_passes_a_plain_repetition(sound_job: Callable[..., Run]) -> None:
    root = sound_job("repeat", "backwards").root
    assert checked(root, "--min", "si_sdr=20", "--variant", "repeat") == 0
    assert checked(root, "--min", "si_sdr=20", "--variant", "backwards") == 1
    assert checked(root, "--min", "rms_ratio=0.99", "--max", "rms_ratio=1.01", "--variant", "backwards") == 0


def test_the_gates_of_the_page_fail_a_reversed_and_a_quiet_sound_and_pass_a_repetition(
    sound_job: Callable[..., Run],
) -> None:
    page = Path(__file__).parents[3] / "eval" / "README.md"
    blocks = re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    gates = tomllib.loads(next(block for block in blocks if "si_sdr" in block))["gates"]
    del gates["min"]["psnr"]  # the invented pictures have nothing in common
    verdicts = check_run(sound_job("repeat", "backwards", "quieter"), Gates(min=gates["min"], max=gates["max"]))
    failed = {(verdict.variant, verdict.name) for verdict in verdicts if not verdict.holds}
    assert ("backwards", "si_sdr") in failed
    assert {("quieter", "rms_ratio"), ("quieter", "log_mel")} <= failed
    assert not [variant for variant, _ in failed if variant == "repeat"]


def test_the_stored_waveform_gives_the_values_of_the_record_again(sound_job: Callable[..., Run]) -> None:
    finished = sound_job("repeat", "backwards")
    plain, repeat, backwards = finished.records
    sounds = [load_flac(finished.store.local_path(record.sound)) for record in finished.records]
    np.testing.assert_allclose(sounds[0].samples, plain_sound(0), atol=2.0**-24)
    assert (plain.sound_shape, plain.sound_rate) == ((2, 9601), RATE)
    assert repeat.metrics == repeat.metrics | {"si_sdr": 120.0, "log_mel": 0.0, "rms_ratio": 1.0}
    assert backwards.metrics["si_sdr"] == SI_SDR(sounds[2], sounds[0])
    assert backwards.metrics["log_mel"] == LOG_MEL(sounds[2], sounds[0])


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--min", "worst_rms_ratio=0.6", "--max", "worst_rms_ratio=2.1"], 0),
        (["--max", "worst_rms_ratio=1.9"], 1),
        (["--min", "worst_rms_ratio=0.8", "--variant", "quieter"], 1),
        (["--max", "worst_rms_ratio=1.1", "--variant", "quieter"], 0),
    ],
)
def test_gates_on_the_rms_ratio_judge_both_sides(sound_job: Callable[..., Run], options: list[str], code: int) -> None:
    assert checked(sound_job("louder", "quieter").root, *options) == code


def test_the_rms_ratio_that_is_farthest_from_1_is_the_worst(sound_job: Callable[..., Run]) -> None:
    finished = sound_job("louder", "quieter")
    data = page_data(finished, {}, "")
    assert [variant["estimates"]["rms_ratio"]["worst"] for variant in data["variants"][1:]] == pytest.approx(
        [2.0, 0.7], abs=1e-3
    )
    assert [figure["best"] for figure in data["figures"] if figure["key"] in ("psnr", "rms_ratio")] == [None, 1.0]


def test_silence_and_a_video_without_sound_have_no_value_and_say_why(sound_job: Callable[..., Run]) -> None:
    finished = sound_job("silent")
    assert list(finished.records[1].metrics) == ["psnr"]
    assert finished.records[1].skipped == dict.fromkeys(METRICS[1:], "its sound is silent")
    (verdict,) = check_run(finished, Gates(min={"si_sdr": -200.0}))
    assert (verdict.value, verdict.holds) == (None, False)


def test_the_page_of_videos_without_sound_says_so_in_one_line(sound_job: Callable[..., Run]) -> None:
    finished = sound_job("repeat", sound=False)
    data = page_data(finished, {}, "")
    assert data["skipped"] == ["SI-SDR, log-mel distance, RMS ratio for 1 video: the video has no sound"]
    assert not data["hasSound"]
    record = finished.records[1]
    assert (record.sound, record.spectrogram, record.sound_shape, record.sound_rate) == (None, None, None, None)


@pytest.mark.parametrize("embed", [True, False])
def test_the_page_shows_both_spectrograms(sound_job: Callable[..., Run], embed: bool) -> None:
    finished = sound_job("repeat", "backwards")
    assert finished.root is not None
    text = write_page(finished, finished.root / "report.html", embed).read_text(encoding="utf-8")
    for record in finished.records:
        content = finished.store.local_path(record.spectrogram).read_bytes()
        with Image.open(BytesIO(content)) as picture:
            assert picture.size == (38, 80)  # a window every 256 samples
        assert (record.spectrogram in text) != embed
    assert text.count('"spectrogram":"data:image/png;base64,') == (3 if embed else 0)
    assert '["sound","stereo, 16000 Hz, 0.60 s"]' in text
    assert text.count('"sound":{"seconds":0.6000625,"rate":16000}') == 3


@pytest.mark.parametrize("by_product", ["log_mel", "spectrogram.png"])
def test_a_by_product_of_sound_that_raises_is_named(
    sound_job: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, by_product: str
) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("no luck")

    if by_product == "log_mel":
        monkeypatch.setitem(ALL, by_product, replace(LOG_MEL, function=fail))
    else:
        monkeypatch.setattr("galaxydit.eval.jobs.maker.encode_spectrogram", fail)
    record = sound_job("repeat").records[1]
    assert record.failures == {by_product: "RuntimeError: no luck"}
    assert record.metrics["si_sdr"] == 120.0
    assert record.sound is not None


def test_low_tones_are_at_the_bottom_and_long_sounds_are_not_wider_than_a_screen() -> None:
    times = np.arange(20 * RATE) / RATE
    tone = Sound(np.sin(2 * np.pi * 100 * times)[None].astype(np.float32), RATE)
    with Image.open(BytesIO(encode_spectrogram(tone))) as picture:
        levels = np.asarray(picture.convert("L"))
    assert levels.shape == (80, 1024)
    assert levels[:, 500].argmax() > 70


def test_the_rms_is_of_each_tenth_of_a_second() -> None:
    samples = np.zeros((2, 4000), np.float32)
    samples[0, :1600], samples[1, :1600], samples[:, 3200:] = 0.5, -0.5, 0.25
    assert rms_of_tenths(Sound(samples, RATE)).tolist() == [0.5, 0.0, 0.25]


@pytest.fixture
def sounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wan's pipeline makes a sound of its frames, as Kandinsky 6 returns it."""
    silent = WanPipeline.__call__

    @functools.wraps(silent)
    def call(pipe: Any, *args: Any, **kwargs: Any) -> SimpleNamespace:
        frames = silent(pipe, *args, **kwargs).frames
        return SimpleNamespace(frames=frames, audio=np.asarray(frames).reshape(1, -1)[:, :4000] - 0.5)

    monkeypatch.setattr(WanPipeline, "__call__", call)
    monkeypatch.setattr(WanPipeline, "audio_sample_rate", RATE, raising=False)


def test_a_resumed_job_compares_with_the_stored_sound_of_the_baseline(
    sounding: None, job_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = replace(read_job(job_file), metrics=METRICS, prompts=("a red ball moves left",))
    whole = open_run(tmp_path / "whole", job)
    assert run_job(job, whole) == Outcome(3, 0)
    store = open_run(tmp_path / "parts", job)
    first = VideoMaker(job, store)
    run(job.units()[:1], first, store)

    def refuse(*_: Any) -> None:
        raise AssertionError("the baseline is denoised again")

    monkeypatch.setattr(VideoMaker, "_generate_again", refuse)
    assert run_job(job, store) == Outcome(3, 0)
    values = [[record.metrics for record in read_run(tmp_path / name).records] for name in ("whole", "parts")]
    assert values[0] == values[1]
    assert values[0][2].keys() == set(METRICS)
    assert -20 < values[0][2]["si_sdr"] < 60


def test_a_resumed_job_does_not_compare_with_a_sound_that_was_changed_on_disk(
    sounding: None, job_file: Path, tmp_path: Path
) -> None:
    job = replace(read_job(job_file), metrics=METRICS, prompts=("a red ball moves left",))
    assert run_job(job, open_run(tmp_path / "whole", job)) == Outcome(3, 0)
    store = open_run(tmp_path / "parts", job)
    run(job.units()[:1], VideoMaker(job, store), store)
    (path,) = (tmp_path / "parts").rglob("*.flac")
    sound = load_flac(path)
    path.write_bytes(encode_flac(replace(sound, samples=sound.samples[:, ::-1])))
    assert run_job(job, store) == Outcome(3, 0)
    values = [[record.metrics for record in read_run(tmp_path / name).records] for name in ("whole", "parts")]
    assert values[0] == values[1]


def test_a_comparison_keeps_the_sound_of_each_baseline(sounding: None, job_file: Path, tmp_path: Path) -> None:
    prompts = ("a red ball moves left", "a blue square orbits")
    job = replace(read_job(job_file), metrics=METRICS, prompts=prompts, comparison=True)
    run_job(job, open_run(tmp_path / "run", job))
    kept = {record.unit[:5] + record.variant: record for record in read_run(tmp_path / "run").records}
    assert all(record.metrics.keys() == set(METRICS) for name, record in kept.items() if "baseline" not in name)
    assert {name for name, record in kept.items() if record.sound} == {
        *("00000baseline", "00000galaxydit", "00000half", "00001baseline")
    }
