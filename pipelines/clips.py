"""A video as an input: its frames at the rate of the model and in the size of the result, read one at a time."""

import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from pathlib import Path

from PIL import Image

from galaxydit.errors import DataWarning, refusal
from galaxydit.pipelines.frames import shown_frames
from galaxydit.pipelines.inputs import reading
from galaxydit.pipelines.settings import check_fps

MOST_IMAGES = 10_000  # seven minutes at 24 frames per second, more than any model makes; bounds the memory


@dataclass(frozen=True, eq=False)
class Clip:
    """Images of a video in RGB.

    Attributes:
        images: at most as many as were asked for.
        sources: index of the frame that each image shows, also of images that were not kept.
        frames, seconds: of the whole file.
    """

    images: list[Image.Image]
    sources: tuple[int, ...]
    frames: int
    seconds: float


def first_image(path: str | Path) -> Image.Image:
    """The first frame of a video. Raises GalaxyDiTError as `shown_frames`."""
    return Image.fromarray(next(shown_frames(path)).image())


def read_clip(
    path: str | Path,
    *,
    fps: float | None = None,
    sources: tuple[int, ...] | None = None,
    size: tuple[int, int] | None = None,
    most: int = MOST_IMAGES,
) -> Clip:
    """The images that a video shows, of which each is resized before the next frame is read.

    Args:
        fps: images per second: the first image is the first frame, image k that at (k + 1/2) / fps seconds. By default
            every frame is an image.
        sources: in place of `fps`, the indices of frames, in ascending order; those beyond the last frame are left out.
        size: width and height of the images in pixels; by default those of each frame.
        most: images that are kept.

    Raises GalaxyDiTError as `shown_frames`, for a rate that is not allowed, and for a video of more than `MOST_IMAGES`
    images.
    """
    rate = None
    if fps is not None:
        rate = Fraction(check_fps(fps)).limit_denominator(1001)
    wanted = Counter(sources)
    images: list[Image.Image] = []
    taken: list[int] = []
    for index, shown in enumerate(shown_frames(path)):
        if sources is not None:
            times = wanted[index]
        elif rate is None:
            times = 1
        else:
            before_end = ceil(shown.end * rate - Fraction(1, 2))  # number of images k with (k + 1/2) / rate < end
            times = max(before_end - len(taken), int(index == 0))
        if len(taken) + times > MOST_IMAGES:
            expected = f"a video of at most {MOST_IMAGES} frames"
            if fps is not None:
                expected += f" at {fps:g} per second"
            raise refusal("path", str(path), expected, "cut it")
        taken += [index] * times
        kept = min(times, most - len(images))
        if kept > 0:
            images += resized([Image.fromarray(shown.image())], size) * kept
    return Clip(images, tuple(taken), index + 1, float(shown.end))


def resized(images: list[Image.Image], size: tuple[int, int] | None) -> list[Image.Image]:
    """The images in this width and height, or as they are without a size."""
    if size is None:
        return images
    return [image.resize(size, Image.Resampling.LANCZOS) for image in images]


def read_videos(
    paths: Mapping[str, str], *, fps: float, size: tuple[int, int] | None, period: int | None, num_frames: int | None
) -> dict[str, list[Image.Image]]:
    """The images of videos by the names of their arguments, at `fps` images per second and in one `size`.

    The first video is resampled; the others, such as a mask, have a frame for each of its frames. Warns of what the
    resampling changes.

    Args:
        period: the result has as many frames as the first video, rounded to a multiple of `period` and 1; None if the
            result has another length.
        num_frames: of the result, if the user set it: the first frames are taken.

    Raises GalaxyDiTError as `read_clip`, for videos of unequal length and for one shorter than `num_frames`.
    """
    videos: dict[str, list[Image.Image]] = {}
    lead = ""
    clip = None
    sources = tuple[int, ...]()
    for name, path in paths.items():
        if clip is None:
            lead = name
            with reading(name, path, "a video"):
                clip = read_clip(path, fps=fps, size=size, most=num_frames or MOST_IMAGES)
            described = f"the frames of {name}={path!r} at {fps:g} frames per second"
            count = _count(len(clip.sources), described, period, num_frames)
            sources = (clip.sources + clip.sources[-1:] * count)[:count]
            videos[name] = (clip.images + clip.images[-1:] * count)[:count]
            _warn_of_changes(name, path, clip, fps, count)
        else:
            with reading(name, path, "a video"):
                other = read_clip(path, sources=sources, size=size)
            if other.frames != clip.frames:
                expected = f"{clip.frames} frames, as many as {lead}={paths[lead]!r} has, but it has {other.frames}"
                raise refusal(name, path, expected, "trim one of them")
            videos[name] = other.images
    return videos


def fit_images(
    videos: Mapping[str, list[Image.Image]], *, size: tuple[int, int] | None, period: int | None, num_frames: int | None
) -> dict[str, list[Image.Image]]:
    """Videos that are already read, resized, with as many frames as `read_videos` gives. Warns of frames that change.

    Raises GalaxyDiTError for videos without frames or of unequal length, and for one shorter than `num_frames`.
    """
    fitted: dict[str, list[Image.Image]] = {}
    lead = next(iter(videos), "")  # the first video
    for name, images in videos.items():
        length = len(videos[lead])
        if len(images) != length or not images:
            expected = f"{length} frames, as many as {lead} has" if length else "at least one frame"
            raise refusal(name, f"{len(images)} frames", expected, "pass videos of equal length")
        count = _count(length, f"the frames of {name}", period, num_frames)
        if count != length and num_frames is None and name == lead:
            text = f"galaxydit: {name} has {length} frames and is taken as {count}, which the model can make"
            warnings.warn(text, DataWarning, stacklevel=4)
        fitted[name] = resized((images + images[-1:] * count)[:count], size)
    return fitted


def _count(count: int, described: str, period: int | None, num_frames: int | None) -> int:
    """Frames of the result of a video with `count` frames, or `count` if the result has another length."""
    if period is None:
        return count
    fitting = (count - 1) // period * period + 1
    if 2 * (count - fitting) >= period:
        fitting += period  # nearer, with the last frame repeated
    if num_frames is None:
        return fitting
    asked = (num_frames - 1) // period * period + 1  # as pipelines round it
    if asked > fitting:
        raise refusal(
            "num_frames", num_frames, f"at most {fitting}, {described}", "leave it out, or pass a longer video"
        )
    return asked


def _warn_of_changes(name: str, path: str, clip: Clip, fps: float, count: int) -> None:
    if clip.sources == tuple(range(count)) and count == clip.frames:
        return
    rate = clip.frames / clip.seconds
    text = f"galaxydit: {name}={path!r} has {clip.frames} frames in {clip.seconds:.2f} s ({rate:.4g} frames per second)"
    text += f" and is read as {count} frames in {count / fps:.2f} s ({fps:g} frames per second)"
    rest = (len(clip.sources) - count) / fps
    if rest > 0:
        text += f"; its last {rest:.2f} s are left out to fit the number of frames"
    elif rest < 0:
        text += f"; its last frame is shown {-rest:.2f} s longer to fit the number of frames"
    warnings.warn(text, DataWarning, stacklevel=4)
