"""Videos as inputs: they last as long as their files, what changes is said, and little memory is used."""

import gc
import math
import tracemalloc
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

from galaxydit.errors import DataWarning, GalaxyDiTError
from galaxydit.pipelines import clips
from galaxydit.pipelines.clips import first_image, fit_images, read_clip, read_videos
from galaxydit.pipelines.video import load_video, save_video


def write(path: Path, frames: int, fps: float) -> str:
    """A video whose frame k has the grey level 4 k."""
    levels = 4 * np.arange(frames, dtype=np.uint8)
    save_video(np.broadcast_to(levels[:, None, None, None], (frames, 16, 16, 3)), path, fps, lossless=True)
    return str(path)


def read(path: str, fps: float, *, num_frames: int | None = None, period: int | None = 4) -> list[int]:
    """The frames of the file that become the frames of the input."""
    (images,) = read_videos({"video": path}, fps=fps, size=None, period=period, num_frames=num_frames).values()
    return [image.getpixel((0, 0))[0] // 4 for image in images]


@pytest.mark.filterwarnings("ignore::galaxydit.DataWarning")
@pytest.mark.parametrize(
    ("frames", "rate", "fps"),
    [(16, 30, 16), (16, 16, 16), (14, 16, 16), (24, 24, 16), (10, 8, 16), (30, 29.97, 24), (61, 60, 24), (3, 1, 8)],
)
def test_the_input_lasts_as_long_as_its_file(frames: int, rate: float, fps: float, tmp_path: Path) -> None:
    shown = read(write(tmp_path / "a.mp4", frames, rate), fps)
    assert len(shown) % 4 == 1
    assert abs(len(shown) / fps - frames / rate) <= 2.5 / fps
    assert shown[0] == 0
    for place, frame in enumerate(shown):
        middle = (place + 0.5) * rate / fps  # of the image, in frames of the file
        if place > 0 and middle < frames:
            assert frame <= middle + 0.01
            assert middle - 0.01 <= frame + 1


@pytest.mark.filterwarnings("error::galaxydit.DataWarning")
def test_a_video_that_fits_is_read_as_it_is_without_a_word(tmp_path: Path) -> None:
    path = write(tmp_path / "a.mp4", 13, 16)
    assert read(path, 16) == list(range(13))
    assert read(path, 16, num_frames=13) == list(range(13))
    assert read(write(tmp_path / "one.mp4", 1, 30), 16) == [0]


@pytest.mark.parametrize(
    ("frames", "rate", "said"),
    [
        (32, 32, r"has 32 frames in 1\.00 s \(32 frames per second\) and is read as 17 frames in 1\.06 s \(16 frames"),
        (14, 16, r"read as 13 frames .*; its last 0\.06 s are left out to fit the number of frames"),
        (15, 16, r"read as 17 frames .*; its last frame is shown 0\.12 s longer to fit the number of frames"),
    ],
)
def test_lengths_and_rates_are_said_where_they_change(frames: int, rate: float, said: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.mp4", frames, rate)
    with pytest.warns(DataWarning, match=rf"video='.*a\.mp4' .*{said}"):
        read(path, 16)


@pytest.mark.filterwarnings("ignore::galaxydit.DataWarning")
def test_a_variable_frame_rate_keeps_its_times(tmp_path: Path) -> None:
    times = [0, 1, 2, 12, 13]  # sixteenths of a second
    with av.open(str(tmp_path / "a.mkv"), "w") as container:
        stream = container.add_stream("libx264rgb", rate=16)
        stream.width, stream.height, stream.pix_fmt, stream.options = 16, 16, "rgb24", {"qp": "0"}
        for index, time in enumerate(times):
            frame = av.VideoFrame.from_ndarray(np.full((16, 16, 3), 4 * index, np.uint8), format="rgb24")
            frame.pts = time
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    assert read(str(tmp_path / "a.mkv"), 16, period=None) == [0, 1, *[2] * 10, 3, 4]


def test_joined_files_whose_times_begin_anew_are_read_whole(tmp_path: Path) -> None:
    with av.open(str(tmp_path / "a.ts"), "w") as container:
        stream = container.add_stream("mpeg2video", rate=25)
        stream.width, stream.height, stream.pix_fmt = 16, 16, "yuv420p"
        for _ in range(50):
            frame = av.VideoFrame.from_ndarray(np.zeros((16, 16, 3), np.uint8), format="rgb24")
            container.mux(stream.encode(frame.reformat(format="yuv420p")))
        container.mux(stream.encode(None))
    (tmp_path / "twice.ts").write_bytes(2 * (tmp_path / "a.ts").read_bytes())
    clip = read_clip(tmp_path / "twice.ts", fps=25)
    assert (clip.frames, clip.seconds, clip.sources) == (100, 4.0, tuple(range(100)))


def test_a_gif_keeps_its_times(tmp_path: Path) -> None:
    images = [Image.new("L", (16, 16), 4 * index) for index in range(5)]
    images[0].save(tmp_path / "a.gif", save_all=True, append_images=images[1:], duration=[500, 250, 250, 500, 500])
    clip = read_clip(tmp_path / "a.gif", fps=4)
    assert clip.seconds == 2.0
    assert clip.sources == (0, 0, 1, 2, 3, 3, 4, 4)


def test_videos_of_unequal_length_are_refused_with_both_numbers(tmp_path: Path) -> None:
    paths = {"video": write(tmp_path / "a.mp4", 9, 16), "mask": write(tmp_path / "b.mp4", 13, 16)}
    expected = r"mask='.*b\.mp4' is not allowed: expected 9 frames, as many as video='.*a\.mp4' has, but it has 13;"
    with pytest.raises(GalaxyDiTError, match=expected):
        read_videos(paths, fps=16, size=None, period=4, num_frames=None)


@pytest.mark.filterwarnings("ignore::galaxydit.DataWarning")
def test_a_mask_has_the_frames_that_its_video_has(tmp_path: Path) -> None:
    paths = {"video": write(tmp_path / "a.mp4", 30, 30), "mask": write(tmp_path / "b.mp4", 30, 8)}
    videos = read_videos(paths, fps=16, size=(8, 8), period=4, num_frames=None)
    levels = {name: [image.getpixel((0, 0)) for image in images] for name, images in videos.items()}
    assert len(levels["video"]) == 17
    assert levels["video"] == levels["mask"]


def test_a_number_of_frames_takes_the_first_ones_or_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.mp4", 17, 16)
    with pytest.warns(DataWarning, match=r"has 17 frames .* is read as 9 frames .*its last 0\.50 s are left out"):
        assert read(path, 16, num_frames=9) == list(range(9))
    with pytest.raises(GalaxyDiTError, match="num_frames=81 is not allowed: expected at most 17, the frames of"):
        read(path, 16, num_frames=81)


def images(count: int) -> list[Image.Image]:
    return [Image.new("RGB", (16, 16), (index, 0, 0)) for index in range(count)]


def test_videos_that_are_read_have_a_number_of_frames_that_fits() -> None:
    with pytest.warns(DataWarning, match="video has 6 frames and is taken as 5, which the model can make"):
        fitted = fit_images({"video": images(6), "mask": images(6)}, size=(8, 8), period=4, num_frames=None)
    assert [len(video) for video in fitted.values()] == [5, 5]
    assert fitted["video"][0].size == (8, 8)
    (fitted_9,) = fit_images({"video": images(8)}, size=None, period=4, num_frames=9).values()
    assert fitted_9[7] is fitted_9[8]


def test_videos_that_are_read_and_do_not_fit_each_other_are_refused() -> None:
    with pytest.raises(GalaxyDiTError, match="mask='3 frames' is not allowed: expected 5 frames, as many as video has"):
        fit_images({"video": images(5), "mask": images(3)}, size=None, period=4, num_frames=None)
    with pytest.raises(GalaxyDiTError, match="num_frames=9 is not allowed: expected at most 5, the frames of video"):
        fit_images({"video": images(5)}, size=None, period=4, num_frames=9)


def test_a_video_that_would_fill_the_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clips, "MOST_IMAGES", 20)
    path = write(tmp_path / "a.mp4", 21, 1)
    with pytest.raises(GalaxyDiTError, match="expected a video of at most 20 frames at 16 per second; cut it"):
        read(path, 16)


class Alive:
    """Counts the bytes of arrays that are not freed yet."""

    def __enter__(self) -> "Alive":
        tracemalloc.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()


@pytest.mark.parametrize("fps", [0, -1, math.nan, math.inf, "16"])
def test_a_rate_that_no_video_has_is_refused(fps: Any, tmp_path: Path) -> None:
    with pytest.raises(GalaxyDiTError, match=r"fps=.* expected a number from 0.001 to 1000"):
        read_clip(tmp_path / "any.mp4", fps=fps)


def test_frames_are_resized_while_they_are_read(tmp_path: Path) -> None:
    size, frames = 256, 40
    path = tmp_path / "a.mp4"
    save_video(np.zeros((frames, size, size, 3), np.uint8), path, 30)
    of_frame = size * size * 3
    with Alive() as small:
        clip = read_clip(path, fps=15, size=(32, 32))
    assert len(clip.images) == 20
    assert small.peak < 4 * of_frame
    with Alive() as whole:
        load_video(path)
    assert whole.peak < 1.5 * frames * of_frame
    with Alive() as first:
        first_image(path)
    assert first.peak < 4 * of_frame


def test_frames_that_were_read_are_freed_without_the_cyclic_garbage_collector(tmp_path: Path) -> None:
    path = write(tmp_path / "a.mp4", 40, 16)
    read_clip(path)  # whatever the first call creates for good
    gc.collect()
    gc.disable()
    try:
        read_clip(path)
        assert gc.collect() < 40
    finally:
        gc.enable()


def test_frames_between_those_that_are_kept_are_not_converted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.mp4", 32, 32)
    converted, convert = [], Image.fromarray
    monkeypatch.setattr(Image, "fromarray", lambda image: converted.append(1) or convert(image))
    assert read_clip(path, fps=8).sources == (0, 6, 10, 14, 18, 22, 26, 30)
    assert len(converted) == 8
