import subprocess

import numpy as np
import pytest
from imageio_ffmpeg import get_ffmpeg_exe

from galaxydit.eval.metrics import METRICS
from galaxydit.eval.metrics import vmaf as module
from galaxydit.eval.metrics.vmaf import VMAF
from galaxydit.pipelines.video import save_video


def vmaf(video, reference):
    return VMAF(video, reference)


def test_frames_are_paired_one_to_one(pair):
    _, reference = pair
    assert vmaf(reference, reference) > 95
    assert vmaf(reference[1:], reference[:-1]) < 60


def test_it_is_what_ffmpeg_says_of_the_same_frames_in_files(pair, tmp_path):
    for name, frames in zip(("video", "reference"), pair, strict=True):
        save_video(frames, tmp_path / f"{name}.mp4", 25, lossless=True)
    filters = ";".join(f"[{i}:v]settb=1/25,setpts=N,format=yuv420p[{name}]" for i, name in enumerate("vr"))
    command = [get_ffmpeg_exe(), "-i", "video.mp4", "-i", "reference.mp4", "-lavfi", f"{filters};[v][r]libvmaf"]
    done = subprocess.run([*command, "-f", "null", "-"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert float(done.stderr.rpartition("VMAF score: ")[2].split()[0]) == pytest.approx(vmaf(*pair), abs=1e-4)


def test_more_noise_means_a_lower_value(pair):
    video, reference = pair
    worse = np.clip(reference + 3 * (video - reference), 0, 1)
    assert vmaf(worse, reference) < vmaf(video, reference)


def test_small_frames_are_refused_before_ffmpeg_would_crash():
    small = np.zeros((2, 30, 64, 3))
    with pytest.raises(ValueError, match="30x64 pixels: expected sides of at least 32"):
        vmaf(small, small)


def test_what_is_missing_is_named_with_its_cure(monkeypatch):
    monkeypatch.setattr(module, "_has_libvmaf", lambda: False)
    assert "IMAGEIO_FFMPEG_EXE" in METRICS["vmaf"].missing()
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    assert "pip install 'galaxydit[vmaf]'" in METRICS["vmaf"].missing()


def test_a_failing_ffmpeg_raises_with_its_words(pair, monkeypatch):
    monkeypatch.setattr(module, "LOG", "no-such-folder/log.json")
    with pytest.raises(RuntimeError, match="libvmaf failed"):
        vmaf(*pair)
