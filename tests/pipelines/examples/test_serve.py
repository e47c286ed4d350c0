"""The example of a server."""

import asyncio
import base64
import io
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import WanImageToVideoPipeline, WanTransformer3DModel
from PIL import Image

from galaxydit.pipelines.settings import GenerationSettings

pytest.importorskip("fastapi", reason="FastAPI is not installed: pip install -e '.[examples]'")

from fastapi import HTTPException

from galaxydit.pipelines.examples import request_limits
from galaxydit.pipelines.examples.request_limits import VideoRequest


def test_each_request_has_its_own_quality_and_report(tiny_wan_pipeline: Any, tiny_settings: GenerationSettings) -> None:
    from fastapi.testclient import TestClient

    from galaxydit.pipelines.examples.serve import create_app

    client = TestClient(create_app(tiny_wan_pipeline, replace(tiny_settings, steps=12)))

    def ask(quality: str) -> Any:
        return client.post("/videos", json={"prompt": "a red ball", "quality": quality})

    with ThreadPoolExecutor(3) as pool:
        lossless, fast, again = pool.map(ask, ("lossless", "fast", "lossless"))
    assert [reply.status_code for reply in (lossless, fast, again)] == [200, 200, 200]
    assert lossless.json()["video"] == again.json()["video"] != fast.json()["video"]
    assert base64.b64decode(fast.json()["video"])[4:8] == b"ftyp"
    assert lossless.json()["report"]["compute_fraction"] == 1.0
    assert fast.json()["report"]["reused_steps"] > 0
    assert "quality 'fast'" in fast.json()["summary"]
    wrong = ask("fastest")
    assert wrong.status_code == 422
    assert wrong.json()["detail"] == "quality: Input should be 'lossless', 'high', 'balanced' or 'fast'"


@pytest.fixture
def client(tiny_wan_pipeline: Any, tiny_settings: GenerationSettings) -> Any:
    from fastapi.testclient import TestClient

    from galaxydit.pipelines.examples.serve import create_app

    settings = replace(tiny_settings, steps=2)
    return TestClient(create_app(tiny_wan_pipeline, settings), raise_server_exceptions=False)


@pytest.fixture
def image_client(tiny_wan_pipeline: Any, tiny_settings: GenerationSettings, monkeypatch: pytest.MonkeyPatch) -> Any:
    from fastapi.testclient import TestClient

    from galaxydit.pipelines.examples.serve import create_app

    settings = replace(tiny_settings, steps=2, height=None, width=None)
    parts = {name: getattr(tiny_wan_pipeline, name) for name in ("tokenizer", "text_encoder", "vae", "scheduler")}
    config = dict(tiny_wan_pipeline.transformer.config) | {"in_channels": 36}
    pipe = WanImageToVideoPipeline(**parts, transformer=WanTransformer3DModel.from_config(config).eval())
    monkeypatch.setattr("galaxydit.pipelines.examples.request_limits.own_settings", lambda _: tiny_settings)
    return TestClient(create_app(pipe, settings), raise_server_exceptions=False)


def encoded(image: Image.Image, kind: str = "PNG") -> str:
    file = io.BytesIO()
    image.save(file, kind)
    return base64.b64encode(file.getvalue()).decode()


def test_a_prompt_names_no_file(client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "secret.png")
    monkeypatch.setattr(Image, "open", lambda *_, **__: pytest.fail("a file was opened"))
    answers = []
    for name in ("secret.png", "absent.png"):
        prompt = json.dumps({"prompt": "a ball", "image": str(tmp_path / name)})
        answer = client.post("/videos", json={"prompt": prompt})
        assert answer.status_code == 422
        answers.append(answer.text)
    assert answers[0] == answers[1]
    for image in (str(tmp_path / "secret.png"), f"file://{tmp_path}/secret.png", "http://127.0.0.1:9/x.png"):
        answer = client.post("/videos", json={"prompt": "a ball", "image": image})
        assert answer.status_code == 422
        assert "base64" in answer.text


def test_a_text_with_a_brace_is_a_prompt(client: Any) -> None:
    assert client.post("/videos", json={"prompt": "{a ball} rolls"}).status_code == 200


@pytest.mark.parametrize(
    "fields",
    [
        {"steps": 5},
        {"steps": 10**6},
        {"steps": 0},
        {"prompt": "a" * 2001},
        {"prompt": " "},
        {"prompt": "\ud800"},
        {"height": 4096},
        {"num_frames": 10**6},
        {"seed": -1},
        {"seed": float("nan")},
        {"quality": "fastest"},
        {"image": "no base64"},
        {"image": encoded(Image.new("RGB", (8, 8)))},  # the model takes none
        {"x" * 100_000: 1},
        {"\x1b[31m": 1},
    ],
)
def test_a_request_beyond_the_limits_is_the_clients_fault(fields: dict[str, Any], client: Any) -> None:
    content = json.dumps({"prompt": "a ball"} | fields)
    answer = client.post("/videos", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert answer.json()["detail"]
    assert len(answer.text) < 500
    assert answer.json()["detail"].isprintable()


def test_twice_the_steps_of_the_settings_are_allowed(client: Any) -> None:
    answer = client.post("/videos", json={"prompt": "a" * 2000, "steps": 4})
    assert answer.status_code == 200
    assert answer.json()["report"]["steps"] == 4


def test_a_body_is_received_up_to_its_limit_alone(client: Any) -> None:
    sent = []

    def pieces() -> Any:
        for _ in range(100):
            sent.append(None)
            yield b" " * 2**20

    assert client.post("/videos", content=pieces()).status_code == 413


def test_an_uploaded_image_begins_the_video(image_client: Any) -> None:
    def ask(image: Image.Image, kind: str = "PNG") -> Any:
        return image_client.post("/videos", json={"prompt": "", "image": encoded(image, kind)})

    black, white = (ask(Image.new("RGB", (64, 64), colour)) for colour in ("black", "white"))
    assert (black.status_code, white.status_code) == (200, 200)
    assert black.json()["video"] != white.json()["video"]
    for image, kind in ((Image.new("L", (8000, 8000)), "PNG"), (Image.new("RGB", (8, 8)), "GIF")):
        assert ask(image, kind).status_code == 422
    without = image_client.post("/videos", json={"prompt": "a ball"})
    assert without.status_code == 422
    assert "needs an image: pass the bytes of its file in base64" in without.json()["detail"]  # and names no option


def test_an_image_makes_no_video_above_the_area_where_one_side_is_set(
    tiny_wan_pipeline: Any, tiny_settings: GenerationSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_limits, "own_settings", lambda _: tiny_settings)
    monkeypatch.setattr(request_limits, "check_inputs", lambda *_: None)
    monkeypatch.setattr("galaxydit.pipelines.sizes.takes_images", lambda _: True)
    settings = replace(tiny_settings, height=32, width=None)

    def fitted(image: Image.Image) -> GenerationSettings:
        request = VideoRequest(prompt="a ball", image=encoded(image))
        return request_limits.read_request(tiny_wan_pipeline, request, settings)[1]

    assert fitted(Image.new("RGB", (32, 64))).width == 16
    with pytest.raises(HTTPException, match="makes a video of 512x32: expected an aspect ratio for at most"):
        fitted(Image.new("RGB", (640, 40)))


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), 503),
        (RuntimeError("CUDA error: an illegal memory access"), 500),
        (ValueError("shapes"), 500),
        (KeyError("x"), 500),
    ],
)
def test_a_fault_of_the_server_is_5xx_and_the_next_request_is_served(
    error: Exception, status: int, client: Any, tiny_wan_pipeline: Any
) -> None:
    def fail(*_: Any) -> None:
        raise error

    hook = tiny_wan_pipeline.transformer.blocks[0].register_forward_pre_hook(fail)
    answer = client.post("/videos", json={"prompt": "a ball"})
    hook.remove()
    assert answer.status_code == status
    assert str(error) not in answer.text
    assert client.post("/videos", json={"prompt": "a ball"}).status_code == 200


def test_a_client_that_leaves_ends_its_generation(tiny_wan_pipeline: Any, tiny_settings: GenerationSettings) -> None:
    from galaxydit.pipelines.examples.serve import create_app

    server, calls = create_app(tiny_wan_pipeline, replace(tiny_settings, steps=50)), []
    tiny_wan_pipeline.transformer.register_forward_pre_hook(lambda *_: calls.append(None))
    body = json.dumps({"prompt": "a ball", "quality": "lossless"}).encode()
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[Any] = []

    async def receive() -> Any:
        if messages:
            return messages.pop()
        while not calls:
            await asyncio.sleep(0.01)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/videos",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
    }
    asyncio.run(server(scope, receive, send))
    assert 0 < len(calls) < 50
    assert sent[0]["status"] == 499


def test_health_answers_and_readiness_says_whether_a_request_would_be_served(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.get("/health").status_code == client.get("/ready").status_code == 200
    monkeypatch.setattr("galaxydit.pipelines.examples.serve.MOST_WAITING", 0)
    assert client.get("/health").status_code == 200
    assert client.get("/ready").status_code == 503
    assert client.post("/videos", json={"prompt": "a ball"}).status_code == 503
