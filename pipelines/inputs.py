"""Inputs of a generation, written as one prompt: a plain text, or a JSON object such as `EXAMPLE`."""

import hashlib
import inspect
import json
import socket
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageOps

from galaxydit.errors import DataWarning, GalaxyDiTError, did_you_mean, refusal
from galaxydit.pipelines.settings import FRAME_COUNTS, GenerationSettings

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline

IMAGES = ("image", "last_image")
VIDEOS = ("video", "mask")
IMAGE_LIST = "reference_images"
# Arguments of a call that `generate` gives beside the settings.
GIVEN = ("generator", "num_inference_steps", "output_type", "callback_on_step_end")
KNOWN = ("prompt", *IMAGES, *VIDEOS, IMAGE_LIST)
EXAMPLE = '{"prompt": "a cat walks", "image": "cat.png"}'


def parse_inputs(prompt: str) -> dict[str, Any]:
    """The pipeline's arguments in a prompt: its text, and paths of images and videos. Loads no torch.

    Raises GalaxyDiTError for a blank text without a file, damaged JSON, keys or values that are not allowed, and a path
    that is no file.
    """
    data = _parsed(prompt)
    if data.keys() == {"prompt"} and not data["prompt"].strip():
        cure = "say what the video shows, or name an image or a video"
        raise refusal("prompt", prompt, "a text that is not blank", cure)
    return data


def _parsed(prompt: str) -> dict[str, Any]:
    if not prompt.lstrip().startswith("{"):
        return {"prompt": prompt}
    try:
        data: dict[str, Any] = json.loads(prompt)
    except (ValueError, RecursionError) as error:
        raise refusal("prompt", prompt, f"a text or a JSON object ({error})", f"write for example {EXAMPLE}") from error
    has_kinds = all(_has_kind(name, value) for name, value in data.items())
    if "prompt" not in data or not data.keys() <= set(KNOWN) or not has_kinds:
        texts = ", ".join((*IMAGES, *VIDEOS))
        expected = f"texts for prompt and any of {texts}, and a list of texts for {IMAGE_LIST}"
        raise refusal("prompt", prompt, expected, f"write {EXAMPLE}")
    for name, path in _paths(data):
        if "\0" in path or not Path(path).is_file():
            raise refusal(name, path, "a file", f"pass an existing one; a path starts at {Path.cwd()}")
    return data


def merge_inputs(prompt: str, files: Mapping[str, Any]) -> str:
    """The prompt in JSON with these paths by argument, too; unchanged without paths.

    Raises as `parse_inputs`, also for an argument given twice.
    """
    inputs = _parsed(prompt)  # of which the text may be blank beside `files`
    if twice := inputs.keys() & files.keys():
        name = min(twice)
        raise refusal(name, files[name], f"a prompt without {name}", "name it once, as an option or in the prompt")
    if files:
        prompt = json.dumps({**inputs, **files}, ensure_ascii=False)
    parse_inputs(prompt)
    return prompt


def hash_files(prompt: str) -> dict[str, str]:
    """SHA-256 of each file that a prompt names, by path. Raises as `parse_inputs`, and OSError."""
    hashes: dict[str, str] = {}
    for _, path in _paths(parse_inputs(prompt)):
        if path in hashes:
            continue
        with open(path, "rb") as file:  # not read at once, because videos are large
            hashes[path] = hashlib.file_digest(file, "sha256").hexdigest()
    return hashes


def verify_files(prompts: Iterable[str], hashes: Mapping[str, str]) -> None:
    """Raise GalaxyDiTError if a file of the prompts differs from its hash of `hash_files`; raises as that, too."""
    for prompt in prompts:
        for path, digest in hash_files(prompt).items():
            if digest != hashes.get(path):
                expected = f"the file that was there when the prompts were read, with SHA-256 {hashes.get(path)}"
                raise refusal("file", str(Path(path).absolute()), expected, f"restore it on {socket.gethostname()}")


def read_inputs(prompt: str, *, first_frames: bool = False) -> dict[str, Any]:
    """Arguments for a pipeline's call, with upright PIL images in RGB; videos and `reference_images` are lists of them.

    Videos have all frames of their files, with `first_frames` the first one alone. `sizes.prepare_inputs` returns
    those that a pipeline can use. Raises GalaxyDiTError as `parse_inputs`, and for a file that cannot be read.
    """
    from galaxydit.pipelines.clips import first_image, read_clip

    inputs = parse_inputs(prompt)
    for name, value in inputs.items():
        if name in IMAGES:
            inputs[name] = _read_image(name, value)
        elif name == IMAGE_LIST:
            inputs[name] = [_read_image(name, path) for path in value]
        elif name in VIDEOS:
            with reading(name, value, "a video"):
                if first_frames:
                    inputs[name] = [first_image(value)]
                else:
                    inputs[name] = read_clip(value).images
    return inputs


def inputs_of(prompt: Any) -> dict[str, Any]:
    """A mapping of inputs that are already read. Raises GalaxyDiTError for keys and values that no input has."""
    if not isinstance(prompt, Mapping):
        raise refusal("prompt", prompt, "one text, or a mapping of inputs that are read", "pass one prompt at a time")
    for name, value in prompt.items():
        if name not in KNOWN:
            expected = f"some of {', '.join(KNOWN)}"
            raise refusal("prompt", [*prompt], expected, f"leave out {name!r}{did_you_mean(name, KNOWN)}")
        is_list = isinstance(value, list | tuple) and len(value) > 0
        if name == "prompt" and not isinstance(value, str):
            raise refusal(name, value, "one text", "pass one prompt at a time")
        if name in IMAGES and not isinstance(value, Image.Image):
            raise refusal(name, value, "an image of PIL", "read it by galaxydit.pipelines.inputs.read_inputs")
        if name in (*VIDEOS, IMAGE_LIST) and not (is_list and all(isinstance(each, Image.Image) for each in value)):
            raise refusal(name, value, "a list of images of PIL", "read it by galaxydit.pipelines.inputs.read_inputs")
    return {name: [*value] if isinstance(value, tuple) else value for name, value in prompt.items()}


def check_inputs(pipe: "DiffusionPipeline", inputs: dict[str, Any]) -> None:
    """Raise ValueError unless the pipeline takes all `inputs` and a generator, and needs no others.

    Its steps are told by a callback or, where its call takes none, by its scheduler.
    A pipeline without the text encoder or the tokenizer that its class needs is refused, too.
    """
    from galaxydit.pipelines.modular import parameters_of

    parameters = parameters_of(pipe)
    kind = type(pipe).__name__
    is_of_diffusers = type(pipe).__module__.startswith("diffusers.")  # others may read texts in their own way
    for name in ("text_encoder", "tokenizer"):
        is_needed = (
            is_of_diffusers
            and name in getattr(pipe, "config", {})
            and name not in getattr(pipe, "_optional_components", ())
        )
        if is_needed and getattr(pipe, name, None) is None:
            cure = f"load it with its {name}; with prompt_embeds, call it yourself inside galaxydit.accelerate(pipe)"
            raise refusal(name, None, f"that of {kind}, because prompts are texts here", cure)
    given = {*inputs, *GIVEN, *FRAME_COUNTS, *(field.name for field in fields(GenerationSettings))}
    needed = []
    for name, each in parameters.items():
        if _is_needed(each) and name not in given:
            needed.append(name)
    for name in (*IMAGES, *VIDEOS):
        if name in needed:
            article = "an" if name == "image" else "a"
            raise ValueError(f"{kind} needs {article} {name}: pass --{name.replace('_', '-')}, or the prompt {EXAMPLE}")
    if needed:
        raise ValueError(
            f"{kind} needs {', '.join(needed)}, which no prompt here can name: call it yourself inside "
            "galaxydit.accelerate(pipe)"
        )
    needed_names = {"generator", *inputs}
    if not hasattr(getattr(pipe, "scheduler", None), "step"):
        needed_names.add("callback_on_step_end")
    missing = needed_names - set(parameters)
    if missing:
        raise ValueError(
            f"{kind} does not take {', '.join(sorted(missing))}: pass another pipeline or other inputs, or call it "
            "yourself inside galaxydit.accelerate(pipe)"
        )


def _is_needed(parameter: inspect.Parameter) -> bool:
    is_named = parameter.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return is_named and parameter.default is inspect.Parameter.empty and parameter.name != "self"


def _paths(inputs: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in inputs.items():
        if name == IMAGE_LIST:
            for path in value:
                yield name, path
        elif name != "prompt":
            yield name, value


def _has_kind(name: str, value: Any) -> bool:
    texts = value if name == IMAGE_LIST else [value]
    return isinstance(texts, list) and texts != [] and all(isinstance(text, str) for text in texts)


@contextmanager
def reading(name: str, path: str, kind: str) -> Iterator[None]:
    """Context in which the errors of a file that cannot be read name its argument."""
    try:
        yield
    except GalaxyDiTError as error:
        if error.field != "path":
            raise
        raise refusal(name, path, error.expected, error.cure) from error
    except (OSError, ValueError, SyntaxError, RuntimeError, Image.DecompressionBombError) as error:
        raise refusal(name, path, f"{kind} that can be read ({error})", "pass another") from error


def _read_image(name: str, path: str) -> Image.Image:
    with reading(name, path, "an image"), Image.open(path) as opened:
        return upright(opened, f"{name}={path!r}")


def upright(opened: Image.Image, name: str) -> Image.Image:
    """The image in RGB as viewers show it: upright, with all grey levels in 8 bits, transparent parts over white."""
    image = ImageOps.exif_transpose(opened)
    if image.mode.startswith(("I", "F")):
        levels = np.asarray(image)
        if image.mode == "F" or not 0 <= levels.min() <= levels.max() < 2**16:
            raise ValueError("its levels have more than 16 bits")
        return Image.fromarray(np.rint(levels / 257).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        if np.asarray(image)[..., 3].min() < 255:
            text = f"galaxydit: {name} has transparent parts, which become white"
            warnings.warn(text, DataWarning, stacklevel=4)
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")
