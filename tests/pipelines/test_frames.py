"""Which frames a video file has: of the stream that players show, and all of them."""

import os
import struct
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from av.stream import Disposition
from PIL import Image

from galaxydit.errors import DataWarning, GalaxyDiTError
from galaxydit.pipelines.frames import shown_frames
from galaxydit.pipelines.video import load_video

FRAMES, SIDE = 24, 64
CODECS = {"mp4": "libx264", "mov": "libx264", "mkv": "libx264", "webm": "libvpx-vp9", "ts": "libx264", "avi": "mpeg4"}
CODECS |= {"flv": "libx264", "gif": "gif", "wmv": "mpeg4", "y4m": "rawvideo", "mjpeg": "mjpeg"}


def noise() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (FRAMES, SIDE, SIDE, 3), dtype=np.uint8)


def add_stream(container: Any, codec: str) -> Any:
    stream = container.add_stream(codec, rate=12)
    stream.width = stream.height = SIDE
    stream.pix_fmt = {"gif": "rgb8", "mjpeg": "yuvj420p"}.get(codec, "yuv420p")
    return stream


def encode(container: Any, stream: Any, images: np.ndarray) -> None:
    for image in images:
        frame = av.VideoFrame.from_ndarray(image, format="rgb24").reformat(format=stream.pix_fmt)
        container.mux(stream.encode(frame))
    container.mux(stream.encode(None))


def write(path: Path, images: np.ndarray | None = None, **options: str) -> Path:
    with av.open(str(path), "w", options=options) as container:
        stream = add_stream(container, CODECS[path.suffix[1:]])
        encode(container, stream, noise() if images is None else images)
    return path


@pytest.mark.parametrize("kind", CODECS)
@pytest.mark.parametrize("share", [0.3, 0.6, 0.96])
def test_a_file_that_is_broken_off_is_refused_and_a_whole_one_is_read(kind: str, share: float, tmp_path: Path) -> None:
    options = {"movflags": "+faststart"} if kind in ("mp4", "mov") else {}
    whole = write(tmp_path / f"whole.{kind}", **options)
    assert len(load_video(whole)) == FRAMES
    content = whole.read_bytes()
    cut = tmp_path / f"cut.{kind}"
    cut.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(GalaxyDiTError, match=r"cut.*expected a video that can be read \("):
        load_video(cut)


@pytest.mark.parametrize("kind", ["mp4", "avi"])  # nothing in a transport stream tells that more follows
def test_a_file_that_is_broken_off_between_two_frames_is_refused(kind: str, tmp_path: Path) -> None:
    whole = write(tmp_path / f"whole.{kind}", **({"movflags": "+faststart"} if kind == "mp4" else {}))
    with av.open(str(whole)) as container:
        places = sorted(packet.pos for packet in container.demux(video=0) if packet.size)
    before = {"mp4": 0, "avi": 8}[kind]  # AVI has the name and the size of a frame before it
    cut = tmp_path / f"cut.{kind}"
    for place in (places[5], places[-1]):
        cut.write_bytes(whole.read_bytes()[: place - before])
        with pytest.raises(GalaxyDiTError, match="it is broken off: its header tells"):
            load_video(cut)


def test_a_transport_stream_that_ends_within_a_packet_is_refused(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole.ts")
    (tmp_path / "cut.ts").write_bytes(whole.read_bytes()[:-20])
    with pytest.raises(GalaxyDiTError, match="it is broken off: "):
        load_video(tmp_path / "cut.ts")


def test_damage_within_a_video_is_warned_of(tmp_path: Path) -> None:
    whole = write(tmp_path / "a.ts")
    content = bytearray(whole.read_bytes())
    with av.open(str(whole)) as container:
        places = sorted(packet.pos for packet in container.demux(video=0) if packet.size)
    del content[places[9] + 3 * 188 : places[9] + 4 * 188]  # one of the packets of a frame
    whole.write_bytes(content)
    with pytest.warns(DataWarning, match=r"of 24 frames of .*a\.ts are damaged"):
        assert len(load_video(whole)) == FRAMES


def test_a_picture_in_the_first_stream_is_not_the_video(tmp_path: Path) -> None:
    with av.open(str(tmp_path / "a.mkv"), "w") as container:
        cover, video = add_stream(container, "mjpeg"), add_stream(container, "libx264")
        cover.disposition = Disposition.attached_pic
        encode(container, cover, noise()[:1])
        encode(container, video, noise())
    assert len(load_video(tmp_path / "a.mkv")) == FRAMES


def test_the_default_stream_is_the_video(tmp_path: Path) -> None:
    with av.open(str(tmp_path / "a.mkv"), "w") as container:
        first, second = add_stream(container, "libx264"), add_stream(container, "libx264")
        first.disposition, second.disposition = Disposition(0), Disposition.default
        encode(container, first, np.zeros_like(noise()))
        encode(container, second, np.full_like(noise(), 255))
    assert load_video(tmp_path / "a.mkv").min() > 200


def box(kind: bytes, *parts: bytes) -> bytes:
    """A box of ISO 14496-12."""
    content = b"".join(parts)
    return struct.pack(">I4s", 8 + len(content), kind) + content


def test_cover_art_that_a_tagging_program_put_before_the_tracks_is_not_the_video(tmp_path: Path) -> None:
    content = write(tmp_path / "a.mp4").read_bytes()
    Image.new("RGB", (300, 200), "blue").save(tmp_path / "cover.jpg")
    handler = box(b"hdlr", bytes(8), b"mdirappl", bytes(9))
    data = box(b"data", struct.pack(">II", 13, 0), (tmp_path / "cover.jpg").read_bytes())  # 13 is JPEG
    tags = box(b"udta", box(b"meta", bytes(4), handler, box(b"ilst", box(b"covr", data))))
    moov = content.index(b"moov") - 4  # the last box
    header, tracks = content[moov + 8 : moov + 116], content[moov + 116 :]  # mvhd has 108 bytes
    (tmp_path / "a.mp4").write_bytes(content[:moov] + box(b"moov", header, tags, tracks))
    with av.open(str(tmp_path / "a.mp4")) as container:
        assert container.streams.video[0].codec_context.name == "mjpeg"
    assert load_video(tmp_path / "a.mp4").shape == (FRAMES, SIDE, SIDE, 3)


def test_a_file_with_a_cover_alone_is_refused(tmp_path: Path) -> None:
    with av.open(str(tmp_path / "a.mp4"), "w") as container:
        song, cover = container.add_stream("aac", rate=24000, layout="mono"), add_stream(container, "mjpeg")
        cover.disposition = Disposition.attached_pic
        encode(container, cover, noise()[:1])
        silence = av.AudioFrame.from_ndarray(np.zeros((1, 2400), np.float32), format="fltp", layout="mono")
        silence.sample_rate = 24000
        container.mux(song.encode(silence))
        container.mux(song.encode(None))
    with pytest.raises(GalaxyDiTError, match="it has a cover picture alone"):
        load_video(tmp_path / "a.mp4")


def test_frames_are_shown_until_the_next_one(tmp_path: Path) -> None:
    times = [0, 1, 5, 6, 10]  # twelfths of a second
    with av.open(str(tmp_path / "a.mkv"), "w") as container:
        stream = add_stream(container, "libx264")
        for time, image in zip(times, noise(), strict=False):
            frame = av.VideoFrame.from_ndarray(image, format="rgb24").reformat(format="yuv420p")
            frame.pts = time
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    shown = list(shown_frames(tmp_path / "a.mkv"))
    assert [round(12 * float(each.start), 1) for each in shown] == times
    assert [each.end for each in shown[:-1]] == [each.start for each in shown[1:]]


def test_a_fifo_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.mp4")
    with pytest.raises(GalaxyDiTError, match=r"path='.*a.mp4' is not allowed: expected a file or a folder, not a FIFO"):
        load_video(tmp_path / "a.mp4")
