"""Attaching to unusual pipelines: parts that are shared, missing or the same."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from diffusers import WanPipeline, WanTransformer3DModel

import galaxydit
from galaxydit import FixedSteps, FullComputeWarning, GalaxyDiTConfig, GalaxyDiTError, Threshold

OFTEN = GalaxyDiTConfig(Threshold(50.0), max_consecutive=2)


@pytest.mark.parametrize("first_off", [0, 1])
def test_two_accelerated_pipelines_may_share_text_encoder_and_vae(
    tiny_wan: Any, tiny_transformer: Callable[[int], WanTransformer3DModel], first_off: int
) -> None:
    pipe = WanPipeline(**(tiny_wan.pipe.components | {"transformer": tiny_transformer(2)}))
    pipe.set_progress_bar_config(disable=True)
    tinies = [tiny_wan, replace(tiny_wan, pipe=pipe)]
    plain = [tiny.run() for tiny in tinies]
    accelerations = [galaxydit.accelerate(tiny.pipe, config=OFTEN) for tiny in tinies]
    for tiny in tinies:
        tiny.run(output_type="np")
    for acceleration in accelerations:
        assert acceleration.report.reused_steps == 6
        assert acceleration.report.end_to_end_seconds is not None
    accelerations[first_off].remove()
    assert torch.equal(tinies[first_off].run(), plain[first_off])
    tinies[1 - first_off].run(output_type="np")
    assert [len(acceleration.reports) for acceleration in accelerations] == ([1, 2] if first_off == 0 else [2, 1])
    assert accelerations[1 - first_off].report.end_to_end_seconds is not None
    accelerations[1 - first_off].remove()
    for tiny, latents in zip(tinies, plain, strict=True):
        assert torch.equal(tiny.run(), latents)
    for module in (pipe.text_encoder, pipe.vae.decoder):
        assert not hasattr(module, "_diffusers_hook")
        assert "forward" not in vars(module)


def test_one_module_in_both_stages_is_accelerated_once(tiny_wan: Any) -> None:
    parts = {"transformer_2": tiny_wan.pipe.transformer, "boundary_ratio": 0.9}
    pipe = WanPipeline(**(tiny_wan.pipe.components | parts))
    pipe.set_progress_bar_config(disable=True)
    with galaxydit.accelerate(tiny_wan.pipe, config=OFTEN):
        latents = tiny_wan.run()
    with galaxydit.accelerate(pipe, config=OFTEN) as acceleration:
        assert torch.equal(replace(tiny_wan, pipe=pipe).run(), latents)
    assert [item.component for item in galaxydit.describe(pipe)] == ["transformer"]
    assert acceleration.report.reused_steps == 6


def test_a_pipeline_that_cannot_be_attached_to_is_left_as_it_was(tiny_wan: Any) -> None:
    plain = tiny_wan.run()
    attention = tiny_wan.pipe.transformer.blocks[0].attn2
    del tiny_wan.pipe.transformer.blocks[0].attn2
    with pytest.raises(AttributeError, match="attn2"):
        galaxydit.accelerate(tiny_wan.pipe, config=replace(OFTEN, proxy="cross_attention"))
    tiny_wan.pipe.transformer.blocks[0].attn2 = attention
    assert torch.equal(tiny_wan.run(), plain)
    with galaxydit.accelerate(tiny_wan.pipe, config=OFTEN) as acceleration:
        tiny_wan.run()
    assert acceleration.report.reused_steps == 6


@pytest.mark.parametrize("in_place", [False, True])
def test_a_prompt_changed_in_the_middle_is_computed_anew_and_said_so(tiny_wan: Any, in_place: bool) -> None:
    def change(pipe: Any, index: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        if index == 6:
            text = tensors["prompt_embeds"]
            tensors["prompt_embeds"] = text.add_(1) if in_place else text + 1
        return tensors

    inputs = {"callback_on_step_end": change, "callback_on_step_end_tensor_inputs": ["latents", "prompt_embeds"]}
    with (
        galaxydit.accelerate(tiny_wan.pipe, config=GalaxyDiTConfig(FixedSteps((0, 1, 2, 3)))) as acceleration,
        pytest.warns(FullComputeWarning, match="encoder_hidden_states changed between two steps"),
    ):
        tiny_wan.run(**inputs)
    (report,) = acceleration.reports
    assert [call.step for call in report.calls if not call.reused and call.step > 3] == [7, 7]
    assert "changed between two steps" in str(report)


def test_a_replaced_transformer_is_not_silently_plain(
    tiny_wan: Any, tiny_transformer: Callable[[int], WanTransformer3DModel]
) -> None:
    pipe, first = tiny_wan.pipe, tiny_wan.pipe.transformer
    acceleration = galaxydit.accelerate(pipe, config=OFTEN)
    tiny_wan.run()
    pipe.transformer = tiny_transformer(2)
    with pytest.warns(FullComputeWarning, match=r"transformer was replaced .* accelerate\(pipe\) again"):
        tiny_wan.run()
    with pytest.raises(GalaxyDiTError, match="was replaced"):
        _ = acceleration.report
    pipe.transformer = first
    tiny_wan.run()
    acceleration.remove()
    pipe.transformer = tiny_transformer(2)
    tiny_wan.run()
    assert acceleration.report.reused_steps == 6


def test_removal_warns_of_a_transformer_that_was_replaced(
    tiny_wan: Any, tiny_transformer: Callable[[int], WanTransformer3DModel]
) -> None:
    acceleration = galaxydit.accelerate(tiny_wan.pipe, config=OFTEN)
    tiny_wan.run()
    tiny_wan.pipe.transformer = tiny_transformer(2)
    with pytest.warns(FullComputeWarning, match="was replaced"):
        acceleration.remove()
    assert acceleration.report.reused_steps == 6


def test_a_block_inside_the_block_leaves_the_plugin_on(tiny_wan: Any) -> None:
    with galaxydit.accelerate(tiny_wan.pipe, config=OFTEN) as acceleration:
        with acceleration:
            tiny_wan.run()
        tiny_wan.run()
    assert [report.reused_steps for report in acceleration.reports] == [6, 6]
    with pytest.raises(GalaxyDiTError, match="was removed"), acceleration:
        pass


def test_a_pipeline_that_shares_the_text_encoder_runs_though_a_transformer_was_replaced(
    tiny_wan: Any, tiny_transformer: Callable[[int], WanTransformer3DModel]
) -> None:
    other = WanPipeline(**(tiny_wan.pipe.components | {"transformer": tiny_transformer(2)}))
    with galaxydit.accelerate(tiny_wan.pipe, config=OFTEN):
        tiny_wan.pipe.transformer = tiny_transformer(2)
        with pytest.warns(FullComputeWarning, match="was replaced"):
            other("a cat", height=32, width=32, num_frames=5, num_inference_steps=2, output_type="latent")


def test_a_replaced_transformer_is_warned_of_where_the_text_is_encoded_beforehand(
    tiny_wan: Any, tiny_transformer: Callable[[int], WanTransformer3DModel]
) -> None:
    texts = torch.randn(2, 1, 16, tiny_wan.pipe.transformer.config.text_dim)
    with galaxydit.accelerate(tiny_wan.pipe, config=OFTEN):
        tiny_wan.pipe.transformer = tiny_transformer(2)
        given = {"prompt": None, "prompt_embeds": texts[0], "negative_prompt_embeds": texts[1], "output_type": "np"}
        with pytest.warns(FullComputeWarning, match="was replaced"):
            tiny_wan.run(**given)


def test_a_wrapper_around_the_transformer_does_not_replace_it(tiny_wan: Any) -> None:
    with galaxydit.accelerate(tiny_wan.pipe, config=OFTEN) as acceleration:
        tiny_wan.pipe.transformer = torch.compile(tiny_wan.pipe.transformer, backend="eager")
        tiny_wan.run()
    assert acceleration.report.reused_steps == 6


def test_a_removed_handle_cannot_be_entered_again(tiny_wan: Any) -> None:
    with galaxydit.accelerate(tiny_wan.pipe, config=OFTEN) as acceleration:
        pass
    with pytest.raises(GalaxyDiTError, match=r"call accelerate\(\) again"), acceleration:
        pass


@pytest.mark.parametrize("is_named", [True, False], ids=["named scheduler", "unknown scheduler"])
def test_an_aborted_pipeline_on_the_same_transformer_leaves_nothing_to_another(tiny_wan: Any, is_named: bool) -> None:
    """Both have the same text tensors, and the one goes on with the step after the last of the other."""
    other = WanPipeline(
        **(
            tiny_wan.pipe.components
            | {"scheduler": type(tiny_wan.pipe.scheduler).from_config(tiny_wan.pipe.scheduler.config)}
        )
    )
    other.set_progress_bar_config(disable=True)
    text, negative = tiny_wan.pipe.encode_prompt("a red ball", "", True, 1, max_sequence_length=16)
    shared = {"prompt": None, "prompt_embeds": text, "negative_prompt_embeds": negative}

    def stop(pipe: Any, step: int, timestep: Any, tensors: Any) -> Any:
        if step == 5:
            raise InterruptedError
        return tensors

    def meanwhile(pipe: Any, step: int, timestep: Any, tensors: Any) -> Any:
        if step == 5:
            with pytest.raises(InterruptedError):
                replace(tiny_wan, pipe=other).run(
                    **shared, generator=torch.Generator().manual_seed(7), callback_on_step_end=stop
                )
        return tensors

    schedulers = [other.scheduler] if is_named else []
    with galaxydit.accelerate(tiny_wan.pipe, config=OFTEN, schedulers=schedulers) as acceleration:
        tiny_wan.run(**shared)
        with pytest.warns(galaxydit.FullComputeWarning, match="so (it|the rest of this loop) is computed in full"):
            tiny_wan.run(**shared, callback_on_step_end=meanwhile)
    first, second = (report for report in acceleration.reports if report.calls[0].step == 0 and len(report.calls) > 20)
    assert not any(call.reused for call in second.calls[12:])
    assert [call.reused for call in second.calls[:12]] == [call.reused for call in first.calls[:12]]


def test_a_later_decoding_does_not_count_for_a_finished_video(tiny_wan: Any) -> None:
    with galaxydit.accelerate(tiny_wan.pipe, config=OFTEN) as acceleration:
        latents = tiny_wan.run()
        tiny_wan.pipe.vae.decode(latents)
        assert acceleration.report.end_to_end_seconds is None


def test_a_text_encoder_may_return_any_object(tiny_wan: Any) -> None:
    class Own(torch.nn.Module):
        def forward(self) -> Any:
            return SimpleNamespace(last_hidden_state=torch.ones(1))

    pipe = WanPipeline(**(tiny_wan.pipe.components | {"text_encoder": Own()}))
    with galaxydit.accelerate(pipe, config=OFTEN):
        assert pipe.text_encoder().last_hidden_state == 1


def test_a_configuration_and_a_request_are_never_both_accepted(tiny_wan: Any) -> None:
    config = GalaxyDiTConfig(Threshold(0.3), keep_last=2)
    for request in ({"speedup": 2.0}, {"threshold": 0.1}, {"proxy": "noisy_latent"}, {"warmup": 0.1}):
        with pytest.raises(GalaxyDiTError, match=f"config is given together with {next(iter(request))}"):
            galaxydit.accelerate(tiny_wan.pipe, config=config, **request)
    with galaxydit.accelerate(tiny_wan.pipe, config=config) as acceleration:
        assert acceleration.config == config
