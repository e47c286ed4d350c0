"""The frames of a video file as players show them, decoded one at a time."""

import struct
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from galaxydit.errors import DataWarning, refusal
from galaxydit.files import check_file_kind
from galaxydit.pipelines.settings import MOST

if TYPE_CHECKING:
    import av

HDR = (16, 18)  # transfers of ITU-T H.273: PQ and HLG
UNKNOWN_RATE = Fraction(25)  # FFmpeg's own guess
TELL_THEIR_LENGTH = {"matroska", "mov", "flv", "mxf"}  # that of other formats is guessed from the data that are there
ROUNDING = Fraction(1, 50)  # seconds, of times in containers
RESTART = 1  # second; times that fall farther begin anew, as in files that were joined
TS_PACKETS = (188, 204)  # bytes; those of M2TS are 4 bytes and 188
TS_SYNC = 0x47
ASF_PROPERTIES = bytes.fromhex("a1dcab8c47a9cf118ee400c00c205365")  # 40 bytes before the size of the file
LAST_BYTES = {"gif": b"\x3b", "mjpeg": b"\xff\xd9"}  # of a whole file
UNCOMPRESSED = "yuv4mpegpipe"  # FFmpeg drops a part of a frame at its end


@dataclass(frozen=True)
class ShownFrame:
    """A decoded frame, shown from `start` to `end`, in seconds since the start of the first frame."""

    frame: "av.VideoFrame"
    start: Fraction
    end: Fraction
    shape: "PixelShape"

    def image(self) -> NDArray[np.uint8]:
        """RGB, `(height, width, 3)`, turned by the display matrix and with square pixels."""
        image: Any = self.frame.to_ndarray(format="rgb24", width=self.shape.width_of(self.frame))
        a, b, c, d = self.shape.matrix
        if abs(b) > abs(a):  # turned by a quarter: x' = c y, y' = b x
            image = image.swapaxes(0, 1)
            mirrors_rows = b < 0
            mirrors_columns = c < 0
        else:  # x' = a x, y' = d y
            mirrors_rows = d < 0
            mirrors_columns = a < 0
        if mirrors_rows:
            image = image[::-1]
        if mirrors_columns:
            image = image[:, ::-1]
        return np.ascontiguousarray(image)


@dataclass(frozen=True)
class PixelShape:
    """How the pixels of all frames of a file are shown."""

    aspect: Fraction | int  # width / height of a pixel
    matrix: tuple[int, int, int, int]  # a, b, c, d of x' = a x + c y, y' = b x + d y (FFmpeg, libavutil/display.h)

    def width_of(self, frame: "av.VideoFrame") -> int:
        """The width of a frame with square pixels."""
        return round(frame.width * self.aspect)


def shown_frames(path: str | Path) -> Iterator[ShownFrame]:
    """Each frame of the stream that players show; no image is kept.

    Raises GalaxyDiTError for a file without a video, and after the last frame for a file that is broken off. Warns of
    HDR and of damaged frames.
    """
    import av

    check_file_kind("path", path)
    try:
        with av.open(address(path)) as container:
            yield from _decoded(container, path)
    except (av.FFmpegError, ValueError) as error:
        expected = f"a video that can be read ({error})"
        raise refusal("path", str(path), expected, "check the path, copy it whole, or convert it by ffmpeg") from error


def address(path: str | Path) -> str:
    """The path for FFmpeg, which reads a name with a colon as a protocol's address."""
    return f"file:{path}"


def _decoded(container: Any, path: str | Path) -> Iterator[ShownFrame]:
    stream = _shown_stream(container)
    if stream.codec_context.color_trc in HDR:
        text = f"galaxydit: {path} is an HDR video and is read without tone mapping; convert it to BT.709"
        warnings.warn(text, DataWarning, stacklevel=3)
    interval = 1 / (stream.average_rate or stream.guessed_rate or UNKNOWN_RATE)
    shape = PixelShape(stream.sample_aspect_ratio or 1, (1, 0, 0, 1))
    waiting: av.VideoFrame | None = None  # for its end, which the next frame tells
    start = zero = data_end = Fraction(0)
    slack = interval / 2
    packet_is_damaged = False
    damaged = 0
    frames = 0
    data_size = 0
    for packet in container.demux():
        time = packet.dts if packet.pts is None else packet.pts
        if time is not None:
            data_end = max(data_end, (time + (packet.duration or 0)) * packet.time_base)
        if packet.stream.index != stream.index:
            continue
        if packet.size:
            packet_is_damaged = packet.is_corrupt
            data_size = (packet.pos or 0) + packet.size
            slack = interval / 2
            if not packet.duration:  # the last frame, too, may take an interval
                slack += interval
        for frame in packet.decode():
            if not 1 <= shape.width_of(frame) <= MOST["width"]:  # a number of the header could ask for any memory
                raise ValueError(f"pixels of aspect ratio {shape.aspect} make it {shape.width_of(frame)} wide")
            if frame.pts is None:
                shown_at = frames * interval
            else:
                shown_at = frame.pts * frame.time_base - zero
            if waiting is None:
                zero = shown_at  # times count from the first frame
                shown_at = Fraction(0)
                # Read once, because a frame whose side data are read is freed by the cyclic garbage collector alone.
                if (matrix := frame.side_data.get("DISPLAYMATRIX")) is not None:
                    a, b, _, c, d = np.frombuffer(matrix, np.int32)[:5].tolist()
                    shape = replace(shape, matrix=(a, b, c, d))
            else:
                if shown_at < start - RESTART:  # the frame follows the one before
                    zero -= start + interval - shown_at
                    shown_at = start + interval
                shown_at = max(start, shown_at)
                yield ShownFrame(waiting, start, shown_at, shape)
            waiting = frame
            start = shown_at
            frames += 1
            damaged += frame.is_corrupt
    if waiting is None:
        raise ValueError("no frame is in it")
    if waiting.duration and waiting.time_base:
        length = waiting.duration * waiting.time_base
    else:
        length = interval
    yield ShownFrame(waiting, start, start + length, shape)
    if packet_is_damaged or waiting.is_corrupt:
        raise ValueError("it is broken off: its last frame is damaged")
    if text := _break_of(container, path, data_end + slack, data_size):
        raise ValueError(f"it is broken off: {text}")
    if damaged:
        text = f"galaxydit: {damaged} of {frames} frames of {path} are damaged and may look so"
        warnings.warn(text, DataWarning, stacklevel=3)


def _shown_stream(container: Any) -> Any:
    from av.stream import Disposition

    pictures = Disposition.attached_pic | Disposition.timed_thumbnails  # streams that are no video, such as cover art
    streams = [stream for stream in container.streams.video if not stream.disposition & pictures]
    if not streams:
        raise ValueError("it has a cover picture alone" if container.streams.video else "no video is in it")
    best = container.streams.best("video")
    for stream in streams:
        if stream.index == best.index:
            return stream
    return next((stream for stream in streams if stream.disposition & Disposition.default), streams[0])


def _break_of(container: Any, path: str | Path, latest_end: Fraction, data_size: int) -> str:
    """What shows that the file ends before its video does, or an empty text.

    `latest_end` is the latest second at which the data that are there may end, `data_size` the place in bytes at which
    the last packet ends.
    """
    import av

    formats = set(container.format.name.split(","))
    if formats & TELL_THEIR_LENGTH and container.duration is not None:
        seconds = Fraction(container.duration, av.time_base)
        if seconds > latest_end + ROUNDING:
            return f"its header tells {float(seconds):.2f} s, and its data end at about {float(latest_end):.2f} s"
    size = Path(path).stat().st_size
    if UNCOMPRESSED in formats and data_size < size:
        return "it ends within a frame"
    with open(path, "rb") as file:
        told = _told_size(file, formats)
        # Programs that were ended while they wrote left 0 or the largest number, of 64 or of 32 bits.
        unknown = 2**64 - 1 if "asf" in formats else 2**32
        if size < told < unknown:
            return f"its header tells {told} bytes, and it has {size}"
        if "mpegts" in formats:
            ends = [_byte_at(file, size - length) for length in TS_PACKETS]
            return "" if TS_SYNC in ends else "it ends within a packet"
        for name in formats & LAST_BYTES.keys():
            file.seek(max(0, size - 1024))
            is_whole = file.read().rstrip(b"\0\r\n").endswith(LAST_BYTES[name])  # some programs pad files
            return "" if is_whole else "the mark of its end is missing"
    return ""


def _told_size(file: Any, formats: set[str]) -> int:
    """The bytes of the whole file by the header of AVI (RIFF) or ASF (WMV), 0 by others."""
    head = file.read(4096)
    if "avi" in formats:
        return int(struct.unpack_from("<I", head, 4)[0]) + 8  # of what follows these 8 bytes
    place = head.find(ASF_PROPERTIES) + 40
    if "asf" in formats and 40 <= place <= len(head) - 8:
        return int(struct.unpack_from("<Q", head, place)[0])
    return 0


def _byte_at(file: Any, place: int) -> int:
    file.seek(max(0, place))
    return file.read(1)[0]
