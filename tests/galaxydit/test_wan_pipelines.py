"""The relatives of WanPipeline: image and video to video, two transformers, and a timestep for each token."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from diffusers import (
    FlowMatchEulerDiscreteScheduler,
    WanImageToVideoPipeline,
    WanPipeline,
    WanTransformer3DModel,
    WanVideoToVideoPipeline,
)
from PIL import Image
from transformers import CLIPImageProcessor, CLIPVisionConfig, CLIPVisionModel

import galaxydit
from galaxydit import FixedSteps, GalaxyDiTConfig, Threshold
from galaxydit.policies.policy import Reason

OFTEN = GalaxyDiTConfig(Threshold(50.0), max_consecutive=2)
NEVER = GalaxyDiTConfig(FixedSteps(tuple(range(60))))
IMAGE = Image.new("RGB", (32, 32), (200, 30, 30))


def turn_into(kind: type, tiny: Any, **parts: Any) -> Any:
    """The tiny WanPipeline as a pipeline of another kind, with some parts exchanged."""
    shared = {name: getattr(tiny.pipe, name) for name in ("tokenizer", "text_encoder", "vae", "scheduler")}
    pipe = kind(**({"transformer": tiny.pipe.transformer} | shared | parts))
    pipe.set_progress_bar_config(disable=True)
    return replace(tiny, pipe=pipe)


@pytest.fixture
def image_to_video(tiny_wan: Any) -> Any:
    """Its transformer takes an image's latents and their mask beside the noisy ones."""
    torch.manual_seed(0)
    settings = dict(tiny_wan.pipe.transformer.config) | {"in_channels": 36}
    return turn_into(WanImageToVideoPipeline, tiny_wan, transformer=WanTransformer3DModel.from_config(settings).eval())


def assert_complete(acceleration: galaxydit.Acceleration, names: tuple[str, str], first: int = 0) -> None:
    """Both branches of every step from `first` on, in order and decided alike, with reuse."""
    calls = acceleration.report.calls
    assert [(call.step, call.branch) for call in calls] == [(i, name) for i in range(first, 12) for name in names]
    assert [call.reused for call in calls[::2]] == [call.reused for call in calls[1::2]]
    assert acceleration.report.reused_steps > 0
    assert not acceleration.report.notes


def test_image_to_video_follows_the_scheduler_as_its_context_has_no_step(image_to_video: Any) -> None:
    plain = image_to_video.run(image=IMAGE)
    for proxy in ("noisy_latent", "time_embedding", "self_attention", "block_residual"):
        with galaxydit.accelerate(image_to_video.pipe, config=replace(OFTEN, proxy=proxy)) as acceleration:
            latents = image_to_video.run(image=IMAGE)
            assert torch.equal(image_to_video.run(image=IMAGE), latents)
        assert len(acceleration.reports) == 2
        assert_complete(acceleration, ("cond", "uncond"))
        assert not torch.equal(latents, plain)
    with galaxydit.accelerate(image_to_video.pipe, config=NEVER):
        assert torch.equal(image_to_video.run(image=IMAGE), plain)


def test_the_image_reaches_cross_attention_and_reuse_knows_one_image_from_another(tiny_wan: Any) -> None:
    """Wan2.1 hands it over as CLIP's embeddings, too. The text and the seed stay the same."""
    torch.manual_seed(0)
    settings = dict(tiny_wan.pipe.transformer.config) | {"in_channels": 36, "image_dim": 8, "added_kv_proj_dim": 32}
    sizes = {"image_size": 32, "patch_size": 16, "hidden_size": 8, "intermediate_size": 8}
    tiny = turn_into(
        WanImageToVideoPipeline,
        tiny_wan,
        transformer=WanTransformer3DModel.from_config(settings).eval(),
        image_encoder=CLIPVisionModel(CLIPVisionConfig(**sizes, num_hidden_layers=2, num_attention_heads=2)).eval(),
        image_processor=CLIPImageProcessor(size={"shortest_edge": 32}, crop_size=32),
    )
    tiny.arguments["max_sequence_length"] = 512  # the model cuts off the text after so many tokens
    images = [IMAGE, Image.new("RGB", (32, 32), (30, 30, 200))]
    plain = [tiny.run(image=image) for image in images]
    assert not torch.equal(*plain)
    expected = []
    for image in images:
        with galaxydit.accelerate(tiny.pipe, config=OFTEN):
            expected.append(tiny.run(image=image))
    with galaxydit.accelerate(tiny.pipe, config=OFTEN) as acceleration:
        assert all(torch.equal(tiny.run(image=image), latents) for image, latents in zip(images, expected, strict=True))
    assert_complete(acceleration, ("cond", "uncond"))
    with galaxydit.accelerate(tiny.pipe, config=NEVER):
        assert all(torch.equal(tiny.run(image=image), latents) for image, latents in zip(images, plain, strict=True))


def test_a_first_and_a_last_frame_may_be_given(image_to_video: Any) -> None:
    frames = [{"image": IMAGE, "last_image": Image.new("RGB", (32, 32), (30, 30, blue))} for blue in (0, 200)]
    plain = [image_to_video.run(**given) for given in frames]
    assert not torch.equal(*plain)
    with galaxydit.accelerate(image_to_video.pipe, config=NEVER):
        assert all(torch.equal(image_to_video.run(**given), video) for given, video in zip(frames, plain, strict=True))
    with galaxydit.accelerate(image_to_video.pipe, config=OFTEN) as acceleration:
        assert not torch.equal(image_to_video.run(**frames[0]), plain[0])
    assert_complete(acceleration, ("cond", "uncond"))


def test_an_exception_in_image_to_video_leaves_no_trace(image_to_video: Any) -> None:
    with galaxydit.accelerate(image_to_video.pipe, config=OFTEN):
        expected = image_to_video.run(image=IMAGE)

    def fail(pipe: Any, index: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        if index == 6:
            raise RuntimeError("cancelled")
        return tensors

    with galaxydit.accelerate(image_to_video.pipe, config=OFTEN):
        with pytest.raises(RuntimeError, match="cancelled"):
            image_to_video.run(image=IMAGE, callback_on_step_end=fail)
        assert torch.equal(image_to_video.run(image=IMAGE), expected)


def test_image_to_video_with_a_timestep_for_each_token(tiny_wan: Any) -> None:
    """The first frame is given: its tokens come first, and have timestep 0."""
    tiny = turn_into(WanImageToVideoPipeline, tiny_wan, expand_timesteps=True)
    tiny.pipe.scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
    with galaxydit.accelerate(tiny.pipe, config=replace(OFTEN, proxy="time_embedding")) as acceleration:
        tiny.run(image=IMAGE)
    assert_complete(acceleration, ("cond", "uncond"))
    sigmas = [call.sigma for call in acceleration.report.calls[::2]]
    assert sigmas == pytest.approx(tiny.pipe.scheduler.sigmas[:12].tolist())


@pytest.mark.parametrize("kind", [WanPipeline, WanImageToVideoPipeline])
def test_a_batch_with_a_timestep_for_each_token_is_one_generation(tiny_wan: Any, kind: type) -> None:
    tiny = turn_into(kind, tiny_wan, expand_timesteps=True)
    image = {"image": IMAGE} if kind is WanImageToVideoPipeline else {}
    with galaxydit.accelerate(tiny.pipe, config=GalaxyDiTConfig(FixedSteps(range(0, 12, 2)))) as acceleration:
        tiny.run(**image, num_videos_per_prompt=2)
    (report,) = acceleration.reports
    assert (report.reused_steps, report.notes) == (6, ())


def test_text_to_video_with_a_timestep_for_each_token(tiny_wan: Any) -> None:
    tiny = turn_into(WanPipeline, tiny_wan, expand_timesteps=True)
    plain = tiny.run()
    for proxy in ("time_embedding", "modulated_input", "filtered_latent", "block_residual"):
        with galaxydit.accelerate(tiny.pipe, config=replace(OFTEN, proxy=proxy)) as acceleration:
            assert not torch.equal(tiny.run(), plain)
        assert_complete(acceleration, ("cond", "uncond"))
    with galaxydit.accelerate(tiny.pipe, config=NEVER):
        assert torch.equal(tiny.run(), plain)


@pytest.mark.parametrize("strength", [1.0, 0.7])
def test_video_to_video_starts_in_the_middle_and_names_no_branch(tiny_wan: Any, strength: float) -> None:
    tiny = turn_into(WanVideoToVideoPipeline, tiny_wan)
    del tiny.arguments["num_frames"]
    edit = {"latents": torch.randn(1, 16, 2, 4, 4, generator=torch.Generator().manual_seed(0)), "strength": strength}
    plain = tiny.run(**edit)
    with galaxydit.accelerate(tiny.pipe, config=OFTEN) as acceleration:
        latents = tiny.run(**edit)
        assert torch.equal(tiny.run(**edit), latents)
    assert len(acceleration.reports) == 2, "one generation is one report, wherever it starts"
    assert_complete(acceleration, ("call 0", "call 1"), first=12 - int(12 * strength))
    assert not torch.equal(latents, plain)


@pytest.fixture
def two_stage(tiny_wan: Any, tiny_transformer: Callable[[int], WanTransformer3DModel]) -> Any:
    """Wan2.2: one transformer for high noise, another of the same shapes for low noise."""
    return turn_into(WanPipeline, tiny_wan, transformer_2=tiny_transformer(3), boundary_ratio=0.9)


@pytest.mark.parametrize("reuse", ["output", "residual"])
def test_two_transformers_share_a_report_and_nothing_else(two_stage: Any, reuse: str) -> None:
    plain = two_stage.run()
    with galaxydit.accelerate(two_stage.pipe, config=replace(OFTEN, reuse=reuse)) as acceleration:
        latents = two_stage.run()
        assert torch.equal(two_stage.run(), latents)
    assert len(acceleration.reports) == 2
    assert_complete(acceleration, ("cond", "uncond"))
    calls = acceleration.report.calls
    components = [call.transformer for call in calls]
    assert components == sorted(components)
    assert set(components) == {"transformer", "transformer_2"}
    first = components.index("transformer_2")
    assert [call.reused for call in calls[first : first + 2]] == [False, False]
    assert (calls[first].reason, calls[first].distance) == (Reason.NO_HISTORY, None)
    assert any(call.reused for call in calls[:first])
    assert any(call.reused for call in calls[first:])
    with galaxydit.accelerate(two_stage.pipe, config=replace(NEVER, reuse=reuse)):
        assert torch.equal(two_stage.run(), plain)


def test_the_first_transformer_lets_go_once_the_second_has_taken_over(two_stage: Any) -> None:
    held, proxies = [], []
    high_noise, low_noise = ("transformer", ""), ("transformer_2", "")  # both hold the whole latent

    def look(pipe: Any, index: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        states = acceleration._session.current.histories
        held.append({key: sorted({branch for branch, _ in state.steps}) for key, state in states.items()})
        proxies.append(bool(states[high_noise].proxies))
        return tensors

    with galaxydit.accelerate(two_stage.pipe, config=OFTEN) as acceleration:
        two_stage.run(callback_on_step_end=look)
    first = next(index for index, states in enumerate(held) if low_noise in states)
    assert held[first - 1] == {high_noise: ["cond", "uncond"]}
    assert held[first + 1] == {high_noise: [], low_noise: ["cond", "uncond"]}
    assert (proxies[first - 1], proxies[first + 1]) == (True, False)


def test_a_pipeline_with_the_second_transformer_alone_is_accelerated(two_stage: Any) -> None:
    """Wan2.2 may be run with only the low-noise stage loaded."""
    parts = {"transformer": None, "transformer_2": two_stage.pipe.transformer_2, "boundary_ratio": 1.0}
    alone = turn_into(WanPipeline, two_stage, **parts)
    with galaxydit.accelerate(alone.pipe, config=OFTEN) as acceleration:
        alone.run()
    assert {call.transformer for call in acceleration.report.calls} == {"transformer_2"}
    assert acceleration.report.reused_steps > 0


@pytest.mark.parametrize("speedup", [1.5, 2.0, 2.5])
@pytest.mark.parametrize("boundary", [0.9, 0.6])
def test_a_speedup_is_met_with_two_transformers(two_stage: Any, speedup: float, boundary: float) -> None:
    """One budget for the trajectory; the step at which the second one takes over is always computed."""
    two_stage.pipe.register_to_config(boundary_ratio=boundary)
    with galaxydit.accelerate(two_stage.pipe, speedup=speedup) as acceleration:
        two_stage.run(num_inference_steps=40)
    report = acceleration.report
    assert {call.transformer for call in report.calls if call.reused} == {"transformer", "transformer_2"}
    assert 1 / report.compute_fraction == pytest.approx(speedup, rel=0.05)
    assert any("a general schedule" in note for note in report.notes)


@pytest.mark.filterwarnings("ignore::galaxydit.NoEffectWarning")
def test_threshold_zero_is_bit_identical_with_two_transformers(two_stage: Any) -> None:
    plain = two_stage.run()
    with galaxydit.accelerate(two_stage.pipe, threshold=0) as acceleration:
        assert torch.equal(two_stage.run(), plain)
    assert acceleration.report.compute_fraction == 1.0
    assert len(acceleration.reports) == 1
    assert {call.transformer for call in acceleration.report.calls} == {"transformer", "transformer_2"}


def test_guidance_that_pauses_comes_back_without_stale_history(tiny_wan: Any) -> None:
    """The unconditional branch sits out steps 4 to 7: at step 8 its last output is too old to reuse."""

    def pause(pipe: Any, index: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        pipe._guidance_scale = 1.0 if 3 <= index < 7 else 3.0
        return tensors

    config = GalaxyDiTConfig(FixedSteps((0, 1, 2, 3, 5, 7, 10, 11)))
    with galaxydit.accelerate(tiny_wan.pipe, config=config) as acceleration:
        tiny_wan.run(callback_on_step_end=pause)
    unconditional = {call.step: call for call in acceleration.report.calls if call.branch == "uncond"}
    assert sorted(unconditional) == [0, 1, 2, 3, 8, 9, 10, 11]
    assert unconditional[8].reason is Reason.NO_HISTORY
    assert [step for step, call in unconditional.items() if call.reused] == [9]
    assert [call.step for call in acceleration.report.calls if call.reused and call.branch == "cond"] == [4, 6, 9]
