"""What calibrations get to see."""

import torch
from diffusers import WanPipeline

from galaxydit.eval.compare.rules.full_trajectory import Trajectory, record_all, relative_change
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings


def test_every_step_is_recorded_once_and_the_pipeline_left_as_it_was(
    tiny_wan_pipeline: WanPipeline, settings: GenerationSettings
) -> None:
    (recorded,) = record_all(tiny_wan_pipeline, ["a red ball"], settings, 3)
    assert recorded.steps == settings.steps
    for kept in (*recorded.outputs.values(), recorded.time_embeddings, recorded.time_projections):
        assert len(kept) == settings.steps
    assert set(recorded.outputs) == {"cond", "uncond"}
    assert recorded.guidance_scale == settings.guidance_scale
    assert torch.equal(recorded.final, generate(tiny_wan_pipeline, "a red ball", settings, 3).latents)
    changes = [relative_change(*recorded.time_embeddings[i - 1 : i + 1]) for i in range(1, recorded.steps)]
    assert min(changes) > 0


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
    (recorded,) = record_all(tiny_wan_pipeline, ["a red ball"], settings, 3)
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
    assert Trajectory(outputs=branches, guidance_scale=6.0).guided(0).item() == 7.0
    assert Trajectory(outputs={"cond": branches["cond"]}, guidance_scale=6.0).guided(0).item() == 2.0
