"""The example of a server."""

import base64
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from galaxydit.pipelines.settings import GenerationSettings

pytest.importorskip("fastapi", reason="FastAPI is not installed: pip install -e '.[examples]'")


def test_each_request_has_its_own_quality_and_report(tiny_wan_pipeline: Any, tiny_settings: GenerationSettings) -> None:
    from fastapi.testclient import TestClient

    from galaxydit.pipelines.examples.serve import create_app

    client = TestClient(create_app(tiny_wan_pipeline, tiny_settings))

    def ask(quality: str) -> Any:
        return client.post("/videos", json={"prompt": "a red ball", "quality": quality, "steps": 12})

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
    assert "quality='fastest' is not allowed" in wrong.json()["detail"]
