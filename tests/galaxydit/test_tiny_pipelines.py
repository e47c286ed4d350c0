"""Whole pipelines of the other families: what their own loops hand to the transformer, with a stand-in for the VAE."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from tiny_parts import OFTEN, REUSED, SIZE, Tiny, embedding, masks, texts
from tiny_table import PIPELINES

import galaxydit
from galaxydit.runtime.recognition import transformers_of
from galaxydit.schedulers import draws_noise


@pytest.fixture(params=PIPELINES)
def tiny(request: pytest.FixtureRequest) -> Tiny:
    return PIPELINES[request.param]


def test_every_step_of_a_pipeline_is_computed_or_reused_as_decided(tiny: Tiny) -> None:
    pipe, run = tiny.build()
    plain = run()
    with pytest.warns(galaxydit.NoEffectWarning):
        unchanged = galaxydit.accelerate(pipe, threshold=0)
    with unchanged:
        assert torch.equal(run(), plain)
    assert unchanged.report.compute_fraction == 1.0
    with galaxydit.accelerate(pipe, config=OFTEN) as acceleration:
        reused = run()
    (report,) = acceleration.reports
    assert [(call.step, call.branch, call.reused) for call in report.calls] == [
        (step, branch, step in REUSED) for step in range(12) for branch in tiny.branches
    ]
    sigmas = [call.sigma for call in report.calls[:: len(tiny.branches)]]
    assert sigmas == sorted(sigmas, reverse=True)
    assert [note for note in report.notes if "draws noise" not in note] == []
    assert bool(report.notes) is draws_noise(pipe.scheduler)
    assert reused.isfinite().all()
    assert not torch.equal(reused, plain)
    registries = [module._diffusers_hook for module in pipe.transformer.modules() if hasattr(module, "_diffusers_hook")]
    assert not [hook for registry in registries for hook in registry.hooks]
    assert torch.equal(run(), plain)


def test_the_transformer_alone_is_found_whatever_its_name(tiny: Tiny) -> None:
    pipe, _ = tiny.build()
    transformer = pipe.transformer
    assert transformers_of(pipe) == {"transformer": transformer}
    pipe.transformer, pipe.denoiser = None, transformer
    pipe.denoiser.__class__ = type("Own", (type(transformer),), {})
    assert transformers_of(pipe) == {"denoiser": transformer}


def test_a_pipeline_gets_the_speedup_that_is_asked_for(tiny: Tiny) -> None:
    pipe, run = tiny.build()
    with galaxydit.accelerate(pipe, speedup=2.0) as acceleration:
        run(steps=20)
    assert 1 / acceleration.report.compute_fraction == pytest.approx(2.0, rel=0.05)


@pytest.mark.parametrize("name", ["Mochi", "CogVideoX image", "LTX image"])
def test_a_context_that_states_the_timestep_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the pipelines of diffusers' main do; those of 0.42 state the name alone."""
    pipe, run = PIPELINES[name].build()
    with galaxydit.accelerate(pipe, config=OFTEN) as acceleration:
        expected = run()
        context = pipe.transformer.cache_context
        stated = []

        def cache_context(name: str) -> Any:
            stated.append(float(pipe.current_timestep))
            return context(name, timestep=pipe.current_timestep)

        monkeypatch.setattr(pipe.transformer, "cache_context", cache_context)
        assert torch.equal(run(), expected)
    assert len(set(stated)) == 12, "every step states its own"
    first, second = acceleration.reports
    assert second.calls == first.calls
    assert second.notes == first.notes


def test_the_second_scale_of_a_video_starts_in_the_middle() -> None:
    """LTX-Video's second pass denoises the enlarged latents again, from half the noise."""
    arguments: dict[str, Any] = texts(latents=embedding(4, 2, 4, 4), denoise_strength=0.5) | masks() | SIZE
    pipe, run = replace(PIPELINES["LTX condition"], arguments=arguments).build()
    plain = run()
    with galaxydit.accelerate(pipe, config=OFTEN) as acceleration:
        assert not torch.equal(run(), plain)
    calls = acceleration.report.calls
    assert [(call.step, call.reused) for call in calls] == [(step, step in (8, 9)) for step in range(6, 12)]
    assert not acceleration.report.notes


@pytest.mark.parametrize("strength", [0.4, 0.5, 0.9])
def test_a_video_that_starts_in_the_middle_gets_the_speedup_that_is_asked_for(strength: float) -> None:
    name = "CogVideoX video"
    pipe, run = replace(PIPELINES[name], arguments=PIPELINES[name].arguments | {"strength": strength}).build()
    with galaxydit.accelerate(pipe, speedup=2.0) as acceleration:
        run(steps=50)
    assert len(acceleration.report.calls) == round(50 * strength)
    assert 1 / acceleration.report.compute_fraction == pytest.approx(2.0, rel=0.05)
