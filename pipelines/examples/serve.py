"""A server of videos: a request names its quality, and its response holds the report of its own generation.

pip install -e '.[examples]'
GALAXYDIT_MODEL=wan-tiny uvicorn --factory galaxydit.pipelines.examples.serve:app
curl -d '{"prompt": "a red ball", "quality": "fast"}' -H 'Content-Type: application/json' localhost:8000/videos
"""

import base64
import os
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from diffusers import DiffusionPipeline
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field

import galaxydit
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.published_models import recommended_settings
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.video import save_video


class VideoRequest(BaseModel):
    prompt: str
    quality: str = "balanced"  # or "lossless", "high", "fast"
    seed: int = Field(0, ge=0, lt=2**64)
    steps: int | None = Field(None, ge=1)


class VideoResponse(BaseModel):
    video: str  # mp4 in base64
    report: dict[str, Any]  # `Report.to_dict`
    summary: str


def create_app(pipe: DiffusionPipeline, settings: GenerationSettings) -> FastAPI:
    """The server of one pipeline, which makes one video at a time because it has one scheduler."""
    server, turn, acceleration = FastAPI(), threading.Lock(), galaxydit.accelerate(pipe)

    @server.post("/videos")
    def make_video(request: VideoRequest) -> VideoResponse:
        own = settings if request.steps is None else replace(settings, steps=request.steps)
        try:
            with turn, acceleration.using(quality=request.quality) as served:
                video = generate(pipe, request.prompt, own, request.seed)
        except galaxydit.GalaxyDiTError as error:
            raise HTTPException(422, str(error)) from error
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "video.mp4"
            save_video(video.frames, path, own.fps)
            content = base64.b64encode(path.read_bytes()).decode()
        return VideoResponse(video=content, report=served.report.to_dict(), summary=str(served.report))

    return server


def app() -> FastAPI:
    """The server of the model that the environment names."""
    pipe = load_pipeline(os.environ.get("GALAXYDIT_MODEL", "wan-tiny"))
    return create_app(pipe, recommended_settings(pipe))
