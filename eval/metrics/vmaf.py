"""VMAF, computed by the ffmpeg of the package imageio-ffmpeg."""

import json
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

from galaxydit.eval.metrics.metric import Metric, Video, float_pair
from galaxydit.pipelines.video import to_uint8

RATE = 25  # frames per second; has no effect on the result
LOG = "vmaf.json"


def _measure(video: Video, reference: Video | None, prompt: str) -> float:
    videos = float_pair(video, reference)
    frames, height, width = video.shape[:3]
    # Without timestamps counted from the frames alone, ffmpeg may pair frame i with frame i + 1.
    align = f"settb=1/{RATE},setpts=N,format=yuv420p"
    with TemporaryDirectory() as folder:
        command = [_ffmpeg(), "-hide_banner", "-nostdin", "-loglevel", "error"]
        for name, array in zip(("video.rgb", "reference.rgb"), videos, strict=True):
            to_uint8(array).tofile(Path(folder, name))
            command += ["-f", "rawvideo", "-pixel_format", "rgb24", "-video_size", f"{width}x{height}"]
            command += ["-framerate", str(RATE), "-i", name]
        filters = f"[0:v]{align}[video];[1:v]{align}[reference];[video][reference]libvmaf=log_fmt=json:log_path={LOG}"
        command += ["-lavfi", filters, "-f", "null", "-"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        log = Path(folder, LOG)
        if done.returncode or not log.is_file():
            raise RuntimeError(f"ffmpeg's libvmaf failed with exit status {done.returncode}: {done.stderr.strip()}")
        values = [frame["metrics"]["vmaf"] for frame in json.loads(log.read_text())["frames"]]
    if len(values) != frames:
        raise RuntimeError(f"ffmpeg's libvmaf compared {len(values)} frames of {frames}")
    return fmean(values)


def _missing() -> str | None:
    if find_spec("imageio_ffmpeg") is None:
        return "imageio-ffmpeg is not installed: pip install 'galaxydit[vmaf]'"
    if not _has_libvmaf():
        return "the ffmpeg of imageio-ffmpeg has no libvmaf here: set IMAGEIO_FFMPEG_EXE to an ffmpeg with libvmaf"
    return None


@cache
def _has_libvmaf() -> bool:
    listed = subprocess.run([_ffmpeg(), "-hide_banner", "-filters"], capture_output=True, text=True)
    return " libvmaf " in listed.stdout


def _ffmpeg() -> str:
    from imageio_ffmpeg import get_ffmpeg_exe

    return str(get_ffmpeg_exe())


VMAF = Metric(
    name="vmaf",
    title="VMAF",
    high=100.0,
    function=_measure,
    missing=_missing,
    min_side=32,  # libvmaf crashes on frames that its four scales do not fit in
)
"""Netflix's fused quality metric, the mean over frames; from 0 to 100.

A regression, trained on ratings of 1080p television, from the luma's VIF at four scales, loss of detail and motion,
by libvmaf with its default model in ffmpeg, on 8-bit yuv420p (github.com/Netflix/vmaf). Equal videos score somewhat
below 100, because frames without motion score below 100. Raises RuntimeError if ffmpeg fails.
"""
