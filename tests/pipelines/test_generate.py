import functools
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from diffusers import (
    AutoencoderKLWan,
    CogVideoXDDIMScheduler,
    CogVideoXImageToVideoPipeline,
    FlowMatchEulerDiscreteScheduler,
    SchedulerMixin,
    WanAnimatePipeline,
    WanPipeline,
)
from PIL import Image
from tiny_parts import ImageEncoder, Part
from tiny_table import PIPELINES

import galaxydit
from galaxydit.errors import GalaxyDiTError
from galaxydit.pipelines.compute_counter import measure_parts
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.runtime.hooks import timed_by
from galaxydit.stopwatch import Stopwatch

PROMPT = "a red ball moves left over a plain background"
READERS = {"text_encoder": ImageEncoder(1, 1), "tokenizer": Part()}
"""Stand in for the readers of prompts."""


def test_generation_equals_a_direct_call_of_the_pipeline(
    tiny_wan_pipeline: WanPipeline, tiny_settings: GenerationSettings
):
    generation = generate(tiny_wan_pipeline, PROMPT, tiny_settings, seed=7)
    direct = tiny_wan_pipeline(
        PROMPT,
        height=32,
        width=32,
        num_frames=5,
        num_inference_steps=4,
        guidance_scale=3.0,
        generator=torch.Generator().manual_seed(7),
    ).frames[0]
    assert generation.frames.dtype == np.float32
    assert generation.frames.shape == (5, 32, 32, 3)
    np.testing.assert_array_equal(generation.frames, direct)


def test_latents_are_the_ones_that_are_decoded(tiny_wan_pipeline: WanPipeline, tiny_settings: GenerationSettings):
    generation = generate(tiny_wan_pipeline, PROMPT, tiny_settings, seed=7)
    vae: AutoencoderKLWan = tiny_wan_pipeline.vae
    with torch.no_grad():
        video = vae.decode(generation.latents).sample  # its latents have mean 0 and deviation 1
    frames = (video[0].permute(1, 2, 3, 0) / 2 + 0.5).clamp(0, 1).numpy()
    np.testing.assert_allclose(generation.frames, frames, atol=1e-5)


def test_the_seed_alone_decides(tiny_wan_pipeline: WanPipeline, tiny_settings: GenerationSettings):
    first, second, other = (generate(tiny_wan_pipeline, PROMPT, tiny_settings, seed) for seed in (7, 7, 8))
    np.testing.assert_array_equal(first.frames, second.frames)
    assert not np.array_equal(first.frames, other.frames)


def test_denoise_time_spans_every_transformer_call_and_scheduler_step_and_nothing_else(
    tiny_wan_pipeline: WanPipeline, tiny_settings: GenerationSettings, monkeypatch: pytest.MonkeyPatch
):
    """On a clock that parts of the pipeline advance by known amounts."""
    elapsed = 0.0

    def advance_after(owner: object, name: str, seconds: float) -> None:
        original = getattr(owner, name)

        def timed(*args: object, **kwargs: object) -> object:
            nonlocal elapsed
            elapsed += seconds
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, timed)

    monkeypatch.setattr("galaxydit.stopwatch.time.perf_counter", lambda: elapsed)
    advance_after(tiny_wan_pipeline, "encode_prompt", 1000.0)
    advance_after(tiny_wan_pipeline.transformer, "forward", 1.0)
    advance_after(tiny_wan_pipeline.scheduler, "step", 10.0)
    advance_after(tiny_wan_pipeline.vae, "decode", 500.0)
    generation = generate(tiny_wan_pipeline, PROMPT, tiny_settings, seed=0)
    assert generation.denoise_seconds == 4 * (2 * 1.0 + 10.0)
    assert generation.end_to_end_seconds == 1000.0 + 48.0 + 500.0


def test_nothing_stays_on_the_pipeline(tiny_wan_pipeline: WanPipeline, tiny_settings: GenerationSettings):
    scheduler = tiny_wan_pipeline.scheduler
    generate(tiny_wan_pipeline, PROMPT, replace(tiny_settings, flow_shift=3.0), seed=0)
    assert not tiny_wan_pipeline.transformer._forward_pre_hooks
    assert tiny_wan_pipeline.scheduler is scheduler

    def fail(*args: object, **kwargs: object) -> None:
        raise RuntimeError("no luck")

    tiny_wan_pipeline.transformer.forward = fail
    with pytest.raises(RuntimeError, match="no luck"):
        generate(tiny_wan_pipeline, PROMPT, replace(tiny_settings, flow_shift=3.0), seed=0)
    assert not tiny_wan_pipeline.transformer._forward_pre_hooks
    assert tiny_wan_pipeline.scheduler is scheduler


@pytest.mark.parametrize("scheduler", [None, FlowMatchEulerDiscreteScheduler(shift=8.0)])
def test_flow_shift_bends_the_schedule(
    scheduler: FlowMatchEulerDiscreteScheduler | None,
    tiny_wan_pipeline: WanPipeline,
    tiny_settings: GenerationSettings,
):
    tiny_wan_pipeline.scheduler = scheduler or tiny_wan_pipeline.scheduler
    as_stored, same, other = (
        generate(tiny_wan_pipeline, PROMPT, replace(tiny_settings, flow_shift=shift), seed=0).latents
        for shift in (None, 8.0, 2.0)
    )
    assert torch.equal(as_stored, same)
    assert not torch.allclose(as_stored, other)


@pytest.mark.parametrize(
    ("scheduler", "why"),
    [
        (CogVideoXDDIMScheduler(), "CogVideoXDDIMScheduler has none"),
        (FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True), "takes that of the video's size"),
    ],
)
def test_flow_shift_on_a_scheduler_without_one_of_its_own_is_refused(
    scheduler: SchedulerMixin, why: str, tiny_wan_pipeline: WanPipeline, tiny_settings: GenerationSettings
):
    tiny_wan_pipeline.scheduler = scheduler
    with pytest.raises(ValueError, match=rf"flow_shift=3.0 .* because .*{why}"):
        generate(tiny_wan_pipeline, PROMPT, replace(tiny_settings, flow_shift=3.0), seed=0)


def test_a_pipeline_that_needs_an_image_is_refused_by_name(tiny_settings: GenerationSettings):
    pipe = CogVideoXImageToVideoPipeline.__new__(CogVideoXImageToVideoPipeline)
    with pytest.raises(ValueError, match="CogVideoXImageToVideoPipeline needs an image"):
        generate(pipe, PROMPT, tiny_settings, seed=0)


def test_inputs_that_no_prompt_can_name_are_said_with_the_cure(tiny_settings: GenerationSettings):
    parts = dict.fromkeys(WanAnimatePipeline._get_signature_keys(WanAnimatePipeline)[0])
    pipe = WanAnimatePipeline(**parts | READERS)
    image = {"prompt": "a dancer", "image": Image.new("RGB", (32, 32))}
    with pytest.raises(
        ValueError, match=r"needs pose_video, face_video, which no prompt .*galaxydit\.accelerate\(pipe"
    ):
        generate(pipe, image, tiny_settings, 0)


def test_the_scheduler_tells_the_steps_where_the_call_takes_no_callback(monkeypatch: pytest.MonkeyPatch):
    """HunyuanVideo 1.5's takes none, and its guidance is that of its guider."""
    tiny = PIPELINES["HunyuanVideo 1.5"]
    pipe, _ = replace(tiny, parts=tiny.parts | READERS).build()
    names = ("prompt_embeds", "prompt_embeds_mask", "prompt_embeds_2", "prompt_embeds_mask_2")
    texts = [tiny.arguments[name] for name in names]
    monkeypatch.setattr(pipe, "encode_prompt", lambda **_: texts)
    settings = GenerationSettings(32, 32, 5, steps=12)
    steps: list[tuple[int, int]] = []
    video = generate(pipe, "a cat", settings, 0, decode=False, on_step=lambda *step: steps.append(step))
    assert steps == [(step + 1, 12) for step in range(12)]
    size = {"height": 32, "width": 32, "num_frames": 5, "num_inference_steps": 12}
    direct = pipe("a cat", **size, output_type="latent", generator=torch.Generator().manual_seed(0)).frames
    assert torch.equal(video.latents, direct)
    assert "step" not in vars(pipe.scheduler)
    with galaxydit.accelerate(pipe, speedup=2.0) as acceleration:
        fast = generate(pipe, "a cat", settings, 0, decode=False)
    assert acceleration.report.denoise_seconds == pytest.approx(fast.denoise_seconds, rel=0.5)
    assert not torch.equal(fast.latents, video.latents)


def test_a_pipeline_that_returns_images_is_refused(
    tiny_wan_pipeline: WanPipeline, tiny_settings: GenerationSettings, monkeypatch: pytest.MonkeyPatch
):
    make_video = WanPipeline.__call__

    @functools.wraps(make_video)
    def make_images(*args: object, **kwargs: object) -> SimpleNamespace:
        return SimpleNamespace(images=make_video(*args, **kwargs).frames)

    monkeypatch.setattr(WanPipeline, "__call__", make_images)
    with pytest.raises(
        ValueError, match="WanPipeline returned SimpleNamespace, which holds no video: pass a video pip"
    ):
        generate(tiny_wan_pipeline, PROMPT, tiny_settings, seed=0)


def test_without_decoding_the_latents_are_the_same_and_there_are_no_frames(
    tiny_wan_pipeline: WanPipeline, tiny_settings: GenerationSettings
):
    whole = generate(tiny_wan_pipeline, PROMPT, tiny_settings, seed=7)
    latents_alone = generate(tiny_wan_pipeline, PROMPT, tiny_settings, seed=7, decode=False)
    assert torch.equal(latents_alone.latents, whole.latents)
    assert latents_alone.frames.shape == (0, 0, 0, 3)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nmore"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:121] . DefaultCPUAllocator: can't allocate memory: you tried"),
        MemoryError("Unable to allocate 7 TiB"),
    ],
)
def test_running_out_of_memory_names_the_size_and_the_cure(
    tiny_wan_pipeline: WanPipeline, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(tiny_wan_pipeline.vae, "decode", fail)
    settings = GenerationSettings(32, 64, 5, steps=2)
    with pytest.raises(GalaxyDiTError, match=r"64x32 pixels, 5 frames do not fit into the memory of cpu .*offload"):
        generate(tiny_wan_pipeline, "a cat", settings, 0)


def test_other_errors_stay_what_they_are(tiny_wan_pipeline: WanPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no luck")

    monkeypatch.setattr(tiny_wan_pipeline.vae, "decode", fail)
    with pytest.raises(RuntimeError, match=r"^no luck$"):
        generate(tiny_wan_pipeline, "a cat", GenerationSettings(32, 32, 5, steps=2), 0)


def test_an_offloaded_model_leaves_the_device_after_an_error_and_after_parts_were_counted(
    tiny_wan_pipeline: WanPipeline, tiny_settings: GenerationSettings
):
    freed: list[None] = []
    tiny_wan_pipeline.maybe_free_model_hooks = lambda: freed.append(None)
    generate(tiny_wan_pipeline, PROMPT, tiny_settings, seed=7)
    assert len(freed) == 1  # the pipeline's own, at its end
    measure_parts(tiny_wan_pipeline, PROMPT, tiny_settings)
    assert len(freed) == 3

    def fail(*_: object) -> None:
        raise ValueError("broken")

    tiny_wan_pipeline.transformer.blocks[0].register_forward_pre_hook(fail)
    with pytest.raises(ValueError, match="broken"):
        generate(tiny_wan_pipeline, PROMPT, tiny_settings, seed=7)
    assert len(freed) == 4


def test_the_clock_waits_for_the_device_that_computes(
    tiny_wan_pipeline: WanPipeline, tiny_settings: GenerationSettings, monkeypatch: pytest.MonkeyPatch
):
    waited: set[object] = set()
    monkeypatch.setattr("galaxydit.stopwatch.synchronize", waited.add)
    generate(tiny_wan_pipeline, PROMPT, tiny_settings, seed=7)
    assert waited == {tiny_wan_pipeline._execution_device}


def test_each_loop_within_one_call_reports_its_own_seconds(tiny_wan_pipeline: WanPipeline):
    watch = Stopwatch(torch.device("cpu"))
    with galaxydit.accelerate(tiny_wan_pipeline, speedup=2) as acc, timed_by(tiny_wan_pipeline.transformer, watch):
        start = time.perf_counter()
        for _ in range(3):  # as sections of a long video
            tiny_wan_pipeline(PROMPT, height=32, width=32, num_frames=5, num_inference_steps=10, output_type="latent")
        elapsed = time.perf_counter() - start
    seconds = [report.denoise_seconds for report in acc.reports]
    assert len(seconds) == 3
    assert 0 < sum(seconds) < elapsed
