import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import WanImageToVideoPipeline, WanPipeline, WanTransformer3DModel
from PIL import Image

import galaxydit
from galaxydit.calibration.generation_observer import observed, record_sample
from galaxydit.calibration.recording import Recording
from galaxydit.config import GalaxyDiTConfig
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.proxies import PROXIES
from tests.galaxydit.test_modular_pipelines import minimax_h3

PROMPT = "a red ball moves left over a plain background"


def test_recording_changes_nothing_and_leaves_nothing_behind(
    tiny_wan_pipeline: WanPipeline, settings: GenerationSettings
) -> None:
    plain = generate(tiny_wan_pipeline, PROMPT, settings, 5)
    recording, recorded, _ = record_sample(tiny_wan_pipeline, PROMPT, settings, 5)
    assert torch.equal(recorded.latents, plain.latents)
    registries = [getattr(module, "_diffusers_hook", None) for module in tiny_wan_pipeline.transformer.modules()]
    assert not [name for registry in registries if registry is not None for name in registry.hooks]
    assert recording.steps == 12
    assert set(recording.distances) == set(PROXIES)
    assert recording.guidance_scale == 3.0


def test_true_change_is_that_of_the_prediction_the_scheduler_receives(
    tiny_wan_pipeline: WanPipeline, settings: GenerationSettings, received_of: Callable
) -> None:
    received = received_of(tiny_wan_pipeline)
    recording, *_ = record_sample(tiny_wan_pipeline, PROMPT, settings, 0)
    for lag in (1, 3):
        true = [float((b - a).norm() / b.norm()) for a, b in zip(received, received[lag:], strict=False)]
        np.testing.assert_allclose(recording.guided_change(lag)[lag:], true, rtol=1e-4)


RECORDED: dict[str, Recording] = {}  # by settings, of a tiny pipeline, which always has the same weights


@pytest.mark.parametrize("proxy", sorted(galaxydit.PROXIES))
def test_distances_are_those_that_acceleration_sees(
    tiny_wan_pipeline: WanPipeline, settings: GenerationSettings, proxy: str
) -> None:
    if str(settings) not in RECORDED:
        RECORDED[str(settings)], *_ = record_sample(tiny_wan_pipeline, PROMPT, settings, 0)
    recording = RECORDED[str(settings)]
    with galaxydit.accelerate(tiny_wan_pipeline, config=GalaxyDiTConfig(proxy=proxy, warmup=1.0)) as acceleration:
        generate(tiny_wan_pipeline, PROMPT, settings, 0)
    seen = [call.distance for call in acceleration.report.calls if call.branch == "cond"]
    assert recording.distances[proxy][1:] == pytest.approx(seen[1:], rel=1e-6)


def test_image_to_video_is_recorded_from_a_prompt_that_names_its_image(
    tiny_wan_pipeline: WanPipeline, settings: GenerationSettings, tmp_path: Path
) -> None:
    Image.new("RGB", (32, 32), (200, 30, 30)).save(tmp_path / "red.png")
    config = dict(tiny_wan_pipeline.transformer.config) | {"in_channels": 36}
    parts = {name: getattr(tiny_wan_pipeline, name) for name in ("tokenizer", "text_encoder", "vae", "scheduler")}
    pipe = WanImageToVideoPipeline(**parts, transformer=WanTransformer3DModel.from_config(config).eval())
    pipe.set_progress_bar_config(disable=True)
    line = json.dumps({"prompt": PROMPT, "image": str(tmp_path / "red.png")})
    recording, generation, _ = record_sample(pipe, line, settings, 0)
    assert recording.steps == 12
    assert recording.prompt == line
    assert recording.latent_shape[0] == 36
    assert generation.latents.shape[1] == 16
    assert all(len(row) == 11 for row in recording.guided_products)


def test_the_sound_is_recorded_with_the_noise_levels_of_its_own_scheduler() -> None:
    pipe, run = minimax_h3(("transformer_ref",))
    with observed(pipe) as observer:
        run()
    recording = observer.recording("a", 0)
    (sound,) = recording.further
    assert sound.sigmas == pytest.approx(pipe.audio_scheduler.sigmas[: recording.steps].tolist(), rel=1e-5)
    assert sound.sigmas != recording.sigmas
    assert sum(sound.scheduler_response) == pytest.approx(sum(recording.scheduler_response), rel=1e-3)
    assert len(sound.guided_norms) == len(sound.guided_products) + 1 == recording.steps
