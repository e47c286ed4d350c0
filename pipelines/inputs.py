"""Inputs of a generation, written as one prompt.

A prompt is a plain text, or a JSON object whose keys are arguments of the pipeline and whose values are the text and
the paths of images and videos, such as `EXAMPLE`.
"""

import hashlib
import inspect
import json
import socket
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageOps

from galaxydit.errors import DataWarning, refusal

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline

IMAGES = ("image", "last_image")
VIDEOS = ("video", "mask")
IMAGE_LIST = "reference_images"
EXAMPLE = '{"prompt": "a cat walks", "image": "cat.png"}'


def parse_inputs(prompt: str) -> dict[str, Any]:
    """The text (key "prompt") and the file paths of a prompt, with the pipeline's arguments as keys; the value of
    "reference_images" is a list of paths. Loads no torch.

    Raises GalaxyDiTError for damaged JSON, for a JSON object that lacks the key "prompt" or has keys or values that are
    not allowed, and for a path that is no file.
    """
    if not prompt.lstrip().startswith("{"):
        return {"prompt": prompt}
    try:
        data: dict[str, Any] = json.loads(prompt)
    except (ValueError, RecursionError) as error:
        raise refusal("prompt", prompt, f"a text or a JSON object ({error})", f"write for example {EXAMPLE}") from error
    known = {"prompt", *IMAGES, *VIDEOS, IMAGE_LIST}
    if "prompt" not in data or not data.keys() <= known or not all(_has_kind(*item) for item in data.items()):
        texts = ", ".join((*IMAGES, *VIDEOS))
        expected = f"texts for prompt and any of {texts}, and a list of texts for {IMAGE_LIST}"
        raise refusal("prompt", prompt, expected, f"write {EXAMPLE}")
    for name, path in _paths(data):
        if "\0" in path or not Path(path).is_file():
            raise refusal(name, path, "a file", f"pass an existing one; a path starts at {Path.cwd()}")
    return data


def hash_files(prompt: str) -> dict[str, str]:
    """SHA-256 (hexadecimal) of each file that a prompt names, with the paths as keys; empty if it names no file.

    Raises GalaxyDiTError as `parse_inputs` does, and OSError for a file that cannot be read.
    """
    paths = dict.fromkeys(path for _, path in _paths(parse_inputs(prompt)))
    return {path: hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in paths}


def verify_files(prompts: Iterable[str], hashes: Mapping[str, str]) -> None:
    """Raise GalaxyDiTError if a file that a prompt names differs from its SHA-256 in `hashes`, which `hash_files` made
    where the prompt was read; raises as `hash_files` does.
    """
    for prompt in prompts:
        for path, digest in hash_files(prompt).items():
            if digest != hashes.get(path):
                expected = f"the file that was there when the prompts were read, with SHA-256 {hashes.get(path)}"
                raise refusal("file", str(Path(path).absolute()), expected, f"restore it on {socket.gethostname()}")


def read_inputs(prompt: str) -> dict[str, Any]:
    """Arguments for the call of a pipeline: `prompt`, and the images and videos that the prompt names.

    Images are PIL images in RGB, upright by their metadata; videos and `reference_images` (of VACE) are lists of them.

    Raises GalaxyDiTError as `parse_inputs` does, and for a file that cannot be read.
    """
    inputs = parse_inputs(prompt)
    for name, value in inputs.items():
        if name != "prompt":
            inputs[name] = [_read_file(name, path) for path in value] if name == IMAGE_LIST else _read_file(name, value)
    return inputs


def check_inputs(pipe: "DiffusionPipeline", inputs: dict[str, Any]) -> None:
    """Raise ValueError unless the pipeline takes all of `inputs`, its arguments by name, and they hold the images and
    videos that it requires.

    The pipeline must also take `generator` and `callback_on_step_end`.
    """
    parameters, kind = inspect.signature(type(pipe).__call__).parameters, type(pipe).__name__
    for name in (*IMAGES, *VIDEOS):
        if name in parameters and parameters[name].default is inspect.Parameter.empty and name not in inputs:
            article = "an" if name == "image" else "a"
            raise ValueError(f"{kind} needs {article} {name}: give the prompt as a JSON object such as {EXAMPLE}")
    missing = {"generator", "callback_on_step_end", *inputs} - set(parameters)
    if missing:
        raise ValueError(
            f"{kind} does not take {', '.join(sorted(missing))}: pass another pipeline or other inputs, or call it "
            "yourself inside galaxydit.accelerate(pipe)"
        )


def _paths(inputs: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """For each file in the result of `parse_inputs`: the argument that it is for, and its path."""
    for name, value in inputs.items():
        if name != "prompt":
            yield from ((name, path) for path in (value if name == IMAGE_LIST else [value]))


def _has_kind(name: str, value: Any) -> bool:
    texts = value if name == IMAGE_LIST else [value]
    return isinstance(texts, list) and texts != [] and all(isinstance(text, str) for text in texts)


def _read_file(name: str, path: str) -> Image.Image | list[Image.Image]:
    from galaxydit.pipelines.video import load_video

    try:
        if name in VIDEOS:
            return [Image.fromarray(frame) for frame in load_video(path)]
        return _read_image(name, path)
    except (OSError, ValueError, SyntaxError, RuntimeError, Image.DecompressionBombError) as error:
        kind = "a video" if name in VIDEOS else "an image"
        raise refusal(name, path, f"{kind} that can be read ({error})", "pass another") from error


def _read_image(name: str, path: str) -> Image.Image:
    """The image in RGB as viewers show it: upright, with all grey levels in 8 bits, transparent parts over white."""
    with Image.open(path) as opened:
        image = ImageOps.exif_transpose(opened)
    if image.mode.startswith(("I", "F")):
        levels = np.asarray(image)
        if image.mode == "F" or not 0 <= levels.min() <= levels.max() < 2**16:
            raise ValueError("its levels have more than 16 bits")
        return Image.fromarray(np.rint(levels / 257).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        if np.asarray(image)[..., 3].min() < 255:
            text = f"galaxydit: {name}={path!r} has transparent parts, which become white"
            warnings.warn(text, DataWarning, stacklevel=4)
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")
