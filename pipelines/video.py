"""Videos as arrays `(frames, height, width, 3)` in RGB, uint8 or floats in [0, 1], and as files."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from galaxydit.errors import check_count, check_path, listed, plain_number, refusal
from galaxydit.files import check_file_kind, replacing
from galaxydit.foreign_text import one_line
from galaxydit.pipelines.frames import address, shown_frames
from galaxydit.pipelines.psnr import nan_error
from galaxydit.pipelines.settings import MOST, check_fps
from galaxydit.pipelines.written_by import MARK

LABEL_HEIGHT = 24  # pixels
GAP = 8  # pixels between two videos
# ITU-T H.273: 1 is BT.709 as matrix, primaries and transfer; 13 is the transfer of sRGB
BT709 = 1
SRGB = 13
LIMITED_RANGE = 1
MOST_SIDE = MOST["height"]  # pixels, of libx264
LAYOUTS = {1: "mono", 2: "stereo"}
AAC_RATES = (96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350)


@dataclass(frozen=True, eq=False)
class Sound:
    """The sound of a video: samples `(channels, samples)` in [-1, 1], mono or stereo, at `rate` Hz."""

    samples: NDArray[np.float32]
    rate: int


def check_frames(frames: Any, name: str = "frames") -> None:
    """Raise GalaxyDiTError, with `name`, unless frames are `(frames, height, width, 3)` uint8 or floats in [0, 1]."""
    if not isinstance(frames, np.ndarray):
        cure = f"pass numpy.stack({name}) of a list, or {name}.float().cpu().numpy() of a tensor"
        raise refusal(f"type({name})", type(frames).__name__, "a NumPy array (frames, height, width, 3)", cure)
    if frames.ndim != 4 or frames.shape[-1] != 3 or 0 in frames.shape:
        raise refusal(f"{name}.shape", frames.shape, "(frames, height, width, 3)", "pass one RGB video")
    if frames.dtype == np.uint8:
        return
    if not np.issubdtype(frames.dtype, np.floating):
        raise refusal(f"{name}.dtype", str(frames.dtype), "uint8 or floats", "convert it to one of them")
    low, high = float(frames.min()), float(frames.max())
    if math.isnan(low):
        raise nan_error(name)
    if not (low >= 0.0 and high <= 1.0):
        raise refusal(name, f"{low:g} to {high:g}", "floats in [0, 1]", "rescale or clip it")


def to_float(frames: NDArray[Any], name: str = "frames") -> NDArray[np.float32]:
    check_frames(frames, name)
    if frames.dtype == np.uint8:
        return frames.astype(np.float32) / np.float32(255)
    return frames.astype(np.float32)


def to_uint8(frames: NDArray[Any], name: str = "frames") -> NDArray[np.uint8]:
    check_frames(frames, name)
    if frames.dtype == np.uint8:
        return frames
    return np.rint(frames * 255).astype(np.uint8)


def enlarge(frames: NDArray[np.uint8], scale: int) -> NDArray[np.uint8]:
    """Each pixel repeated `scale` times in height and width."""
    check_count("scale", scale, 1)
    return frames.repeat(scale, axis=1).repeat(scale, axis=2)


def display_scale(frames: NDArray[Any]) -> int:
    """The largest `scale` for `enlarge` that keeps 256 pixels of height, at least 1."""
    return max(1, 256 // frames.shape[1])


def save_video(
    frames: NDArray[Any],
    path: str | Path,
    fps: float,
    *,
    lossless: bool = False,
    scale: int = 1,
    sound: Sound | None = None,
) -> None:
    """Write an mp4 file, creating its folder; equal frames give equal bytes.

    The default, H.264 with yuv420p in BT.709, plays in browsers; `lossless` keeps every RGB level, and few players show
    it. `scale` repeats pixels. Raises GalaxyDiTError for frames, an ending, a rate or a size that cannot be written.
    """
    path = check_path("path", path)
    if path.suffix != ".mp4":
        raise refusal("path", str(path), "a name ending in .mp4", "rename it")
    fps = check_fps(fps)
    check_frames(frames)
    scale = check_count("scale", scale, 1)
    height, width = frames.shape[1] * scale, frames.shape[2] * scale
    if max(height, width) > MOST_SIDE:
        expected = f"at most {MOST_SIDE} pixels a side, as H.264 has"
        raise refusal("size", f"{height}x{width}", expected, "make the frames or the scale smaller")
    if not lossless and (height % 2 or width % 2):
        raise refusal("size", f"{height}x{width}", "even sizes", "pass scale=2, or lossless=True")
    if sound is not None:
        sound = check_sound(sound)
    import av

    with replacing(path) as partial:
        try:
            _encode(enlarge(to_uint8(frames), scale), partial, fps, lossless, sound)
        except av.FFmpegError as error:
            if isinstance(error, OSError):  # such as a full disk
                raise
            expected = f"what FFmpeg can encode ({error})"
            raise refusal("frames.shape", frames.shape, expected, "save a smaller video, or another rate") from error


def check_sound(sound: Any, name: str = "sound") -> Sound:
    """The sound with Python's number as rate. Raises GalaxyDiTError, with `name`, for one that a file cannot hold."""
    if not isinstance(sound, Sound):
        raise refusal(name, sound, "a Sound", "pass galaxydit.pipelines.video.Sound(samples, rate)")
    samples: Any = sound.samples
    if not isinstance(samples, np.ndarray) or samples.ndim != 2 or len(samples) not in LAYOUTS or 0 in samples.shape:
        shape = getattr(samples, "shape", type(samples).__name__)
        raise refusal(f"{name}.samples.shape", shape, "(1 or 2 channels, samples)", "mix it to mono or stereo")
    if not np.issubdtype(samples.dtype, np.floating):
        cure = "divide integers by their full scale, such as 32768 for int16"
        raise refusal(f"{name}.samples.dtype", str(samples.dtype), "floats in [-1, 1]", cure)
    if not np.isfinite(samples).all():
        raise refusal(f"{name}.samples", "NaN or infinities", "finite numbers", "generate again in a wider dtype")
    low, high = float(samples.min()), float(samples.max())
    if low < -1 or high > 1:
        raise refusal(f"{name}.samples", f"{low:g} to {high:g}", "floats in [-1, 1]", "rescale or clip it")
    rate = plain_number(sound.rate)
    if type(rate) is not int or rate not in AAC_RATES:
        raise refusal(f"{name}.rate", rate, f"one of {', '.join(map(str, AAC_RATES))}, those of AAC", "resample it")
    return replace(sound, rate=rate)


def _encode(images: NDArray[np.uint8], path: Path, fps: float, lossless: bool, sound: Sound | None) -> None:
    import av

    with av.open(address(path), "w", options={"movflags": "+faststart"}) as container:
        container.metadata["comment"] = MARK
        rate = Fraction(fps).limit_denominator(1001)
        # libx264 converts to YUV even at quality 0; only the RGB flavour is exact.
        stream = container.add_stream("libx264rgb" if lossless else "libx264", rate=rate)
        stream.height, stream.width = images.shape[1:3]
        codec: Any = stream.codec_context  # tagged, because players guess the matrix of untagged videos by their size
        codec.color_primaries = BT709
        # x264's macroblock tree encodes equal frames differently, and so does another number of threads.
        if lossless:
            stream.pix_fmt = "rgb24"
            stream.options = {"qp": "0", "threads": "1"}
            codec.color_trc = SRGB
        else:
            stream.pix_fmt = "yuv420p"
            stream.options = {"crf": "16", "mbtree": "0", "threads": "1"}
            codec.color_trc = BT709
            codec.colorspace = BT709
            codec.color_range = LIMITED_RANGE
        track = None
        if sound is not None:  # every stream has to be known before the first packet is written
            track = container.add_stream("aac", rate=sound.rate, layout=LAYOUTS[len(sound.samples)])
        for image in images:
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            if not lossless:
                frame = frame.reformat(format="yuv420p", dst_colorspace="ITU709")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))  # what the encoder still holds
        if sound is not None and track is not None:
            samples = np.ascontiguousarray(sound.samples, dtype=np.float32)
            heard = av.AudioFrame.from_ndarray(samples, format="fltp", layout=LAYOUTS[len(samples)])
            heard.sample_rate = sound.rate
            container.mux(track.encode(heard))
            container.mux(track.encode(None))


def encode_video(frames: NDArray[Any], fps: float, *, lossless: bool = False, sound: Sound | None = None) -> bytes:
    """The bytes of `save_video`; an OSError of a full temporary folder names it."""
    try:
        with TemporaryDirectory() as folder:
            path = Path(folder, "video.mp4")
            save_video(frames, path, fps, lossless=lossless, sound=sound)
            return path.read_bytes()
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, gettempdir()) from error


def encode_thumbnail(frame: NDArray[Any]) -> bytes:
    """A JPEG of one frame, `(height, width, 3)` in [0, 1], of at most 256 pixels a side."""
    picture = Image.fromarray(np.rint(frame * 255).astype(np.uint8))
    picture.thumbnail((256, 256))
    file = BytesIO()
    picture.save(file, "JPEG", quality=85, subsampling=0)  # small coloured things keep their edges
    return file.getvalue()


def hash_frames(frames: NDArray[np.float32]) -> str:
    """SHA-256 of the shape and the float32 values of frames, bit for bit."""
    digest = hashlib.sha256(repr(tuple(frames.shape)).encode())
    digest.update(np.ascontiguousarray(frames, dtype="<f4").data)
    return digest.hexdigest()


def load_video(path: str | Path) -> NDArray[np.uint8]:
    """All frames as players show them, turned and with square pixels, uint8.

    Raises GalaxyDiTError for a file without any, that is broken off, or with frames of several sizes.
    """
    pixels = bytearray()  # grows in place, so that the frames are not held twice
    shape: tuple[int, ...] = ()
    for shown in shown_frames(path):
        image = shown.image()
        if shape and image.shape != shape:
            expected = f"frames of one shape, not of {shape} and {image.shape}"
            raise refusal("path", str(path), expected, "convert it to one size")
        shape = image.shape
        pixels += image.data
    return np.frombuffer(pixels, np.uint8).reshape(-1, *shape)


def load_sound(path: str | Path) -> Sound | None:
    """The sound of a file of `save_video`, or None; what AAC carries beyond [-1, 1] is clipped.

    Raises GalaxyDiTError for a file that cannot be read.
    """
    import av

    check_file_kind("path", path)
    try:
        with av.open(address(path)) as container:
            if not container.streams.audio:
                return None
            track = container.streams.audio[0]
            samples = np.concatenate([frame.to_ndarray() for frame in container.decode(track)], axis=1)
    except (av.FFmpegError, ValueError) as error:
        expected = f"a video that can be read ({error})"
        raise refusal("path", str(path), expected, "check the path, or save the video again") from error
    return Sound(samples.astype(np.float32).clip(-1, 1), track.rate)


def side_by_side(
    videos: Sequence[NDArray[Any]], labels: Sequence[str], *, below: Sequence[str] = (), scale: int = 1
) -> NDArray[np.uint8]:
    """Videos of equal shape in one row under their labels, uint8 with even sizes; texts `below` stand under each.

    Raises GalaxyDiTError for videos of several shapes, and for another number of labels or texts.
    """
    labels, texts = listed("labels", labels), listed("below", below)
    if len(videos) == 0 or len(videos) != len(labels):
        raise refusal("labels", labels, f"one for each of {len(videos)} videos, at least one", "add or remove some")
    if texts and len(texts) != len(videos):
        raise refusal("below", texts, f"one for each of {len(videos)} videos, or none", "add or remove some")
    shapes = [video.shape for video in videos]
    if len(set(shapes)) > 1:
        raise refusal("videos", shapes, "equal shapes", "trim or resize them first")
    columns = []
    for index, (video, label) in enumerate(zip(videos, labels, strict=True)):
        images = enlarge(to_uint8(video, f"videos[{index}]"), scale)
        strips = [_strip(text, images) for text in (label, *texts[index : index + 1])]
        columns.append(np.concatenate([strips[0], images, *strips[1:]], axis=1))
        columns.append(np.zeros((*columns[-1].shape[:2], GAP, 3), np.uint8))
    row = np.concatenate(columns[:-1], axis=2)
    return np.pad(row, ((0, 0), (0, row.shape[1] % 2), (0, row.shape[2] % 2), (0, 0)))


def _strip(text: str, images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A strip with a text for each of the images."""
    width = images.shape[2]
    return np.broadcast_to(_draw_label(text, width), (len(images), LABEL_HEIGHT, width, 3))


def _draw_label(label: str, width: int) -> NDArray[np.uint8]:
    """The label in white on black, `(LABEL_HEIGHT, width, 3)` uint8, in the largest font size that fits."""
    image = Image.new("RGB", (width, LABEL_HEIGHT))
    draw = ImageDraw.Draw(image)
    label = one_line(label)
    size = 16
    while size > 6 and draw.textlength(label, font=ImageFont.load_default(size)) > width:
        size -= 1
    draw.text((width / 2, LABEL_HEIGHT / 2), label, font=ImageFont.load_default(size), anchor="mm")
    return np.asarray(image)
