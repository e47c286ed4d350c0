"""What a request of the example server may ask for: its fields, and the limits that bound work and memory."""

import base64
import binascii
import json
import warnings
from dataclasses import replace
from inspect import Parameter
from io import BytesIO
from typing import Any

from diffusers import DiffusionPipeline
from fastapi import HTTPException
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from galaxydit.errors import DataWarning
from galaxydit.pipelines.inputs import check_inputs, upright
from galaxydit.pipelines.modular import parameters_of
from galaxydit.pipelines.published_models import own_settings
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.sizes import fit_size
from galaxydit.request import QualityName

MOST_CHARACTERS = 2000  # of a prompt
MOST_IMAGE_BYTES = 10 * 2**20
MOST_PIXELS = 32_000_000  # of an image
MOST_BODY_BYTES = 2 * MOST_IMAGE_BYTES  # base64 takes four bytes for three
STEPS_FACTOR = 2  # a request has at most so many times the steps of the settings
IMAGE_FORMATS = ("PNG", "JPEG", "WEBP")  # Pillow reads some of the others with programs of their own


class VideoRequest(BaseModel):
    """A text, an image where the model takes one, and how to make the video; its size is that of the server."""

    model_config = ConfigDict(extra="forbid")

    prompt: str = Field(max_length=MOST_CHARACTERS)
    quality: QualityName = "balanced"
    seed: int = Field(0, ge=0, lt=2**64)
    steps: int | None = Field(None, ge=1)
    image: str | None = None  # the bytes of a PNG, JPEG or WebP file in base64


class BodyLimit:
    """Middleware that answers 413 to a body above `MOST_BODY_BYTES` before the rest of it is received."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        size = 0

        async def receive_limited() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > MOST_BODY_BYTES:
                raise HTTPException(413, f"a request has at most {MOST_BODY_BYTES} bytes")
            return message

        await self._app(scope, receive_limited, send)


def check_request(request: VideoRequest, settings: GenerationSettings) -> None:
    """Raise HTTPException 422 for a prompt or a number of steps that is not allowed."""
    _check_prompt(request)
    most = STEPS_FACTOR * (settings.steps or 1)
    if request.steps is not None and request.steps > most:
        raise HTTPException(422, f"steps={request.steps} is not allowed: expected at most {most}; pass fewer")


def _check_prompt(request: VideoRequest) -> None:
    text = request.prompt
    if not text.strip() and request.image is None:
        raise HTTPException(422, "prompt is blank: say what the video shows")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise HTTPException(422, "prompt is no text in Unicode: it holds half a surrogate pair") from None
    try:
        is_object = isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        is_object = False
    if is_object:
        raise HTTPException(422, "prompt is a text here, not JSON: pass the bytes of an image in base64 as image")


def read_request(
    pipe: DiffusionPipeline, request: VideoRequest, settings: GenerationSettings
) -> tuple[dict[str, Any], GenerationSettings]:
    """Inputs of the pipeline, and the settings of a request that `check_request` allows.

    Raises HTTPException 422 for an image that cannot be read, or that the model does not take or needs.
    """
    inputs: dict[str, Any] = {"prompt": request.prompt}
    image = parameters_of(pipe).get("image")
    if request.image is not None:
        inputs["image"] = _decode(request.image)
    elif image is not None and image.default is Parameter.empty:
        raise HTTPException(422, "this model needs an image: pass the bytes of its file in base64 as image")
    wanted = replace(settings, steps=request.steps or settings.steps)
    try:
        check_inputs(pipe, inputs)
        recommended = own_settings(pipe)
        fitted = fit_size(pipe, inputs, wanted, recommended)
    except ValueError as error:
        raise HTTPException(422, str(error)) from error
    most = _area(wanted, recommended)
    if _area(fitted, recommended) > most:  # where the settings have one side, and the image a long other one
        size = inputs["image"].size
        what = f"image of {size[0]}x{size[1]} pixels makes a video of {fitted.width}x{fitted.height}"
        raise HTTPException(422, f"{what}: expected an aspect ratio for at most {most} pixels; crop it")
    return inputs, fitted


def _area(settings: GenerationSettings, recommended: GenerationSettings) -> int:
    height, width = settings.height or recommended.height, settings.width or recommended.width
    return (height or 0) * (width or 0)


def _decode(text: str) -> Image.Image:
    try:
        content = base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error) as error:
        raise HTTPException(422, f"image is no base64 ({error}): encode the bytes of the file") from error
    if len(content) > MOST_IMAGE_BYTES:
        raise HTTPException(422, f"image has {len(content)} bytes: expected at most {MOST_IMAGE_BYTES}")
    try:
        with Image.open(BytesIO(content), formats=IMAGE_FORMATS) as opened:
            if (pixels := opened.width * opened.height) > MOST_PIXELS:
                raise HTTPException(422, f"image has {pixels} pixels: expected at most {MOST_PIXELS}")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DataWarning)
                return upright(opened, "image")
    except (OSError, ValueError, SyntaxError, RuntimeError, Image.DecompressionBombError) as error:
        formats = ", ".join(IMAGE_FORMATS)
        raise HTTPException(422, f"image cannot be read: expected a file in one of {formats}") from error
