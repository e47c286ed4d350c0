"""What a generation starts from: a text, or a JSON object with a text and the paths of images and videos."""

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from galaxydit.errors import refusal

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline

IMAGES = ("image", "last_image")
VIDEOS = ("video", "mask")
EXAMPLE = '{"prompt": "a cat walks", "image": "cat.png"}'


def parse_inputs(prompt: str) -> dict[str, str]:
    """The text and the paths that a prompt names, by argument of the pipeline. Loads no torch.

    Raises GalaxyDiTError for an object of another kind, and for a path that is no file.
    """
    if not prompt.lstrip().startswith("{"):
        return {"prompt": prompt}
    try:
        data = json.loads(prompt)
    except (ValueError, RecursionError) as error:
        raise refusal("prompt", prompt, f"a text or a JSON object ({error})", f"write for example {EXAMPLE}") from error
    allowed = ("prompt", *IMAGES, *VIDEOS)
    if "prompt" not in data or set(data) - set(allowed) or not all(isinstance(one, str) for one in data.values()):
        raise refusal("prompt", prompt, f"texts for prompt and any of {', '.join(allowed[1:])}", f"write {EXAMPLE}")
    for name, path in data.items():
        if name != "prompt" and ("\0" in path or not Path(path).is_file()):
            raise refusal(name, path, "a file", "pass an existing one; a path starts at the current folder")
    return dict(data)


def read_inputs(prompt: str) -> dict[str, Any]:
    """Arguments for the call of a pipeline. A text is `{"prompt": text}`; so is a JSON object, one line of a prompts
    file, with the images (PIL, RGB) and videos (lists of those) that it names by path.

    Raises GalaxyDiTError as `parse_inputs` does, and for a file that cannot be read.
    """
    readers: dict[str, Callable[[str, Path], Any]] = dict.fromkeys(IMAGES, _read_image)
    readers |= dict.fromkeys(VIDEOS, _read_video)
    named = parse_inputs(prompt)
    return {name: readers[name](name, Path(value)) if name in readers else value for name, value in named.items()}


def check_inputs(pipe: "DiffusionPipeline", inputs: dict[str, Any]) -> None:
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


def _read_image(name: str, path: Path) -> Image.Image:
    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise refusal(name, str(path), f"an image that can be read ({error})", "pass another") from error


def _read_video(name: str, path: Path) -> list[Image.Image]:
    from galaxydit.pipelines.video import load_video

    try:
        return [Image.fromarray(frame) for frame in load_video(path)]
    except (OSError, ValueError) as error:
        raise refusal(name, str(path), f"a video that can be read ({error})", "pass another") from error
