"""Recorded generations hold what the transformer and the scheduler saw."""

from dataclasses import replace
from itertools import pairwise

import torch
from diffusers import WanPipeline

from galaxydit.eval.methods.trajectory import RecordedSteps, record_each
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings


def test_every_step_is_recorded_once_and_the_pipeline_left_as_it_was(
    tiny_wan_pipeline: WanPipeline, settings: GenerationSettings
) -> None:
    (recorded,) = record_each(tiny_wan_pipeline, ["a red ball"], settings, 3)
    assert recorded.steps == settings.steps
    for kept in (*recorded.outputs.values(), recorded.time_embeddings, recorded.time_projections):
        assert len(kept) == settings.steps
    assert set(recorded.outputs) == {"cond", "uncond"}
    assert recorded.guidance_scale == settings.guidance_scale
    assert torch.equal(recorded.final, generate(tiny_wan_pipeline, "a red ball", settings, 3).latents)
    assert all((after - before).any() for before, after in pairwise(recorded.time_embeddings))


def test_what_is_recorded_is_what_the_transformer_got_and_gave(
    tiny_wan_pipeline: WanPipeline, settings: GenerationSettings
) -> None:
    transformer, into, out, embedded = tiny_wan_pipeline.transformer, [], [], []
    hooks = [
        transformer.register_forward_pre_hook(
            lambda _, args, kwargs: into.append(kwargs["hidden_states"]), with_kwargs=True
        ),
        transformer.register_forward_hook(lambda _, args, output: out.append(output[0])),
        transformer.condition_embedder.register_forward_hook(lambda _, args, output: embedded.append(output[:2])),
    ]
    (recorded,) = record_each(tiny_wan_pipeline, ["a red ball"], settings, 3)
    for hook in hooks:
        hook.remove()
    assert len(out) == 2 * recorded.steps
    for step in range(recorded.steps):
        conditional, unconditional = 2 * step, 2 * step + 1
        assert torch.equal(recorded.latents[step], into[conditional])
        assert torch.equal(recorded.outputs["cond"][step], out[conditional])
        assert torch.equal(recorded.outputs["uncond"][step], out[unconditional])
        assert torch.equal(recorded.time_embeddings[step], embedded[conditional][0])
        assert torch.equal(recorded.time_projections[step], embedded[conditional][1])


def test_guidance_composes_the_branches() -> None:
    branches = {"cond": [torch.tensor([2.0])], "uncond": [torch.tensor([1.0])]}
    assert RecordedSteps(outputs=branches, guidance_scale=6.0).guided(0).item() == 7.0
    assert RecordedSteps(outputs={"cond": branches["cond"]}, guidance_scale=6.0).guided(0).item() == 2.0


def test_a_recording_holds_the_guided_predictions_that_the_scheduler_saw(
    tiny_wan_pipeline: WanPipeline, settings: GenerationSettings
) -> None:
    """Seen from the scheduler's side, independently of the recorder's hooks."""
    seen: list[torch.Tensor] = []
    step = tiny_wan_pipeline.scheduler.step

    def watch(prediction, *args, **kwargs):
        seen.append(prediction.clone())
        return step(prediction, *args, **kwargs)

    tiny_wan_pipeline.scheduler.step = watch
    (found,) = record_each(tiny_wan_pipeline, ["a red ball"], settings, 0)
    torch.testing.assert_close([found.guided(place) for place in range(found.steps)], seen)
    assert found.final.shape == found.latents[0].shape


def test_without_guidance_there_is_one_branch(tiny_wan_pipeline: WanPipeline, settings: GenerationSettings) -> None:
    (found,) = record_each(tiny_wan_pipeline, ["a red ball"], replace(settings, guidance_scale=1.0), 0)
    assert found.steps == settings.steps
    assert {branch: len(kept) for branch, kept in found.outputs.items()} == {"cond": settings.steps}
