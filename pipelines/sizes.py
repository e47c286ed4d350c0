"""The size and the length of a video that starts from an image or another video, and a small size in its place."""

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.errors import DataWarning, refusal
from galaxydit.pipelines.clips import fit_images, read_videos
from galaxydit.pipelines.inputs import IMAGES, VIDEOS, check_inputs, inputs_of, parse_inputs, read_inputs
from galaxydit.pipelines.modular import parameters_of
from galaxydit.pipelines.settings import FRAME_COUNTS, MOST, GenerationSettings
from galaxydit.profiles.fingerprint import plain_config
from galaxydit.runtime.recognition import transformers_of

SMALL_TOKENS = 1800  # at most
SMALL_SHARE = 0.4  # of the tokens of the full video, at most
SMALL_LATENT_FRAMES = 4  # at most, and at most half of the full video's, rounded up
LARGEST_RATIO = 16  # of an input's sides, where one side of the video is given
TEMPORAL = ("vae_scale_factor_temporal", "vae_temporal_compression_ratio", "vae_temporal_scale_factor")
FRAME_BY_FRAME = ("WanVACEPipeline", "LucyEditPipeline")  # take a number of frames, which must be that of their video


def prepare_inputs(
    pipe: DiffusionPipeline,
    prompt: str | Mapping[str, Any],
    settings: GenerationSettings,
    recommend: Callable[[DiffusionPipeline], GenerationSettings],
) -> tuple[dict[str, Any], GenerationSettings]:
    """Arguments of the pipeline's call for a prompt, and the settings with the size of the video.

    A mapping holds inputs that are already read (`inputs_of`), whose videos have the frame rate of the settings and
    are resized. Videos of files are read at that rate and in that size (`read_videos`). `recommend` returns the
    authors' settings, which have the largest area and the number of frames without a video. Raises GalaxyDiTError for
    inputs that cannot be used together; ValueError if the pipeline needs other inputs.
    """
    if isinstance(prompt, str):
        inputs = read_inputs(prompt, first_frames=True)
    else:
        inputs = inputs_of(prompt)
    check_inputs(pipe, inputs)
    recommended = recommend(pipe)
    settings = fit_size(pipe, inputs, settings, recommended)
    taken = parameters_of(pipe).keys()
    follows = follows_video(pipe)
    width, height = settings.width, settings.height
    size = None
    if width is not None and height is not None and takes_images(pipe):
        size = (width, height)
    num_frames = None
    if follows and not taken.isdisjoint(FRAME_COUNTS):
        num_frames = settings.num_frames
    period = None
    if follows:
        period = _frames_of_latent(pipe, 1)
    if isinstance(prompt, str):
        paths = parse_inputs(prompt)
        files = {name: paths[name] for name in VIDEOS if name in paths}
        videos = read_videos(files, fps=settings.fps, size=size, period=period, num_frames=num_frames)
    else:
        read = {name: inputs[name] for name in VIDEOS if name in inputs}
        videos = fit_images(read, size=size, period=period, num_frames=num_frames)
    if follows and videos:
        settings = replace(settings, num_frames=len(next(iter(videos.values()))))
    elif follows and settings.num_frames is None:
        settings = replace(settings, num_frames=recommended.num_frames)
    return inputs | videos, settings


def fit_size(
    pipe: DiffusionPipeline, inputs: dict[str, Any], settings: GenerationSettings, recommended: GenerationSettings
) -> GenerationSettings:
    """The settings with the size of the video, and a warning for each input that it stretches.

    The first input keeps its aspect ratio, unless both sides are given or the model has one size; sides are multiples
    of the model's, and the area is at most the recommended one, as in diffusers' examples of Wan.
    """
    shown = [(name, inputs[name].size) for name in IMAGES if name in inputs]
    shown += [(name, inputs[name][0].size) for name in VIDEOS if name in inputs]
    height, width = settings.height or recommended.height, settings.width or recommended.width
    if height is None or width is None or not takes_images(pipe):
        return settings
    modulus = modulus_of(pipe)
    if shown and not has_one_size(pipe) and None in (settings.height, settings.width):
        height, width = _sides_like(shown[0], settings, height * width, modulus)
    for name, (columns, rows) in shown:
        # Rounded to multiples of the model's, as `height` and `width` are, could the sides be of this aspect ratio?
        least = max((width - modulus) / columns, (height - modulus) / rows)
        most = min((width + modulus) / columns, (height + modulus) / rows)
        if least >= most:
            warnings.warn(
                f"galaxydit: {name} of {columns}x{rows} pixels is stretched to {width}x{height}; crop it to this "
                "aspect ratio, or leave out height and width",
                DataWarning,
                stacklevel=3,
            )
    return replace(settings, height=height, width=width)


def _sides_like(
    shown: tuple[str, tuple[int, int]], settings: GenerationSettings, area: int, modulus: int
) -> tuple[int, int]:
    """Height and width in the aspect ratio of an input, with at most `area` pixels; a side of `settings` stays.

    Raises GalaxyDiTError for an aspect ratio that needs a larger area or side or, beside a given side, is above
    `LARGEST_RATIO`.
    """
    name, (columns, rows) = shown
    if settings.height:
        scale = settings.height / rows
    elif settings.width:
        scale = settings.width / columns
    else:
        scale = math.sqrt(area / (rows * columns))
    ratio = max(rows, columns) / min(rows, columns)
    largest = min(area / modulus**2, MOST["width"] / modulus)
    if settings.height or settings.width:
        largest = LARGEST_RATIO
    if ratio > largest:
        expected = f"an aspect ratio of at most {largest:,.0f}:1 for this video, not {ratio:,.0f}:1"
        raise refusal(name, f"{columns}x{rows} pixels", expected, "crop it, or give height and width")
    height = settings.height or max(modulus, round(scale * rows) // modulus * modulus)
    width = settings.width or max(modulus, round(scale * columns) // modulus * modulus)
    if settings.height or settings.width:
        return height, width
    # The shorter side may have been rounded up, which leaves less of the area to the longer one.
    longest = min(area // min(height, width), MOST["width"]) // modulus * modulus
    return min(height, longest), min(width, longest)


def follows_video(pipe: DiffusionPipeline) -> bool:
    """Whether the result has a frame for each frame of the pipeline's video."""
    taken = parameters_of(pipe)
    is_by_frame = any(base.__name__ in FRAME_BY_FRAME for base in type(pipe).__mro__)
    return "video" in taken and (is_by_frame or taken.keys().isdisjoint(FRAME_COUNTS))


def small_settings(pipe: DiffusionPipeline, settings: GenerationSettings) -> GenerationSettings:
    """`settings` with a smaller size of the same aspect ratio; unchanged if the model has one size or none is known."""
    height, width, frames = settings.height, settings.width, settings.num_frames
    if height is None or width is None or has_one_size(pipe):
        return settings
    temporal = _frames_of_latent(pipe, 4)
    patch: Any = plain_config(next(iter(transformers_of(pipe).values()))).get("patch_size_t") or 1
    latents = 1 if frames is None else (frames - 1) // temporal + 1
    keeps_length = hasattr(pipe, "min_duration")  # MiniMax-H3 makes no shorter video
    few = max(2, min(SMALL_LATENT_FRAMES, math.ceil(latents / 2)))
    if keeps_length:
        few = latents
    few = min(latents, math.ceil(few / patch) * patch)
    modulus = modulus_of(pipe)
    side = pixels_of_token(pipe)
    per_frame = (height // side) * (width // side)
    scale = math.sqrt(min(SMALL_TOKENS, SMALL_SHARE * latents * per_frame) / (few * per_frame))
    if scale < 1:
        height = min(height, max(2 * modulus, round(scale * height / modulus) * modulus))
        width = min(width, max(2 * modulus, round(scale * width / modulus) * modulus))
    if frames is not None and not keeps_length:
        frames = min(frames, (few - 1) * temporal + 1)
    return replace(settings, height=height, width=width, num_frames=frames)


def takes_images(pipe: DiffusionPipeline) -> bool:
    """Whether the pipeline takes an image or a video, and a size."""
    taken = parameters_of(pipe).keys()
    return {"height", "width"} <= taken and not taken.isdisjoint((*IMAGES, *VIDEOS))


def has_one_size(pipe: DiffusionPipeline) -> bool:
    """Whether the positions of the model are learned for one size, as those of CogVideoX-5b-I2V."""
    return any(plain_config(part).get("use_learned_positional_embeddings") for part in transformers_of(pipe).values())


def modulus_of(pipe: DiffusionPipeline) -> int:
    """The number that divides height and width: of 16, which pipelines ask for, and the pixels of a token."""
    return math.lcm(16, pixels_of_token(pipe))


def pixels_of_token(pipe: DiffusionPipeline) -> int:
    """Rows of pixels of a token, which are as many as its columns."""
    patch: Any = plain_config(next(iter(transformers_of(pipe).values()))).get("patch_size") or 1
    processor = getattr(pipe, "video_processor", None)
    pixels: int = 8 if processor is None else processor.config.vae_scale_factor
    if not isinstance(patch, int):  # frames, rows and columns
        patch = patch[-1]
    return pixels * patch


def _frames_of_latent(pipe: DiffusionPipeline, default: int) -> int:
    """Frames of a latent frame, under whatever name the pipeline has them."""
    for name in TEMPORAL:
        if hasattr(pipe, name):
            frames: int = getattr(pipe, name)
            return frames
    return default
