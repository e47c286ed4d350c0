"""The size of a video that starts from an image or another video."""

import math
import warnings
from dataclasses import replace
from inspect import signature
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.errors import DataWarning
from galaxydit.pipelines.inputs import IMAGE_LIST, IMAGES, VIDEOS
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.profiles.fingerprint import plain_config
from galaxydit.runtime.recognition import transformers_of


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
        columns, rows = shown[0][1]
        scale = math.sqrt(height * width / (rows * columns))
        scale = settings.height / rows if settings.height else settings.width / columns if settings.width else scale
        height, width = (
            side or max(modulus, round(scale * length) // modulus * modulus)
            for side, length in ((settings.height, rows), (settings.width, columns))
        )
    for name, (columns, rows) in shown:
        # Rounded to multiples of the model's, as `height` and `width` are, could the sides be of this aspect ratio?
        if max((width - modulus) / columns, (height - modulus) / rows) >= min(
            (width + modulus) / columns, (height + modulus) / rows
        ):
            warnings.warn(
                f"galaxydit: {name} of {columns}x{rows} pixels is stretched to {width}x{height}; crop it to this "
                "aspect ratio, or leave out height and width",
                DataWarning,
                stacklevel=3,
            )
    return replace(settings, height=height, width=width)


def resize_videos(pipe: DiffusionPipeline, inputs: dict[str, Any], settings: GenerationSettings) -> dict[str, Any]:
    """The inputs, for VACE resized to `settings`, because it would only shrink them and pad its tokens."""
    size = settings.width, settings.height
    if IMAGE_LIST not in signature(type(pipe).__call__).parameters or None in size:
        return inputs
    return inputs | {name: [image.resize(size) for image in inputs[name]] for name in VIDEOS if name in inputs}


def takes_images(pipe: DiffusionPipeline) -> bool:
    """Whether the pipeline takes an image or a video, and a size."""
    taken = signature(type(pipe).__call__).parameters.keys()
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
    return pixels * (patch if isinstance(patch, int) else patch[-1])
