"""What users rely on: exact where it must be, fresh at each generation, gone when removed."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from diffusers import FirstBlockCacheConfig, FlowMatchEulerDiscreteScheduler, WanPipeline, WanTransformer3DModel
from torch import Tensor, nn

import galaxydit
from galaxydit import (
    PROXIES,
    FixedSteps,
    FullComputeWarning,
    GalaxyDiTConfig,
    GalaxyDiTError,
    NoEffectWarning,
    Observer,
    Online,
    Schedule,
    Threshold,
)
from galaxydit.acceleration import Acceleration
from galaxydit.extrapolation import DAMPING, CachedStep, predict
from galaxydit.policies.policy import Decision, Observation, Reason
from galaxydit.proxies import DISTANCES, relative_l2
from galaxydit.runtime.call import Call

PROMPT = "a red ball moves left over a plain background"
FAST = GalaxyDiTConfig(Threshold(0.5), warmup=0.2, max_consecutive=2)


def run(pipe: WanPipeline, **changes: Any) -> Tensor:
    """Latents of a small generation; the seed is always the same."""
    settings: dict[str, Any] = {
        "prompt": PROMPT,
        "height": 32,
        "width": 32,
        "num_frames": 5,
        "num_inference_steps": 12,
        "guidance_scale": 3.0,
        "output_type": "latent",
        "max_sequence_length": 16,
    }
    generator = torch.Generator().manual_seed(0)
    return pipe(**(settings | changes), generator=generator).frames


def test_threshold_zero_is_bit_identical_and_says_so(tiny_wan_pipeline: WanPipeline) -> None:
    plain = run(tiny_wan_pipeline)
    with pytest.warns(NoEffectWarning), galaxydit.accelerate(tiny_wan_pipeline, threshold=0) as acceleration:
        assert torch.equal(run(tiny_wan_pipeline), plain)
    assert acceleration.report.compute_fraction == 1.0
    assert {call.reason for call in acceleration.report.calls[2:]} == {Reason.ZERO_THRESHOLD}


@pytest.mark.parametrize("steps", [4, 12])
def test_lossless_is_bit_identical_without_a_warning(
    tiny_wan_pipeline: WanPipeline, recwarn: pytest.WarningsRecorder, steps: int
) -> None:
    plain = run(tiny_wan_pipeline, num_inference_steps=steps)
    with galaxydit.accelerate(tiny_wan_pipeline, quality="lossless"):
        assert torch.equal(run(tiny_wan_pipeline, num_inference_steps=steps), plain)
    assert not [warning for warning in recwarn if "galaxydit" in str(warning.message)]


def test_a_missed_speedup_is_warned_of(tiny_wan_pipeline: WanPipeline, recwarn: pytest.WarningsRecorder) -> None:
    with galaxydit.accelerate(tiny_wan_pipeline, speedup=2.0, max_error=10.0):
        run(tiny_wan_pipeline, num_inference_steps=20)
    assert not [warning for warning in recwarn if warning.category is FullComputeWarning]
    with (
        galaxydit.accelerate(tiny_wan_pipeline, speedup=2.0, max_error=0.0),
        pytest.warns(FullComputeWarning, match=r"2x was asked for and 1\.\d\dx reached, because .*max_error"),
    ):
        run(tiny_wan_pipeline, num_inference_steps=20)


def test_a_schedule_of_all_steps_is_bit_identical(tiny_wan_pipeline: WanPipeline) -> None:
    plain = run(tiny_wan_pipeline)
    for reuse in ("output", "residual"):
        with galaxydit.accelerate(tiny_wan_pipeline, config=GalaxyDiTConfig(FixedSteps(tuple(range(12))), reuse=reuse)):
            assert torch.equal(run(tiny_wan_pipeline), plain)


@pytest.mark.parametrize("settings", [{"speedup": 2.0}, {"threshold": 9.0}, {"max_error": 9.0}])
def test_a_generation_of_few_steps_is_computed_without_policy_and_cache(
    tiny_wan_pipeline: WanPipeline, settings: dict[str, float]
) -> None:
    plain = run(tiny_wan_pipeline, num_inference_steps=8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with galaxydit.accelerate(tiny_wan_pipeline, **settings) as acceleration:
            assert torch.equal(run(tiny_wan_pipeline, num_inference_steps=8), plain)
    report = acceleration.report
    assert {(call.reason, call.distance) for call in report.calls} == {(Reason.FEW_STEPS, None)}
    assert (report.bytes_held, report.compute_fraction) == (0, 1.0)


PARTS_BEFORE = {
    **dict.fromkeys(("time_embedding", "noisy_latent", "filtered_latent", "block_input", "modulated_input"), ()),
    **dict.fromkeys(("self_attention", "after_self_attention", "gated_self_attention"), ("attn1",)),
    **dict.fromkeys(("cross_attention", "modulated_feed_forward_input"), ("attn1", "attn2")),
}
"""Parts of the first block that run before a proxy's tensor is known; all of them for the other tensors."""


@pytest.mark.matrix(
    tensor=[*PARTS_BEFORE, "feed_forward", "block_residual", "block_output"],
    distance=DISTANCES,
    reuse=["output", "residual"],
)
def test_every_proxy_drives_both_kinds_of_reuse(
    tiny_wan_pipeline: WanPipeline, tensor: str, distance: str, reuse: str
) -> None:
    proxy = tensor if distance == "l1" else f"{tensor}_{distance}"
    config = GalaxyDiTConfig(Threshold(50.0), proxy=proxy, reuse=reuse, max_consecutive=2)
    first, ran = tiny_wan_pipeline.transformer.blocks[0], []
    # The last layer of each part runs only where the part is computed.
    parts = {"attn1": first.attn1.to_out[0], "attn2": first.attn2.to_out[0], "ffn": first.ffn.net[-1]}
    handles = [part.register_forward_hook(lambda *_, name=name: ran.append(name)) for name, part in parts.items()]
    with galaxydit.accelerate(tiny_wan_pipeline, config=config) as acceleration:
        run(tiny_wan_pipeline)
    for handle in handles:
        handle.remove()
    calls = acceleration.report.calls
    assert [call.step for call in calls if call.reused and call.branch == "cond"] == [3, 4, 6, 7, 9, 10]
    assert [call.reused for call in calls[::2]] == [call.reused for call in calls[1::2]], "branches must agree"
    reused = [call.blocks_run for call in calls if call.reused]
    needed = PARTS_BEFORE.get(PROXIES[proxy].tensor_name, ("attn1", "attn2", "ffn"))
    assert reused == [{0: 0.0, 1: 0.4, 2: 0.6, 3: 1.0}[len(needed)], 0.0] * 6
    assert {name: ran.count(name) for name in parts} == {name: 12 + 6 * (name in needed) for name in parts}


def count_block_runs(transformer: nn.Module, counts: list[int]) -> list[Any]:
    def count(*_: Any) -> None:
        counts[0] += 1

    return [block.ffn.register_forward_hook(count) for block in transformer.blocks]


@pytest.mark.parametrize("reuse", ["output", "residual"])
def test_the_compute_fraction_is_what_really_ran(tiny_wan_pipeline: WanPipeline, reuse: str) -> None:
    counts = [0]
    handles = count_block_runs(tiny_wan_pipeline.transformer, counts)
    with galaxydit.accelerate(tiny_wan_pipeline, config=GalaxyDiTConfig(Threshold(0.5), reuse=reuse)) as acceleration:
        run(tiny_wan_pipeline)
    for handle in handles:
        handle.remove()
    assert acceleration.report.reused_steps > 0
    assert counts[0] == pytest.approx(acceleration.report.compute_fraction * 12 * 2 * 3)


def test_residual_order_0_equals_the_formula_done_by_hand(tiny_wan_pipeline: WanPipeline) -> None:
    """Step 1 reuses step 0: hidden states are embedded anew, the stack's change of step 0 is added, the head runs."""
    transformer = tiny_wan_pipeline.transformer
    config = GalaxyDiTConfig(FixedSteps((0, *range(2, 12))), reuse="residual", order=0)
    inputs: list[Tensor] = []
    outputs: list[Tensor] = []
    stack_in: list[Tensor] = []
    head_in: list[Tensor] = []
    handles = [
        transformer.register_forward_pre_hook(lambda _, a, k: inputs.append(k["hidden_states"]), with_kwargs=True),
        transformer.register_forward_hook(lambda _, a, o: outputs.append(o[0])),
        transformer.patch_embedding.register_forward_hook(lambda _, a, o: stack_in.append(o.flatten(2).mT)),
        transformer.norm_out.register_forward_pre_hook(lambda _, a: head_in.append(a[0])),
    ]
    with galaxydit.accelerate(tiny_wan_pipeline, config=config):
        run(tiny_wan_pipeline)
    for handle in handles:
        handle.remove()
    for branch in (0, 1):
        residual = head_in[branch] - stack_in[branch]
        assert torch.allclose(head_in[2 + branch], stack_in[2 + branch] + residual, atol=1e-5)
    assert not torch.equal(outputs[2], outputs[0])


def test_output_order_1_equals_the_formula_done_by_hand(tiny_wan_pipeline: WanPipeline) -> None:
    outputs: list[Tensor] = []
    handle = tiny_wan_pipeline.transformer.register_forward_hook(lambda _, a, o: outputs.append(o[0].clone()))
    with galaxydit.accelerate(
        tiny_wan_pipeline, config=GalaxyDiTConfig(FixedSteps((0, 1, *range(3, 12))))
    ) as acceleration:
        run(tiny_wan_pipeline)
    handle.remove()
    sigma = [call.sigma for call in acceleration.report.calls[::2]]
    slope = DAMPING * (sigma[2] - sigma[1]) / (sigma[1] - sigma[0])
    for branch in (0, 1):
        expected = outputs[2 + branch] + (outputs[2 + branch] - outputs[branch]) * slope
        assert torch.allclose(outputs[4 + branch], expected, atol=1e-5)


def test_a_schedule_runs_nothing_in_a_reused_step(tiny_wan_pipeline: WanPipeline) -> None:
    with galaxydit.accelerate(tiny_wan_pipeline, config=GalaxyDiTConfig(FixedSteps(tuple(range(12))))) as acceleration:
        run(tiny_wan_pipeline)
    sigmas = [call.sigma for call in acceleration.report.calls[::2]]
    full = (0, 1, 2, 3, *range(5, 12))
    policy = Schedule(12 / 11, tuple(sigmas[step] for step in full))
    outputs: list[Tensor] = []
    handle = tiny_wan_pipeline.transformer.register_forward_hook(lambda _, a, o: outputs.append(o[0].clone()))
    with galaxydit.accelerate(tiny_wan_pipeline, config=GalaxyDiTConfig(policy, warmup=0.0)) as acceleration:
        run(tiny_wan_pipeline)
    handle.remove()
    assert acceleration.report.compute_fraction == pytest.approx(11 / 12)
    assert {call.distance for call in acceleration.report.calls} == {None}
    for branch in (0, 1):
        history = tuple(CachedStep(step, sigmas[step], outputs[2 * step + branch]) for step in (2, 3))
        assert torch.allclose(outputs[8 + branch], predict(history, sigmas[4], 1), atol=1e-6)


def fresh(pipe: WanPipeline, **changes: Any) -> Tensor:
    with galaxydit.accelerate(pipe, config=FAST):
        return run(pipe, **changes)


def test_a_second_generation_equals_a_fresh_one(tiny_wan_pipeline: WanPipeline) -> None:
    pipe = tiny_wan_pipeline
    changes: list[dict[str, Any]] = [
        {},
        {"num_inference_steps": 15},
        {"height": 48},
        {"guidance_scale": 1.0},
        {"prompt": "a blue square grows over a dotted background"},
        {"num_videos_per_prompt": 2},
    ]
    expected = [fresh(pipe, **change) for change in changes]
    with galaxydit.accelerate(pipe, config=FAST) as acceleration:
        for change, latents in zip(changes, expected, strict=True):
            assert torch.equal(run(pipe, **change), latents), f"state leaked into {change}"
    assert len(acceleration.reports) == len(changes)
    assert all(report.reused_steps > 0 for report in acceleration.reports)


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("step", [0, 5, 10])
def test_an_exception_in_the_middle_leaves_no_trace(
    tiny_wan_pipeline: WanPipeline, failure: type[BaseException], step: int
) -> None:
    expected = fresh(tiny_wan_pipeline)

    def fail(pipe: Any, index: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        if index == step:
            raise failure
        return tensors

    with galaxydit.accelerate(tiny_wan_pipeline, config=FAST) as acceleration:
        with pytest.raises(failure):
            run(tiny_wan_pipeline, callback_on_step_end=fail)
        assert torch.equal(run(tiny_wan_pipeline), expected)
    assert len(acceleration.reports) == 2


def test_an_exception_inside_the_transformer_leaves_no_trace(tiny_wan_pipeline: WanPipeline) -> None:
    expected = fresh(tiny_wan_pipeline)
    calls = []

    def fail(*_: Any) -> None:
        calls.append(1)
        if len(calls) == 8:
            raise RuntimeError("out of memory")

    with galaxydit.accelerate(tiny_wan_pipeline, config=FAST):
        handle = tiny_wan_pipeline.transformer.blocks[2].register_forward_hook(fail)
        with pytest.raises(RuntimeError, match="out of memory"):
            run(tiny_wan_pipeline)
        handle.remove()
        assert torch.equal(run(tiny_wan_pipeline), expected)


def test_a_pipeline_interrupt_ends_the_generation(tiny_wan_pipeline: WanPipeline) -> None:
    expected = fresh(tiny_wan_pipeline)

    def interrupt(pipe: Any, index: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        pipe._interrupt = index == 5
        return tensors

    with galaxydit.accelerate(tiny_wan_pipeline, config=FAST) as acceleration:
        run(tiny_wan_pipeline, callback_on_step_end=interrupt)
        assert len(acceleration.report.calls) == 12
        assert torch.equal(run(tiny_wan_pipeline), expected)


def attributes_of(pipe: WanPipeline) -> dict[str, set[str]]:
    names = {}
    for component in ("transformer", "text_encoder", "vae"):
        for path, module in getattr(pipe, component).named_modules():
            names[f"{component}.{path}"] = set(vars(module))
    return names


def test_removal_leaves_every_module_as_it_was(tiny_wan_pipeline: WanPipeline) -> None:
    plain = run(tiny_wan_pipeline)
    before = attributes_of(tiny_wan_pipeline)
    for config in (FAST, GalaxyDiTConfig(reuse="residual"), GalaxyDiTConfig(proxy="modulated_input")):
        acceleration = galaxydit.accelerate(tiny_wan_pipeline, config=config)
        run(tiny_wan_pipeline)
        acceleration.remove()
        acceleration.remove()
        assert attributes_of(tiny_wan_pipeline) == before
        assert torch.equal(run(tiny_wan_pipeline), plain)


def test_tensors_are_let_go_when_the_generation_ends(tiny_wan_pipeline: WanPipeline) -> None:
    with galaxydit.accelerate(tiny_wan_pipeline, config=FAST) as acceleration:
        run(tiny_wan_pipeline)
        generation = acceleration._session.current
        assert generation is not None
        assert not generation.histories
        assert acceleration.report.bytes_held > 0


@pytest.mark.parametrize("policy", [Threshold(0.05), Threshold(1e9), FixedSteps((0, 1)), Online(max_error=0.5)])
@pytest.mark.parametrize("reuse", ["output", "residual"])
def test_nothing_is_held_while_the_video_is_decoded(tiny_wan_pipeline: WanPipeline, policy: Any, reuse: str) -> None:
    held = []

    def look(*_: Any) -> None:
        held.append([acceleration._session.current.holds_now()])

    config = GalaxyDiTConfig(policy, reuse=reuse, order=1, keep_last=0)
    with galaxydit.accelerate(tiny_wan_pipeline, config=config) as acceleration:
        tiny_wan_pipeline.vae.decoder.register_forward_pre_hook(look)
        tiny_wan_pipeline("a red ball", height=32, width=32, num_frames=5, num_inference_steps=12, guidance_scale=3.0)
    assert acceleration.report.bytes_held > 0
    assert set(map(tuple, held)) == {(0,)}


def test_the_output_mode_holds_latents_and_not_hidden_states(tiny_wan_pipeline: WanPipeline) -> None:
    held = {}
    for reuse in ("output", "residual"):
        config = GalaxyDiTConfig(Threshold(0.5), proxy="noisy_latent", reuse=reuse, order=0)
        with galaxydit.accelerate(tiny_wan_pipeline, config=config) as acceleration:
            run(tiny_wan_pipeline)
        held[reuse] = acceleration.report.bytes_held
    latent_bytes = 16 * 2 * 4 * 4 * 4
    assert held["output"] == 3 * latent_bytes  # two branches and the proxy
    assert held["residual"] == latent_bytes + 2 * (2 * 2 * 2) * 32 * 4


def test_without_guidance_there_is_one_branch(tiny_wan_pipeline: WanPipeline) -> None:
    with galaxydit.accelerate(tiny_wan_pipeline, config=FAST) as acceleration:
        run(tiny_wan_pipeline, guidance_scale=1.0)
    assert {call.branch for call in acceleration.report.calls} == {"cond"}
    assert acceleration.report.reused_steps > 0


def test_without_alignment_each_branch_decides_for_itself(tiny_wan_pipeline: WanPipeline) -> None:
    config = GalaxyDiTConfig(Threshold(0.5), guidance_alignment=False)
    with galaxydit.accelerate(tiny_wan_pipeline, config=config) as acceleration:
        run(tiny_wan_pipeline)
    distances = {
        branch: [call.distance for call in acceleration.report.calls if call.branch == branch]
        for branch in ("cond", "uncond")
    }
    assert None not in distances["uncond"][1:]
    assert distances["cond"] != distances["uncond"]


class Outputs(Observer):
    """Keeps what each branch computed."""

    def __init__(self) -> None:
        self.of_branch: dict[str, list[Tensor]] = {"cond": [], "uncond": []}

    def on_output(self, call: Call, output: Tensor) -> None:
        self.of_branch[call.branch].append(output.clone())


class Learner:
    """A policy that computes all steps, and keeps the errors that it is told in the state of its branch."""

    reads_proxy = learns_errors = True
    reuses = True

    def __init__(self) -> None:
        self.told: list[list[float | None]] = []

    def decide(self, observation: Observation, state: list[float | None] | None) -> tuple[Decision, Any]:
        if state is None:
            self.told.append(state := [])
        state.append(observation.error)
        return Decision(False, Reason.CUSTOM), state


def test_without_alignment_a_branch_learns_from_its_own_errors(tiny_wan_pipeline: WanPipeline) -> None:
    outputs, policy = Outputs(), Learner()
    config = GalaxyDiTConfig(policy, order=0, guidance_alignment=False)
    with Acceleration(tiny_wan_pipeline, config, observer=outputs):
        run(tiny_wan_pipeline)
    for told, computed in zip(policy.told, outputs.of_branch.values(), strict=True):
        errors = [float(relative_l2(now, before)) for before, now in pairwise(computed)]
        assert told == [None, None, *map(pytest.approx, errors[:-1])]  # each is known at the next decision


def test_without_decisions_by_sample_the_hardest_one_decides(tiny_wan_pipeline: WanPipeline) -> None:
    config, single = GalaxyDiTConfig(Threshold(1e-9), per_sample=False), []
    for seed in (0, 1):
        with galaxydit.accelerate(tiny_wan_pipeline, config=config) as acceleration:
            run(tiny_wan_pipeline, latents=noise(seed))
        single.append([call.distance for call in acceleration.report.calls[2::2]])
    with galaxydit.accelerate(tiny_wan_pipeline, config=config) as acceleration:
        run(tiny_wan_pipeline, prompt=[PROMPT, PROMPT], latents=torch.cat([noise(0), noise(1)]))
    together = [call.distance for call in acceleration.report.calls[2::2]]
    assert together == pytest.approx([max(pair) for pair in zip(*single, strict=True)], rel=1e-3)


def noise(seed: int) -> Tensor:
    return torch.randn(1, 16, 2, 4, 4, generator=torch.Generator().manual_seed(seed))


def test_few_step_generation_is_computed_in_full_with_a_warning(tiny_wan_pipeline: WanPipeline) -> None:
    plain = run(tiny_wan_pipeline, num_inference_steps=8)
    acceleration = galaxydit.accelerate(tiny_wan_pipeline, config=FAST)
    with pytest.warns(FullComputeWarning, match="too few"):
        latents = run(tiny_wan_pipeline, num_inference_steps=8)
    assert torch.equal(latents, plain)
    assert acceleration.report.notes


def test_another_scheduler_put_in_later_is_followed(tiny_wan_pipeline: WanPipeline) -> None:
    with galaxydit.accelerate(tiny_wan_pipeline, config=FAST) as acceleration:
        run(tiny_wan_pipeline)
        tiny_wan_pipeline.scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
        latents = run(tiny_wan_pipeline)
    assert torch.equal(latents, fresh(tiny_wan_pipeline))
    assert acceleration.report.reused_steps > 0


EVERY_THIRD = GalaxyDiTConfig(FixedSteps(range(0, 12, 3)), order=0)


def with_own_scheduler(pipe: WanPipeline) -> WanPipeline:
    """A second pipeline with all parts of the first but its scheduler."""
    other = WanPipeline(**(pipe.components | {"scheduler": FlowMatchEulerDiscreteScheduler(shift=3.0)}))
    other.set_progress_bar_config(disable=True)
    return other


def test_a_second_pipeline_whose_own_scheduler_nobody_named_is_computed_in_full_with_a_warning(
    tiny_wan_pipeline: WanPipeline,
) -> None:
    other = with_own_scheduler(tiny_wan_pipeline)
    plain = run(other)
    with galaxydit.accelerate(tiny_wan_pipeline, config=EVERY_THIRD) as acceleration:
        first = run(tiny_wan_pipeline)
        with pytest.warns(FullComputeWarning, match=r"no observed scheduler .*schedulers=\[\.\.\.\]"):
            assert torch.equal(run(other), plain)
        assert torch.equal(run(tiny_wan_pipeline), first)
    assert [(report.reused_steps, report.notes) for report in acceleration.reports] == [(8, ())] * 2


@pytest.mark.filterwarnings("error::galaxydit.FullComputeWarning")
def test_a_second_pipeline_whose_own_scheduler_is_named_is_accelerated_and_corrected_by_that(
    tiny_wan_pipeline: WanPipeline,
) -> None:
    other = with_own_scheduler(tiny_wan_pipeline)
    with galaxydit.accelerate(other, config=replace(EVERY_THIRD, correction=False)):
        uncorrected = run(other)
    with galaxydit.accelerate(other, config=EVERY_THIRD):
        expected = run(other)
    with galaxydit.accelerate(tiny_wan_pipeline, config=EVERY_THIRD, schedulers=[other.scheduler]) as acceleration:
        run(tiny_wan_pipeline)
        assert torch.equal(run(other), expected)
    assert not torch.equal(expected, uncorrected)
    assert [(report.reused_steps, report.notes) for report in acceleration.reports] == [(8, ())] * 2


def drive_by_hand(transformer: WanTransformer3DModel, scheduler: Any, steps: int = 12) -> Tensor:
    """A denoising loop as people write it: two calls a step, no cache context."""
    scheduler.set_timesteps(steps)
    latents = noise(0)
    text = torch.randn(2, 1, 8, 128, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        for timestep in scheduler.timesteps:
            predictions = [transformer(latents, timestep.expand(1), words, return_dict=False)[0] for words in text]
            guided = predictions[1] + 3.0 * (predictions[0] - predictions[1])
            latents = scheduler.step(guided, timestep, latents, return_dict=False)[0]
    return latents


def test_a_bare_transformer_follows_its_scheduler(tiny_wan_pipeline: WanPipeline) -> None:
    transformer, scheduler = tiny_wan_pipeline.transformer, tiny_wan_pipeline.scheduler
    plain = drive_by_hand(transformer, scheduler)
    with galaxydit.accelerate(transformer, config=FAST, scheduler=scheduler) as acceleration:
        first, second = (drive_by_hand(transformer, scheduler) for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, plain)
    assert [report.reused_steps for report in acceleration.reports] == [acceleration.report.reused_steps] * 2
    assert {call.branch for call in acceleration.report.calls} == {"call 0", "call 1"}
    assert acceleration.report.reused_steps > 0


def test_a_bare_transformer_without_a_scheduler_computes_in_full_and_says_so(tiny_wan_pipeline: WanPipeline) -> None:
    transformer, scheduler = tiny_wan_pipeline.transformer, tiny_wan_pipeline.scheduler
    plain = drive_by_hand(transformer, scheduler)
    with galaxydit.accelerate(transformer, config=FAST), pytest.warns(FullComputeWarning, match="scheduler="):
        assert torch.equal(drive_by_hand(transformer, scheduler), plain)


def test_model_outputs_come_in_the_form_asked_for(tiny_wan_pipeline: WanPipeline) -> None:
    transformer, scheduler = tiny_wan_pipeline.transformer, tiny_wan_pipeline.scheduler
    scheduler.set_timesteps(12)
    text = torch.zeros(1, 8, 128)
    with (
        galaxydit.accelerate(transformer, config=GalaxyDiTConfig(FixedSteps((0,))), scheduler=scheduler),
        torch.no_grad(),
    ):
        for index, timestep in enumerate(scheduler.timesteps):
            context = {"step_index": index, "num_inference_steps": 12, "sigma": 1.0 - index / 12}
            with transformer.cache_context("cond", **context):
                assert transformer(noise(0), timestep.expand(1), text).sample.shape == noise(0).shape


def test_two_accelerations_on_one_pipeline_are_refused(tiny_wan_pipeline: WanPipeline) -> None:
    first = galaxydit.accelerate(tiny_wan_pipeline)
    with pytest.raises(GalaxyDiTError, match=r"accelerated already.*remove"):
        galaxydit.accelerate(tiny_wan_pipeline)
    first.remove()
    galaxydit.accelerate(tiny_wan_pipeline).remove()


def test_another_cache_is_refused_by_name(tiny_wan_pipeline: WanPipeline) -> None:
    tiny_wan_pipeline.transformer.enable_cache(FirstBlockCacheConfig(threshold=0.1))
    with pytest.raises(GalaxyDiTError, match=r"FirstBlockCacheConfig.*disable_cache"):
        galaxydit.accelerate(tiny_wan_pipeline)
    tiny_wan_pipeline.transformer.disable_cache()


def test_an_unsupported_transformer_is_refused_by_name() -> None:
    with pytest.raises(GalaxyDiTError, match=r"Linear.*galaxydit.families.FAMILIES"):
        galaxydit.accelerate(nn.Linear(2, 2))
    with pytest.raises(GalaxyDiTError, match="no transformer"):
        galaxydit.accelerate(object())


def test_residual_reuse_of_a_single_block_is_refused(
    tiny_transformer: Callable[[int], WanTransformer3DModel],
) -> None:
    with pytest.raises(GalaxyDiTError, match="reuse='output'"):
        galaxydit.accelerate(tiny_transformer(1), config=GalaxyDiTConfig(reuse="residual"))


def test_a_report_before_the_first_generation_is_an_error(tiny_wan_pipeline: WanPipeline) -> None:
    with galaxydit.accelerate(tiny_wan_pipeline) as acceleration, pytest.raises(GalaxyDiTError, match="generate"):
        _ = acceleration.report


def test_seconds_are_reported_for_denoising_and_end_to_end(tiny_wan_pipeline: WanPipeline) -> None:
    with galaxydit.accelerate(tiny_wan_pipeline, config=FAST) as acceleration:
        run(tiny_wan_pipeline, output_type="np")
        report = acceleration.report
        assert report.denoise_seconds is not None
        assert report.end_to_end_seconds is not None
        assert 0 < report.denoise_seconds < report.end_to_end_seconds
        run(tiny_wan_pipeline)
        assert acceleration.report.end_to_end_seconds is None, "latents alone were never decoded"


def test_describe_names_what_is_hooked(tiny_wan_pipeline: WanPipeline) -> None:
    (description,) = galaxydit.describe(tiny_wan_pipeline)
    assert (description.family, description.blocks, description.branches) == ("Wan", 3, "separate calls")
    assert description.hooked == ("transformer", "transformer.blocks.0")
    assert set(description.proxies) == set(PROXIES)
