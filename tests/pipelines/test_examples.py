"""The examples run as they stand, on a tiny model."""

import json
import runpy
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from diffusers import WanPipeline

from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.video import load_video

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "pipelines" / "examples"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def run(example: str, *arguments: str | Path) -> None:
        monkeypatch.setattr(sys, "argv", [example, *map(str, arguments)])
        runpy.run_path(str(EXAMPLES / example), run_name="__main__")

    return run


def test_a_modular_pipeline_with_a_lora_is_accelerated(
    run: Callable[..., None],
    tiny_wan_pipeline: WanPipeline,
    tiny_wan_folder: Path,
    tiny_settings: GenerationSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = replace(tiny_settings, steps=12)
    monkeypatch.setattr("galaxydit.pipelines.published_models.recommended_settings", lambda pipe: settings)
    peft = pytest.importorskip("peft", reason="PEFT is not installed: pip install 'galaxydit[lora]'")
    lora = peft.LoraConfig(r=2, target_modules=["to_q"], init_lora_weights=False)
    tiny_wan_pipeline.transformer.add_adapter(lora)
    layers = peft.get_peft_model_state_dict(tiny_wan_pipeline.transformer)
    WanPipeline.save_lora_weights(tmp_path / "lora", transformer_lora_layers=layers)
    given = ["--model", tiny_wan_folder, "--out", tmp_path / "a.mp4"]
    videos = []
    for options in ([], ["--lora", tmp_path / "lora"]):
        run("modular_lora_compile.py", *given, *options)
        videos.append(load_video(tmp_path / "a.mp4"))
        calls = json.loads((tmp_path / "a.json").read_text())["calls"]
        assert sum(call["reused"] for call in calls) == len(calls) / 2
    assert len(videos[0]) == 5
    assert (videos[0] != videos[1]).any()
