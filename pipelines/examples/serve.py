"""A server of videos: a request names its quality, and its response holds the report of its own generation.

pip install -e '.[examples]'
GALAXYDIT_MODEL=wan-tiny uvicorn --factory galaxydit.pipelines.examples.serve:app
curl -d '{"prompt": "a red ball", "quality": "fast"}' -H 'Content-Type: application/json' localhost:8000/videos

A prompt is text, and an image comes as bytes in base64 (`image`): a request names no file and no address. `/health`
says that the process answers, `/ready` that another request would be served. The sender's faults are answered with
4xx, the server's with 5xx.
"""

import base64
import os
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from anyio import from_thread
from diffusers import DiffusionPipeline
from fastapi import FastAPI, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel

import galaxydit
from galaxydit.foreign_text import logger_of, one_line
from galaxydit.pipelines.examples.request_limits import BodyLimit, VideoRequest, check_request, read_request
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.inputs import IMAGES, check_inputs
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.memory import is_out_of_memory
from galaxydit.pipelines.modular import parameters_of
from galaxydit.pipelines.published_models import own_settings, recommended_settings
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.video import save_video

MOST_WAITING = 8  # requests that are served or wait
MOST_DETAIL = 400  # characters, of which a request can hold megabytes
PATIENCE = 0.5  # seconds between two looks at whether the client of a waiting request is there
logger = logger_of(__name__)


class VideoResponse(BaseModel):
    video: str  # mp4 in base64
    report: dict[str, Any]  # `Report.to_dict`
    summary: str


class ClientLeftError(Exception):
    """The client closed its connection, so nobody wants the video."""


def create_app(pipe: DiffusionPipeline, settings: GenerationSettings) -> FastAPI:
    """The server of one pipeline, which makes one video at a time because it has one scheduler.

    Raises ValueError for a pipeline that needs more than a text and an image.
    """
    check_inputs(pipe, {"prompt": ""} | {name: None for name in IMAGES[:1] if _takes(pipe, name)})
    server, turn, acceleration = FastAPI(), threading.Lock(), galaxydit.accelerate(pipe)
    settings = replace(settings, steps=settings.steps or own_settings(pipe).steps)
    under_way: set[object] = set()

    def make(request: VideoRequest, check_client: Callable[[], None]) -> VideoResponse:
        inputs, wanted = read_request(pipe, request, settings)
        while not turn.acquire(timeout=PATIENCE):
            check_client()
        try:
            check_client()
            with acceleration.using(quality=request.quality) as served:
                video = generate(pipe, inputs, wanted, request.seed, on_step=lambda *_: check_client())
        finally:
            turn.release()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "video.mp4"
            save_video(video.frames, path, wanted.fps)
            content = base64.b64encode(path.read_bytes()).decode()
        return VideoResponse(video=content, report=served.report.to_dict(), summary=str(served.report))

    @server.post("/videos")
    async def make_video(request: VideoRequest, connection: Request) -> VideoResponse:
        check_request(request, settings)
        if len(under_way) >= MOST_WAITING:
            raise HTTPException(503, f"{MOST_WAITING} requests are under way; ask again later", {"Retry-After": "60"})

        def check_client() -> None:
            if from_thread.run(connection.is_disconnected):
                raise ClientLeftError

        under_way.add(this := object())
        try:
            return await run_in_threadpool(make, request, check_client)
        except ClientLeftError:
            raise HTTPException(499, "the client left") from None
        except HTTPException:
            raise
        except Exception as error:
            logger.exception("a video could not be made")
            if any(is_out_of_memory(each) for each in (error, error.__cause__) if each is not None):
                raise HTTPException(503, "the memory of the server does not suffice for this video now") from error
            raise HTTPException(500, "the server could not make this video; its log says why") from error
        finally:
            under_way.discard(this)

    @server.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @server.get("/ready")
    async def ready() -> JSONResponse:
        is_free = len(under_way) < MOST_WAITING
        return JSONResponse({"ready": is_free, "under_way": len(under_way)}, 200 if is_free else 503)

    @server.exception_handler(RequestValidationError)
    async def refuse(_: Request, error: RequestValidationError) -> JSONResponse:
        # Without the input, which FastAPI's own answer repeats: not every input can be written as JSON.
        problem = error.errors()[0]
        place = ".".join(str(part) for part in problem["loc"][1:])
        return JSONResponse({"detail": one_line(f"{place}: {problem['msg']}")[:MOST_DETAIL]}, 422)

    server.add_middleware(BodyLimit)
    return server


def app() -> FastAPI:
    """The server of the model that the environment names."""
    pipe = load_pipeline(os.environ.get("GALAXYDIT_MODEL", "wan-tiny"))
    return create_app(pipe, recommended_settings(pipe))


def _takes(pipe: DiffusionPipeline, name: str) -> bool:
    return name in parameters_of(pipe)
