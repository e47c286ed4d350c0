"""The measuring of the model card, on a random pipeline that is too small to be good at anything."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.published_models import WAN_TINY
from galaxydit.pipelines.wan_tiny import world
from galaxydit.pipelines.wan_tiny.tools import drawing
from galaxydit.pipelines.wan_tiny.tools import evaluate as evaluation
from galaxydit.pipelines.wan_tiny.tools.evaluate import Figure, as_table, evaluate, figures_of, reconstruct

QUICK = replace(WAN_TINY, height=32, width=32, num_frames=9, steps=2)


def record(**changes):
    moving = {"motion": "moves up", "colour_found": True, "motion_found": True}
    still = {"motion": "", "colour_found": True, "motion_found": False}
    growing = {"motion": "grows", "colour_found": False, "motion_found": False}
    clauses = {kind: [moving, still, growing] for kind in ("guided", "unguided", "rebuilt")}
    return {"vae_psnr": 33.0, "half_steps_psnr": 25.0} | clauses | changes


def test_every_figure_is_written_with_its_count_target_and_verdict(tiny_wan_folder, tmp_path):
    out = tmp_path / "results" / "evaluation.json"
    figures = evaluate(tiny_wan_folder, 2, out, settings=QUICK)
    result = json.loads(out.read_text())
    written = {figure["name"]: figure for figure in result["figures"]}
    assert list(written) == [figure.name for figure in figures]
    clauses = sum(len(world.parse_caption(prompt).objects) for prompt in world.draw_prompts(2, 0))
    assert written["VAE reconstruction, dB"]["n"] == 2
    assert written["VAE reconstruction, dB"]["holds"] is None
    assert written["colour agreement"]["n"] == written["colour agreement without guidance"]["n"] == clauses
    assert written["colour agreement"]["minimum"] == written["direction agreement"]["minimum"] == 0.85
    assert result["settings"]["steps"] == 2
    assert result["settings"]["guidance_scale"] == 5.0
    assert result["versions"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]  # builds differ


def test_what_was_measured_is_not_measured_again_unless_weights_or_settings_change(
    tiny_wan_folder, tiny_wan_pipeline, tmp_path, monkeypatch
):
    measured, original = [], evaluation.evaluate_prompt

    def counted(pipe, prompt, index, *rest):
        measured.append(index)
        return original(pipe, prompt, index, *rest)

    monkeypatch.setattr(evaluation, "evaluate_prompt", counted)
    out = tmp_path / "evaluation.json"
    evaluate(tiny_wan_folder, 1, out, settings=QUICK)
    evaluate(tiny_wan_folder, 2, out, settings=QUICK)
    assert measured == [0, 1]
    evaluate(tiny_wan_folder, 1, out, settings=replace(QUICK, steps=3))
    with torch.no_grad():
        tiny_wan_pipeline.transformer.proj_out.bias += 1
    tiny_wan_pipeline.save_pretrained(tiny_wan_folder)
    evaluate(tiny_wan_folder, 1, out, settings=QUICK)
    assert measured[2:] == [0, 0]


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


def test_shares_are_over_clauses_and_split_by_motion():
    figures = {figure.name: figure for figure in figures_of([record(), record(vae_psnr=35.0)])}
    assert figures["VAE reconstruction, dB"].value == 34.0
    assert figures["colour agreement"].value == pytest.approx(4 / 6)
    assert (figures["direction agreement"].value, figures["direction agreement"].n) == (1.0, 2)
    assert (figures["motion agreement"].value, figures["motion agreement"].n) == (0.5, 4)
    assert (figures["stillness agreement"].value, figures["stillness agreement"].n) == (0.0, 2)
    assert figures["half the steps against all, dB"].value == 25.0


def test_a_target_holds_from_its_minimum_on():
    assert Figure("x", 0.85, 1, minimum=0.85).holds is True
    assert Figure("x", 0.84, 1, minimum=0.85).holds is False
    assert Figure("x", 1.0, 1).holds is None
    assert Figure("x", None, 0, minimum=0.85).holds is None
    assert (Figure("x", 1.0, 1, 2.0).target, Figure("x", 1.0, 1).target) == (">= 2", "")


def test_the_table_has_a_row_for_each_figure():
    table = as_table([Figure("x", None, 0, minimum=1.0), Figure("y", math.pi, 2, 4.0)])
    assert table.rows == [("x", "-", "0", ">= 1", ""), ("y", "3.142", "2", ">= 4", "NO")]


def test_a_count_below_one_is_refused(tiny_wan_folder, tmp_path):
    with pytest.raises(ValueError, match="count=0 is not allowed"):
        evaluate(tiny_wan_folder, 0, tmp_path / "x.json")
