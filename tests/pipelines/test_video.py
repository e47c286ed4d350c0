import struct
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import av
import numpy as np
import pytest
import torch
from PIL import Image

from galaxydit.errors import DataWarning, GalaxyDiTError
from galaxydit.pipelines.video import (
    LABEL_HEIGHT,
    Sound,
    display_scale,
    load_sound,
    load_video,
    save_video,
    side_by_side,
    to_float,
    to_uint8,
)


def noise(shape: tuple[int, ...] = (5, 32, 48, 3)) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def soft_gradient() -> np.ndarray:
    """Smooth in space, so that a codec has an easy task."""
    ramp = np.linspace(0.1, 0.9, 48, dtype=np.float32)
    return np.broadcast_to(ramp[None, None, :, None], (5, 32, 48, 3)).copy()


def test_lossless_file_gives_back_every_level_of_noise(tmp_path: Path):
    save_video(noise(), tmp_path / "noise.mp4", fps=16, lossless=True)
    np.testing.assert_array_equal(load_video(tmp_path / "noise.mp4"), noise())


def test_lossless_file_takes_odd_sizes(tmp_path: Path):
    save_video(noise((3, 17, 33, 3)), tmp_path / "odd.mp4", fps=16, lossless=True)
    np.testing.assert_array_equal(load_video(tmp_path / "odd.mp4"), noise((3, 17, 33, 3)))


def test_lossless_file_of_floats_is_their_rounding(tmp_path: Path):
    frames = np.random.default_rng(0).random((2, 16, 16, 3), dtype=np.float32)
    save_video(frames, tmp_path / "floats.mp4", fps=16, lossless=True)
    assert np.abs(load_video(tmp_path / "floats.mp4") / 255.0 - frames).max() <= 0.5 / 255 + 1e-6


def test_default_file_is_what_browsers_play(tmp_path: Path):
    save_video(soft_gradient(), tmp_path / "new" / "plain.mp4", fps=8)
    with av.open(str(tmp_path / "new" / "plain.mp4")) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.pix_fmt, stream.average_rate) == ("h264", "yuv420p", 8)
        assert (stream.frames, stream.height, stream.width) == (5, 32, 48)


def test_default_file_is_close_to_the_frames(tmp_path: Path):
    save_video(soft_gradient(), tmp_path / "plain.mp4", fps=8)
    assert np.abs(load_video(tmp_path / "plain.mp4") / 255.0 - soft_gradient()).max() < 0.03


def test_a_video_that_is_interrupted_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    frames, convert, done = noise((40, 64, 64, 3)), av.VideoFrame.from_ndarray, []
    save_video(frames, tmp_path / "a.mp4", fps=8)
    before = (tmp_path / "a.mp4").read_bytes()

    def interrupt_late(image: np.ndarray, format: str) -> av.VideoFrame:
        done.append(image)
        if len(done) > 38:
            raise KeyboardInterrupt
        return convert(image, format=format)

    monkeypatch.setattr(av, "VideoFrame", SimpleNamespace(from_ndarray=interrupt_late))
    with pytest.raises(KeyboardInterrupt):
        save_video(frames[::-1], tmp_path / "a.mp4", fps=8)
    assert (tmp_path / "a.mp4").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["a.mp4"]


@pytest.mark.parametrize("lossless", [False, True])
def test_equal_frames_give_equal_bytes(lossless: bool, tmp_path: Path):
    rng = np.random.default_rng(0)
    picture = Image.fromarray(noise((1, 8, 8, 3))[0]).resize((64, 64))
    moving = np.stack([np.roll(np.asarray(picture), index, axis=1) for index in range(80)])
    moving = np.clip(moving + rng.normal(0, 2, moving.shape), 0, 255).astype(np.uint8)
    files = [tmp_path / f"{index}.mp4" for index in range(3)]
    for file in files:
        save_video(moving, file, fps=16, lossless=lossless)
    assert len({file.read_bytes() for file in files}) == 1


def test_scale_repeats_pixels(tmp_path: Path):
    save_video(noise(), tmp_path / "large.mp4", fps=8, lossless=True, scale=3)
    frames = load_video(tmp_path / "large.mp4")
    assert frames.shape == (5, 96, 144, 3)
    np.testing.assert_array_equal(frames[:, 1::3, 1::3], noise())


@pytest.mark.parametrize("lossless", [False, True])
def test_the_file_is_tagged_with_the_colours_that_it_holds(lossless: bool, tmp_path: Path):
    colour = np.array([220, 30, 60], np.uint8)
    save_video(np.tile(colour, (2, 32, 32, 1)), tmp_path / "a.mp4", fps=8, lossless=lossless)
    with av.open(str(tmp_path / "a.mp4")) as container:
        codec = container.streams.video[0].codec_context
        tags = (codec.colorspace, codec.color_primaries, codec.color_trc, codec.color_range)
        frame = next(container.decode(video=0))
    # ITU-T H.273: matrix 0 is RGB, 1 BT.709; primaries 1 BT.709; transfer 1 BT.709, 13 sRGB; range 1 limited, 2 full.
    assert tags == ((0, 1, 13, 2) if lossless else (1, 1, 1, 1))
    if lossless:
        return
    planes = frame.to_ndarray(format="yuv420p").astype(float)
    y, u, v = (planes[0, 0] - 16) / 219, (planes[32, 0] - 128) / 224, (planes[40, 0] - 128) / 224
    red, blue = y + 1.5748 * v, y + 1.8556 * u  # ITU-R BT.709
    green = (y - 0.2126 * red - 0.0722 * blue) / 0.7152
    np.testing.assert_allclose([255 * red, 255 * green, 255 * blue], colour, atol=4)


@pytest.mark.parametrize(
    "name", ["12:30.mp4", "pipe:1.mp4", "http:x.mp4", "-dash.mp4", "%d 50%.mp4", "\u732b #.mp4", "x" * 246 + ".mp4"]
)
def test_any_name_that_a_file_may_have_is_written_and_read(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    save_video(noise(), name, fps=8, lossless=True)
    np.testing.assert_array_equal(load_video(name), noise())
    assert [path.name for path in tmp_path.iterdir()] == [name]


SYMMETRIES = [(1, 0, 0, 1), (-1, 0, 0, 1), (1, 0, 0, -1), (-1, 0, 0, -1)]
SYMMETRIES += [(0, 1, 1, 0), (0, -1, 1, 0), (0, 1, -1, 0), (0, -1, -1, 0)]


@pytest.mark.parametrize(("a", "b", "c", "d"), SYMMETRIES)
def test_a_clip_is_turned_and_mirrored_as_its_display_matrix_says(a: int, b: int, c: int, d: int, tmp_path: Path):
    save_video(noise(), path := tmp_path / "a.mp4", fps=8, lossless=True)
    content = path.read_bytes()
    start = content.index(b"tkhd") + 44  # ISO 14496-12: the matrix a b u c d v x y w, in 16.16 and 2.30
    one = 1 << 16
    matrix = struct.pack(">9i", a * one, b * one, 0, c * one, d * one, 0, 0, 0, 1 << 30)
    path.write_bytes(content[:start] + matrix + content[start + 36 :])
    frames = load_video(path)
    rows, columns = np.mgrid[:32, :48]
    right, down = a * columns + c * rows, b * columns + d * rows
    np.testing.assert_array_equal(frames[:, down - down.min(), right - right.min()], noise())


def write_clip(path: Path, **properties: object) -> None:
    """A lossless file of `noise`, whose codec has these properties."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264rgb", rate=8)
        stream.width, stream.height, stream.pix_fmt, stream.options = 48, 32, "rgb24", {"qp": "0"}
        for name, value in properties.items():
            setattr(stream.codec_context, name, value)
        for image in noise():
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode(None))


def test_pixels_that_are_not_square_are_widened(tmp_path: Path):
    write_clip(tmp_path / "a.mp4", sample_aspect_ratio=Fraction(2))
    assert load_video(tmp_path / "a.mp4").shape == (5, 32, 96, 3)


@pytest.mark.parametrize("aspect", [(2**31 - 1, 1), (3000, 1), (1, 3000)])
def test_pixels_that_make_a_frame_of_endless_or_no_width_are_refused(aspect: tuple[int, int], tmp_path: Path):
    write_clip(tmp_path / "a.mp4", sample_aspect_ratio=Fraction(2))
    content = (tmp_path / "a.mp4").read_bytes()
    place = content.index(b"pasp") + 4
    (tmp_path / "a.mp4").write_bytes(content[:place] + struct.pack(">II", *aspect) + content[place + 8 :])
    with pytest.raises(GalaxyDiTError, match=r"expected a video that can be read \(pixels of aspect ratio"):
        load_video(tmp_path / "a.mp4")


@pytest.mark.parametrize("transfer", [16, 18])  # ITU-T H.273: PQ and HLG
def test_an_hdr_clip_is_warned_of(transfer: int, tmp_path: Path):
    write_clip(tmp_path / "a.mp4", color_trc=transfer)
    with pytest.warns(DataWarning, match=r"a\.mp4 is an HDR video and is read without tone mapping; convert it"):
        load_video(tmp_path / "a.mp4")


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("lossless", [False, True])
def test_sound_is_written_beside_the_frames(channels: int, lossless: bool, tmp_path: Path):
    seconds = np.arange(24000) / 24000
    tones = np.stack([np.sin(2 * np.pi * pitch * seconds) for pitch in (480, 660)[:channels]]).astype(np.float32) / 2
    frames = noise((8, 32, 48, 3))
    for name in ("a", "b"):
        save_video(frames, tmp_path / f"{name}.mp4", fps=8, lossless=lossless, sound=Sound(tones, 24000))
    assert (tmp_path / "a.mp4").read_bytes() == (tmp_path / "b.mp4").read_bytes()
    assert len(load_video(tmp_path / "a.mp4")) == 8
    with av.open(str(tmp_path / "a.mp4")) as container:
        assert container.streams.audio[0].codec_context.name == "aac"
    sound = load_sound(tmp_path / "a.mp4")
    heard = sound.samples
    assert (sound.rate, len(heard)) == (24000, channels)
    spectrum = np.abs(np.fft.rfft(heard[:, 2000:22000]))
    assert (spectrum.argmax(axis=1) * 24000 / 20000).tolist() == [480, 660][:channels]
    assert heard.shape[1] == pytest.approx(24000, abs=2048)


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        (np.zeros((4, 16, 16)), "expected \\(frames, height, width, 3\\)"),
        (np.zeros((4, 16, 16, 4)), "expected \\(frames, height, width, 3\\)"),
        (np.zeros((0, 16, 16, 3)), "expected \\(frames, height, width, 3\\)"),
        (np.zeros((4, 16, 16, 3), np.int64), "'int64' is not allowed: expected uint8 or floats"),
        (np.full((4, 16, 16, 3), 1.5), "'1.5 to 1.5' is not allowed: expected floats in \\[0, 1\\]"),
        (
            np.full((4, 16, 16, 3), np.nan),
            "frames with NaN is not allowed: expected numbers; generate again in",
        ),
        (np.full((4, 16, 16, 3), np.inf), "'inf to inf' is not allowed: expected floats in \\[0, 1\\]"),
        (np.zeros((4, 15, 16, 3)), "'15x16' is not allowed: expected even sizes"),
        (np.zeros((1, 2, 20_000, 3)), "size='2x20000' is not allowed: expected at most 16384 pixels a side"),
        (np.zeros((1, 20_000, 2, 3)), "size='20000x2' is not allowed: expected at most 16384 pixels a side"),
        ([np.zeros((16, 16, 3))] * 4, r"type\(frames\)='list' is not allowed: .*pass numpy.stack\(frames\) of a list"),
        ([], r"type\(frames\)='list' is not allowed: expected a NumPy array"),
        ([Image.new("RGB", (16, 16))], r"type\(frames\)='list' is not allowed"),
        (
            torch.zeros(4, 16, 16, 3),
            r"type\(frames\)='Tensor' is not allowed: .*frames.float\(\).cpu\(\).numpy\(\)",
        ),
        (None, r"type\(frames\)='NoneType' is not allowed"),
    ],
)
def test_frames_that_are_no_video_are_refused(frames: np.ndarray, message: str, tmp_path: Path):
    with pytest.raises(GalaxyDiTError, match=message):
        save_video(frames, tmp_path / "bad.mp4", fps=8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "video.avi", "fps": 8}, "ending in .mp4"),
        ({"path": "video.mp4", "fps": 0}, "fps=0 is not allowed"),
        ({"path": "video.mp4", "fps": 0.0004}, "fps=0.0004 is not allowed: expected a number from 0.001 to 1000"),
        ({"path": "video.mp4", "fps": -8}, "fps=-8 is not allowed"),
        ({"path": "video.mp4", "fps": float("nan")}, "fps=nan is not allowed"),
        ({"path": "video.mp4", "fps": float("inf")}, "fps=inf is not allowed"),
        ({"path": "video.mp4", "fps": "8"}, "fps='8' is not allowed"),
        ({"path": "video.mp4", "fps": 8, "scale": 0}, "scale=0 is not allowed"),
        ({"path": "video.mp4", "fps": 8, "scale": 1.5}, "scale=1.5 is not allowed"),
        ({"path": "video.mp4", "fps": 8, "scale": 600}, "size='19200x28800' is not allowed: expected at most 16384"),
        ({"path": "video.mp4", "fps": 8, "sound": Sound(np.zeros(9, np.float32), 8000)}, r"sound.samples.shape=\(9,\)"),
        ({"path": "video.mp4", "fps": 8, "sound": Sound(np.zeros((3, 9), np.float32), 8000)}, "1 or 2 channels"),
        ({"path": "video.mp4", "fps": 8, "sound": Sound(np.full((1, 9), np.nan), 8000)}, "expected finite numbers"),
        ({"path": "video.mp4", "fps": 8, "sound": Sound(np.zeros((1, 9), np.float32), 0)}, "sound.rate=0 is not"),
        ({"path": "video.mp4", "fps": 8, "sound": Sound(np.zeros((1, 9), np.float32), 44101)}, "sound.rate=44101 is"),
        ({"path": "video.mp4", "fps": 8, "sound": np.zeros((1, 9))}, "sound=array.* expected a Sound"),
    ],
)
def test_options_that_no_file_can_have_are_refused(
    options: dict, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GalaxyDiTError, match=message):
        save_video(noise(), **options)
    assert not list(tmp_path.iterdir())


def test_what_ffmpeg_refuses_is_an_error_of_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise av.error.InvalidDataError(1094995529, "not known")

    monkeypatch.setattr("galaxydit.pipelines.video._encode", refuse)
    with pytest.raises(GalaxyDiTError, match=r"frames.shape=.*expected what FFmpeg can encode \("):
        save_video(noise(), tmp_path / "a.mp4", fps=8)
    assert not list(tmp_path.iterdir())


def test_loading_names_a_missing_file_and_a_file_without_video(tmp_path: Path):
    with pytest.raises(GalaxyDiTError, match=r"No such file or directory: .*nothing"):
        load_video(tmp_path / "nothing.mp4")
    (tmp_path / "text.mp4").write_text("not a video")
    with pytest.raises(GalaxyDiTError, match="expected a video that can be read"):
        load_video(tmp_path / "text.mp4")


def test_converting_to_float_and_back_changes_nothing():
    np.testing.assert_array_equal(to_uint8(to_float(noise())), noise())


def test_side_by_side_shows_each_video_whole_under_its_label():
    left, right = noise(), 255 - noise()
    row = side_by_side([left, right], ["plain", "accelerated"], scale=2)
    frames, height, width, _ = row.shape
    assert frames == 5
    assert height % 2 == 0
    assert width % 2 == 0
    large = left.repeat(2, axis=1).repeat(2, axis=2)
    np.testing.assert_array_equal(row[:, -64:, :96], large)
    np.testing.assert_array_equal(row[:, -64:, -96:], 255 - large)
    assert row[0, :-64, :96].any(), "the label over the left video is missing"
    assert row[0, :-64, -96:].any(), "the label over the right video is missing"


def test_side_by_side_shows_texts_under_each_video():
    videos = [noise(), 255 - noise()]
    bare, row = side_by_side(videos, ["a", "b"]), side_by_side(videos, ["a", "b"], below=["30.1 dB", "28.0 dB"])
    np.testing.assert_array_equal(row[:, : bare.shape[1]], bare)
    assert row.shape[1] == bare.shape[1] + LABEL_HEIGHT
    assert row[0, -LABEL_HEIGHT:, :48].any()
    assert row[0, -LABEL_HEIGHT:, -48:].any()
    with pytest.raises(GalaxyDiTError, match="below="):
        side_by_side(videos, ["a", "b"], below=["30.1 dB"])


def test_side_by_side_of_odd_sizes_can_be_saved(tmp_path: Path):
    row = side_by_side([noise((2, 17, 33, 3))] * 2, ["one", "two"])
    save_video(row, tmp_path / "row.mp4", fps=8)


def test_side_by_side_refuses_videos_that_do_not_match():
    with pytest.raises(GalaxyDiTError, match="labels="):
        side_by_side(np.stack([noise(), noise()]), "ab")  # one label
    with pytest.raises(GalaxyDiTError, match="expected one for each of 1 videos"):
        side_by_side([noise()], ["one", "two"])
    with pytest.raises(GalaxyDiTError, match="equal shapes"):
        side_by_side([noise(), noise((4, 32, 48, 3))], ["one", "two"])


@pytest.mark.parametrize(("height", "scale"), [(64, 4), (100, 2), (256, 1), (480, 1)])
def test_small_videos_are_enlarged_towards_a_height_for_looking(height: int, scale: int):
    assert display_scale(noise((1, height, 8, 3))) == scale
