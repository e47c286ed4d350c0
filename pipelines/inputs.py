"""What a generation starts from: a text, or a JSON object with a text and the paths of images and videos."""

import inspect
import json
from collections.abc import Callable
from typing import Any

from diffusers import DiffusionPipeline
from PIL import Image

from galaxydit.errors import refusal
from galaxydit.pipelines.video import load_video

IMAGES = ("image", "last_image")
VIDEOS = ("video", "mask")
IMAGE_LISTS = ("reference_images",)
EXAMPLE = '{"prompt": "a cat walks", "image": "cat.png"}'


def read_inputs(prompt: str) -> dict[str, Any]:
    """Arguments for the call of a pipeline. A text is `{"prompt": text}`; so is a JSON object, one line of a prompts
    file, with the images (PIL, RGB) and videos (lists of those) that it names by path; `reference_images` (VACE) is a
    list of paths.

    Raises GalaxyDiTError for an object of another kind, and for a file that cannot be read.
    """
    if not prompt.lstrip().startswith("{"):
        return {"prompt": prompt}
    try:
        data = json.loads(prompt)
    except ValueError as error:
        raise refusal("prompt", prompt, f"a text or a JSON object ({error})", f"write for example {EXAMPLE}") from error
    readers: dict[str, Callable[[Any], Any]] = {"prompt": str, **dict.fromkeys(IMAGES, _read_image)}
    readers |= dict.fromkeys(VIDEOS, _read_video) | dict.fromkeys(
        IMAGE_LISTS, lambda paths: list(map(_read_image, paths))
    )
    if "prompt" not in data or set(data) - set(readers) or not all(_has_kind(*item) for item in data.items()):
        lists, texts = ", ".join(IMAGE_LISTS), ", ".join((*IMAGES, *VIDEOS))
        expected = f"texts for prompt and any of {texts}, and a list of texts for {lists}"
        raise refusal("prompt", prompt, expected, f"write {EXAMPLE}")
    return {name: readers[name](value) for name, value in data.items()}


def check_inputs(pipe: DiffusionPipeline, inputs: dict[str, Any]) -> None:
    """Raise ValueError unless the pipeline takes these inputs, reports its steps, and needs nothing else."""
    parameters, kind = inspect.signature(type(pipe).__call__).parameters, type(pipe).__name__
    for name in (*IMAGES, *VIDEOS):
        if name in parameters and parameters[name].default is inspect.Parameter.empty and name not in inputs:
            raise ValueError(f"{kind} needs an {name}: give the prompt as a JSON object such as {EXAMPLE}")
    missing = {"generator", "callback_on_step_end", *inputs} - set(parameters)
    if missing:
        raise ValueError(
            f"{kind} does not take {', '.join(sorted(missing))}: pass another pipeline or other inputs, or call it "
            "yourself inside galaxydit.accelerate(pipe)"
        )


def _has_kind(name: str, value: Any) -> bool:
    texts = value if name in IMAGE_LISTS else [value]
    return isinstance(texts, list) and texts != [] and all(isinstance(text, str) for text in texts)


def _read_image(path: str) -> Image.Image:
    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except OSError as error:
        raise refusal("image", path, f"an image that can be read ({error})", "pass an existing one") from error


def _read_video(path: str) -> list[Image.Image]:
    try:
        return [Image.fromarray(frame) for frame in load_video(path)]
    except FileNotFoundError as error:
        raise refusal("video", path, "a video that can be read", "pass an existing one") from error
