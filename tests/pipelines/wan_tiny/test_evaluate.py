"""The measuring of the model card, on a random pipeline that is too small to be good at anything."""

from dataclasses import replace

import numpy as np
import torch

from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.published_models import WAN_TINY
from galaxydit.pipelines.wan_tiny import world
from galaxydit.pipelines.wan_tiny.tools import drawing
from galaxydit.pipelines.wan_tiny.tools import evaluate as evaluation
from galaxydit.pipelines.wan_tiny.tools.evaluate import evaluate, findings, reconstruct

QUICK = replace(WAN_TINY, height=32, width=32, num_frames=9, steps=2)


def test_every_figure_has_a_value_for_each_prompt_or_clause(tiny_wan_pipeline):
    figures = evaluate(tiny_wan_pipeline, 2, settings=QUICK)
    clauses = sum(len(world.parse_caption(prompt).objects) for prompt in world.draw_prompts(2, 0))
    assert len(figures["VAE reconstruction, dB"]) == len(figures["half the steps against all, dB"]) == 2
    assert len(figures["colour agreement"]) == clauses
    assert len(figures["motion agreement"]) + len(figures.get("stillness agreement", [])) == clauses


def test_the_command_shows_means_and_counts(tiny_wan_folder, monkeypatch, capsys):
    monkeypatch.setattr(evaluation, "evaluate", lambda pipe, count, seed: {"half": [1.0, 2.0] * count})
    evaluation.main(tiny_wan_folder, prompts=3)
    assert capsys.readouterr().out.split()[-3:] == ["half", "1.500", "6"]


def test_prompts_are_padded_to_the_512_tokens_that_training_assumed(tiny_wan_pipeline):
    lengths = []
    tiny_wan_pipeline.transformer.register_forward_pre_hook(
        lambda module, inputs, named: lengths.append(named["encoder_hidden_states"].shape[1]), with_kwargs=True
    )
    generate(tiny_wan_pipeline, world.draw_prompts(1, seed=0)[0], replace(QUICK, num_frames=5), seed=0)
    assert set(lengths) == {512}


def test_reconstruction_keeps_shape_and_range(tiny_wan_pipeline):
    _, frames = drawing.draw_clip(0, seed=2, held_out=True)
    rebuilt = reconstruct(tiny_wan_pipeline.vae, frames[:5])
    assert rebuilt.shape == (5, 64, 64, 3)
    assert rebuilt.min() >= 0
    assert rebuilt.max() <= 1


def test_a_perfect_autoencoder_reconstructs_the_clip():
    class Copy:
        device, dtype = torch.device("cpu"), torch.float32

        def encode(self, video):
            self.sample = video
            self.latent_dist = self
            return self

        def mode(self):
            return self.sample

        def decode(self, latents):
            return self

    _, frames = drawing.draw_clip(0, seed=2, held_out=True)
    np.testing.assert_allclose(reconstruct(Copy(), frames), frames, atol=1e-6)


def test_findings_are_split_by_motion():
    caption = "a red ball moves up in front of a blue square over a plain background"
    frames = drawing.render(world.parse_caption(caption), np.random.default_rng(0))
    assert list(findings(frames, caption)) == [
        ("colour agreement", True),
        ("motion agreement", True),
        ("direction agreement", True),
        ("colour agreement", True),
        ("stillness agreement", True),
    ]
