import functools
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from diffusers import WanPipeline
from PIL import Image

import galaxydit
from galaxydit.commands.demo_command import demo_table
from galaxydit.eval.demo import FILES, DemoResult, run_demo
from galaxydit.eval.demo_frames import demo_frames, typical_frame
from galaxydit.eval.metrics import PSNR, SI_SDR, SSIM
from galaxydit.pipelines.flac import load_flac
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.trial_result import TrialResult
from galaxydit.pipelines.video import GAP, LABEL_HEIGHT, load_sound, load_video

PROMPTS = ["a red ball moves left over a plain background", "a blue square orbits over a dotted background"]
BY_HAND = {"threshold": 0.3}


@pytest.fixture
def settings(tiny_settings: GenerationSettings) -> GenerationSettings:
    return replace(tiny_settings, steps=10)


def test_demo_measures_three_ways_against_the_plain_video(
    tiny_wan_pipeline: WanPipeline, settings: GenerationSettings, tmp_path: Path
):
    result = run_demo(tiny_wan_pipeline, PROMPTS, settings, 3, tmp_path, acceleration=BY_HAND, on_progress=print)
    plain = generate(tiny_wan_pipeline, PROMPTS[1], settings, seed=4).frames
    fewer = generate(tiny_wan_pipeline, PROMPTS[1], replace(settings, steps=5), seed=4).frames
    _, accelerated, half = result.ways.values()
    sample = half[1]
    assert sample.metrics == {"psnr": PSNR(fewer, plain), "ssim": SSIM(fewer, plain)}
    assert result.reason("si_sdr") == sample.skipped["si_sdr"] == "the video has no sound"
    assert sample.compute_fraction == 0.5
    assert result.mean("plain", "psnr") is None
    assert [len(way) for way in result.ways.values()] == [2, 2, 2]
    for sample, report in zip(accelerated, result.reports, strict=True):
        assert 0 < sample.compute_fraction <= 1
        assert sample.compute_fraction == report.compute_fraction
        assert 0 < sample.denoise_seconds < sample.end_to_end_seconds


def test_demo_leaves_the_pipeline_as_it_was(
    tiny_wan_pipeline: WanPipeline, settings: GenerationSettings, tmp_path: Path
):
    before = generate(tiny_wan_pipeline, PROMPTS[0], settings, seed=0).frames
    run_demo(tiny_wan_pipeline, PROMPTS[:1], settings, 0, tmp_path, acceleration=BY_HAND, on_progress=print)
    np.testing.assert_array_equal(generate(tiny_wan_pipeline, PROMPTS[0], settings, seed=0).frames, before)


def test_demo_writes_what_it_lists(tiny_wan_pipeline: WanPipeline, settings: GenerationSettings, tmp_path: Path):
    result = run_demo(
        tiny_wan_pipeline, PROMPTS[:1], settings, 0, tmp_path / "out", acceleration=BY_HAND, on_progress=print
    )
    assert {path.name for path in result.files} == {path.name for path in (tmp_path / "out").iterdir()}
    assert load_video(tmp_path / "out" / "baseline.mp4").shape == (5, 256, 256, 3)
    frames, height, width, _ = load_video(tmp_path / "out" / "side-by-side.mp4").shape
    assert (frames, height, width) == (5, 2 * 256 + 3 * LABEL_HEIGHT + GAP, 3 * 256 + 2 * GAP)
    assert Image.open(tmp_path / "out" / "side-by-side.png").size == (width, height)
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [variant["name"] for variant in report["variants"]] == ["plain", "accelerated", "5 plain steps"]
    assert report["variants"][0]["denoise_speedup"] == 1.0
    assert report["settings"]["steps"] == 10


@pytest.mark.filterwarnings("ignore::galaxydit.NoEffectWarning")
def test_demo_passes_its_options_on(tiny_wan_pipeline: WanPipeline, settings: GenerationSettings, tmp_path: Path):
    """Nothing may be reused at a threshold of zero, and then the video is the plain one, bit for bit."""
    result = run_demo(
        tiny_wan_pipeline, PROMPTS[:1], settings, 0, tmp_path, acceleration={"threshold": 0.0}, on_progress=print
    )
    (sample,) = result.ways["accelerated"]
    assert (sample.compute_fraction, sample.metrics["psnr"]) == (1.0, 120.0)
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["variants"][1]["samples"][0]["psnr"] == 120.0


def test_differences_are_shown_four_times_as_large_under_each_video(
    tiny_wan_pipeline: WanPipeline, settings: GenerationSettings, tmp_path: Path
):
    with galaxydit.accelerate(tiny_wan_pipeline, **BY_HAND) as acceleration:
        generate(tiny_wan_pipeline, PROMPTS[0], settings, seed=0)
    plain = np.full((2, 256, 256, 3), 0.2, np.float32)
    shown = demo_frames(
        [plain, plain + 0.1, plain], ["plain", "fast", "half"], ["1 s", "2 s", "3 s"], acceleration.report
    )
    below = shown[:, -128, :, 0]
    assert (below[:, 256 + GAP + 128] == 102).all()  # 4 x 0.1 of 255
    assert (below[:, -128] == 0).all()


def test_the_picture_shows_the_frame_of_a_typical_error():
    plain = np.zeros((4, 2, 2, 3), np.float32)
    video = plain + np.array([0.0, 0.1, 0.3, 0.9], np.float32)[:, None, None, None]
    assert typical_frame(video, plain) == 2  # squared errors 0, 0.01, 0.09 and 0.81 have the mean 0.23


def test_speedup_is_of_the_sums_of_seconds():
    """The mean of ratios would let one short prompt count as much as a long one."""

    def way(*seconds: float) -> tuple[TrialResult, ...]:
        return tuple(TrialResult(denoise_seconds=value) for value in seconds)

    result = DemoResult(GenerationSettings(), (), {"plain": way(3.0, 9.0), "fast": way(1.0, 5.0)}, (), ())
    assert result.speedup("fast", "denoise_seconds") == 2.0


def test_demo_refuses_no_prompts_and_a_single_step(
    tiny_wan_pipeline: WanPipeline, tiny_settings: GenerationSettings, tmp_path: Path
):
    with pytest.raises(ValueError, match=r"prompts=\(\) is not allowed: expected at least one prompt"):
        run_demo(tiny_wan_pipeline, [], tiny_settings, 0, tmp_path, acceleration={}, on_progress=print)
    with pytest.raises(ValueError, match="steps=1 is not allowed: expected an integer from 2"):
        run_demo(
            tiny_wan_pipeline, PROMPTS, replace(tiny_settings, steps=1), 0, tmp_path, acceleration={}, on_progress=print
        )


@pytest.mark.parametrize(("seconds", "is_disturbed"), [((10.0, 5.2, 4.9), False), ((10.0, 5.2, 1.0), True)])
def test_seconds_that_do_not_follow_the_compute_are_said_to_be_disturbed(seconds, is_disturbed):
    fractions = (1.0, 0.5, 0.5)
    ways = {
        name: (TrialResult(denoise_seconds=value, compute_fraction=fraction),)
        for name, value, fraction in zip("abc", seconds, fractions, strict=True)
    }
    assert bool(DemoResult(GenerationSettings(), (), ways, (), ()).disturbance) == is_disturbed


def test_the_demo_of_a_pipeline_with_sound_measures_and_keeps_it(
    tiny_wan_pipeline: WanPipeline, settings: GenerationSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    silent = WanPipeline.__call__

    @functools.wraps(silent)
    def call(pipe, *args, **kwargs):
        frames = silent(pipe, *args, **kwargs).frames
        return SimpleNamespace(frames=frames, audio=np.asarray(frames).reshape(1, -1)[:, :9000] - 0.5)

    monkeypatch.setattr(WanPipeline, "__call__", call)
    monkeypatch.setattr(WanPipeline, "audio_sample_rate", 16000, raising=False)
    result = run_demo(tiny_wan_pipeline, PROMPTS[:1], settings, 0, tmp_path, acceleration=BY_HAND, on_progress=print)
    assert [path.name for path in result.files] == [*FILES, "baseline.flac", "accelerated.flac", "sound.png"]
    plain, accelerated = (load_flac(tmp_path / f"{name}.flac") for name in ("baseline", "accelerated"))
    (sample,) = result.ways["accelerated"]
    assert sample.metrics["si_sdr"] == SI_SDR(accelerated, plain)
    assert result.reason("si_sdr") == ""
    assert load_sound(tmp_path / "accelerated.mp4").rate == 16000
    with Image.open(tmp_path / "sound.png") as picture:
        assert picture.height > 500
    rows = json.loads((tmp_path / "report.json").read_text())["variants"]
    assert rows[1]["samples"][0]["rms_ratio"] == sample.metrics["rms_ratio"]
    assert rows[0]["samples"][0]["si_sdr"] is None
    table = demo_table(result)
    assert [*table.headings][-3:] == ["SI-SDR, dB", "log-mel, dB", "RMS ratio"]
    assert table.rows[1][-3] == f"{sample.metrics['si_sdr']:.2f}"
