"""What every family of transformer must do, whichever way its guidance branches and its steps arrive."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from diffusers import CogVideoXDDIMScheduler, FlowMatchEulerDiscreteScheduler, FluxPipeline, FluxTransformer2DModel
from torch import Tensor

import galaxydit
from galaxydit import PROXIES, FixedSteps, GalaxyDiTConfig, GalaxyDiTError, NoEffectWarning, Threshold
from galaxydit.proxies import DISTANCES, relative_l1
from galaxydit.runtime.recognition import blocks_of, family_of

Build = Callable[[str], Any]
NAMES = ("LTX", "CogVideoX DDIM", "CogVideoX DPM", "HunyuanVideo")
OFTEN = GalaxyDiTConfig(Threshold(50.0), max_consecutive=2)


@pytest.fixture(params=NAMES)
def tiny(request: pytest.FixtureRequest, tiny_pipeline: Build) -> Any:
    return tiny_pipeline(request.param)


@pytest.fixture(params=["with guidance", "without guidance"])
def guidance(request: pytest.FixtureRequest, tiny: Any) -> dict[str, Any]:
    return tiny.without_guidance if request.param == "without guidance" else {}


def test_threshold_zero_is_bit_identical(tiny: Any, guidance: dict[str, Any]) -> None:
    plain = tiny.run(**guidance)
    with pytest.warns(NoEffectWarning), galaxydit.accelerate(tiny.pipe, threshold=0) as acceleration:
        assert torch.equal(tiny.run(**guidance), plain)
    assert acceleration.report.compute_fraction == 1.0
    assert torch.equal(tiny.run(**guidance), plain)


def test_a_schedule_of_all_steps_is_bit_identical(tiny: Any, guidance: dict[str, Any]) -> None:
    plain = tiny.run(**guidance)
    (description,) = galaxydit.describe(tiny.pipe)
    for reuse in ("output", "residual") if description.family == "LTX-Video" else ("output",):
        with galaxydit.accelerate(tiny.pipe, config=GalaxyDiTConfig(FixedSteps(tuple(range(12))), reuse=reuse)):
            assert torch.equal(tiny.run(**guidance), plain)


def test_every_proxy_of_the_family_drives_reuse(tiny: Any, guidance: dict[str, Any], exhaustive: bool) -> None:
    """Each tensor with one of the distances, which take turns."""
    plain = tiny.run(**guidance)
    (description,) = galaxydit.describe(tiny.pipe)
    tensors = [proxy for proxy in description.proxies if PROXIES[proxy].tensor_name == proxy]
    turns = [name if not index % 3 else f"{name}_{DISTANCES[index % 3]}" for index, name in enumerate(tensors)]
    for proxy in description.proxies if exhaustive else turns:
        with galaxydit.accelerate(tiny.pipe, config=replace(OFTEN, proxy=proxy)) as acceleration:
            latents = tiny.run(**guidance)
            if proxy == turns[0]:
                assert torch.equal(tiny.run(**guidance), latents), "the second generation must be as fresh as the first"
        calls = acceleration.report.calls
        deciding = [call for call in calls if call.branch != "uncond"]
        assert [call.step for call in deciding] == list(range(12))
        assert [call.step for call in deciding if call.reused] == [3, 4, 6, 7, 9, 10]
        assert {call.blocks_run for call in deciding if call.reused} == {PROXIES[proxy].cost}
        assert {call.step for call in calls if call.reused} == {call.step for call in deciding if call.reused}
        assert None not in [call.distance for call in deciding[1:]]
        assert [call.sigma for call in deciding] == sorted({call.sigma for call in deciding}, reverse=True)
        assert not [note for note in acceleration.report.notes if "draws noise" not in note]
        assert not torch.equal(latents, plain)


def test_the_residual_of_a_concatenated_batch_is_reused(tiny_pipeline: Build) -> None:
    tiny = tiny_pipeline("LTX")
    for proxy in ("noisy_latent", "self_attention", "block_residual"):
        with galaxydit.accelerate(
            tiny.pipe, config=GalaxyDiTConfig(Threshold(50.0), proxy=proxy, reuse="residual")
        ) as run:
            latents = tiny.run()
            assert torch.equal(tiny.run(), latents)
        assert run.report.reused_steps > 0
        assert latents.isfinite().all()


def distances_after(tiny: Any, **changes: Any) -> tuple[list[float], list[Tensor]]:
    """Distances that the plugin saw in a generation without reuse, and those of each sample, done by hand."""
    outputs: list[Tensor] = []

    def record(module: Any, arguments: Any, output: Any) -> None:
        outputs.append((output if isinstance(output, Tensor) else output[0]).clone())

    handle = tiny.pipe.transformer.transformer_blocks[0].register_forward_hook(record)
    with galaxydit.accelerate(tiny.pipe, threshold=1e-9, proxy="block_output") as acceleration:
        tiny.run(**changes)
    handle.remove()
    by_hand = [relative_l1(after, before) for before, after in pairwise(outputs)]
    return [call.distance for call in acceleration.report.calls[1:]], by_hand


@pytest.mark.parametrize("name", ["LTX", "CogVideoX DDIM"])
def test_the_conditional_half_of_a_concatenated_batch_decides(tiny_pipeline: Build, name: str) -> None:
    seen, by_hand = distances_after(tiny_pipeline(name))
    assert seen == pytest.approx([float(samples[1]) for samples in by_hand])
    assert seen != pytest.approx([float(samples[0]) for samples in by_hand], rel=1e-4), "the halves must differ"


@pytest.mark.parametrize("name", ["LTX", "CogVideoX DDIM"])
def test_each_sample_of_a_batch_without_guidance_decides_even_from_equal_noise(tiny_pipeline: Build, name: str) -> None:
    tiny = tiny_pipeline(name)
    shape = (1, 8, 8) if name == "LTX" else (1, 3, 4, 8, 8)
    noise = torch.randn(shape, generator=torch.Generator().manual_seed(2)).repeat(2, *(1 for _ in shape[1:]))
    texts = [tiny.arguments["prompt_embeds"], tiny.arguments["negative_prompt_embeds"]]
    changes = {"prompt_embeds": torch.cat(texts), "negative_prompt_embeds": None, **tiny.without_guidance}
    if name == "LTX":
        changes |= {"prompt_attention_mask": torch.ones(2, 8), "negative_prompt_attention_mask": None}
    seen, by_hand = distances_after(tiny, latents=noise, **changes)
    # The first call has no distance; each call has a record for each sample.
    assert seen[1:] == pytest.approx([float(distance) for samples in by_hand for distance in samples])
    assert any(samples[0] != samples[1] for samples in by_hand)


def test_hunyuan_has_two_stacks_and_true_guidance_decides_once(tiny_pipeline: Build) -> None:
    tiny = tiny_pipeline("HunyuanVideo")
    (description,) = galaxydit.describe(tiny.pipe)
    assert (description.family, description.blocks) == ("HunyuanVideo", 4)
    with galaxydit.accelerate(tiny.pipe, config=OFTEN) as acceleration:
        tiny.run()
        calls = acceleration.report.calls
        assert [call.branch for call in calls] == ["cond", "uncond"] * 12
        assert [call.reused for call in calls[::2]] == [call.reused for call in calls[1::2]]
        assert {call.blocks_run for call in calls if not call.reused} == {4}
        tiny.run(**tiny.without_guidance)
        assert [call.branch for call in acceleration.report.calls] == ["cond"] * 12


def test_a_speedup_is_met_without_a_profile(tiny: Any, guidance: dict[str, Any]) -> None:
    with galaxydit.accelerate(tiny.pipe, speedup=2.0) as acceleration:
        latents = tiny.run(num_inference_steps=10, **guidance)
        assert torch.equal(tiny.run(num_inference_steps=10, **guidance), latents)
    assert acceleration.report.compute_fraction == 0.5
    assert not [note for note in acceleration.report.notes if "profile" not in note and "draws noise" not in note]


@pytest.mark.parametrize(
    ("name", "order"),  # test_torch_compile.py has both orders on one family
    [("LTX", "compile first"), ("CogVideoX DDIM", "accelerate first"), ("HunyuanVideo", "compile first")],
)
def test_compiled_blocks_change_neither_results_nor_decisions(tiny_pipeline: Build, name: str, order: str) -> None:
    tiny = tiny_pipeline(name)
    with galaxydit.accelerate(tiny.pipe, config=OFTEN) as expected:
        latents = tiny.run()
    torch.compiler.reset()
    if order == "compile first":
        compile_blocks(tiny.pipe.transformer)
    with galaxydit.accelerate(tiny.pipe, config=OFTEN) as acceleration:
        if order == "accelerate first":
            compile_blocks(tiny.pipe.transformer)
        assert torch.allclose(tiny.run(), latents, atol=1e-5)
    assert [call.reused for call in acceleration.report.calls] == [call.reused for call in expected.report.calls]


def compile_blocks(transformer: Any) -> None:
    for block in blocks_of(transformer, family_of(transformer)):
        block.compile(backend="eager")


@pytest.mark.parametrize("name", ["CogVideoX DDIM", "HunyuanVideo"])
def test_residual_reuse_of_blocks_with_two_streams_is_refused(tiny_pipeline: Build, name: str) -> None:
    with pytest.raises(GalaxyDiTError, match=r"reuse='residual'.*reuse='output'"):
        galaxydit.accelerate(tiny_pipeline(name).pipe, config=GalaxyDiTConfig(reuse="residual"))


@pytest.mark.parametrize("name", ["LTX", "CogVideoX DDIM"])
def test_the_filtered_latent_is_not_offered_where_it_would_be_wrong(tiny_pipeline: Build, name: str) -> None:
    """LTX packs the latent, so that a Fourier transform of its axes would mix samples; CogVideoX is no flow."""
    with pytest.raises(GalaxyDiTError, match=r"filtered_latent.*not offered.*noisy_latent"):
        galaxydit.accelerate(tiny_pipeline(name).pipe, proxy="filtered_latent")


@pytest.mark.parametrize("texts", ["one tensor", "a new tensor each time"])
def test_a_loop_by_hand_may_pass_everything_by_position(tiny_pipeline: Build, texts: str) -> None:
    """A scheduler without a step counter is searched for the timestep, wherever the timestep stands in the call."""
    tiny = tiny_pipeline("CogVideoX DDIM")
    transformer, scheduler = tiny.pipe.transformer, CogVideoXDDIMScheduler()
    embeds = tiny.arguments["prompt_embeds"]

    def denoise() -> Tensor:
        scheduler.set_timesteps(12)
        latents = torch.randn(1, 3, 4, 8, 8, generator=torch.Generator().manual_seed(2))
        for timestep in scheduler.timesteps:
            text = embeds if texts == "one tensor" else torch.cat([embeds])
            (prediction,) = transformer(latents, text, timestep.expand(1), None, None, None, None, False)
            latents = scheduler.step(prediction, timestep, latents, return_dict=False)[0]
        return latents

    with torch.no_grad(), galaxydit.accelerate(transformer, config=OFTEN, scheduler=scheduler) as acceleration:
        latents = denoise()
        assert torch.equal(denoise(), latents)
    assert len(acceleration.reports) == 2
    assert [call.step for call in acceleration.report.calls if call.reused] == [3, 4, 6, 7, 9, 10]
    assert not acceleration.report.notes


def test_a_block_that_returns_its_text_first_is_measured_by_its_hidden_states() -> None:
    torch.manual_seed(0)
    transformer = FluxTransformer2DModel(
        patch_size=1,
        in_channels=4,
        num_layers=3,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        axes_dims_rope=[4, 4, 8],
    )
    pipe = FluxPipeline(FlowMatchEulerDiscreteScheduler(), None, None, None, None, None, transformer)
    pipe.set_progress_bar_config(disable=True)

    def run() -> Any:
        noise = torch.Generator().manual_seed(0)
        text = {"prompt_embeds": torch.ones(1, 8, 32), "pooled_prompt_embeds": torch.ones(1, 32)}
        size = {"height": 32, "width": 32, "num_inference_steps": 12, "output_type": "latent"}
        return pipe(**text, **size, generator=noise).images

    plain = run()
    with galaxydit.accelerate(pipe, threshold=1e-30):
        assert torch.equal(run(), plain)
    with galaxydit.accelerate(pipe, threshold=50.0) as acceleration:
        run()
    assert acceleration.report.reused_steps > 0
