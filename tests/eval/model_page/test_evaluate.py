"""The measuring of the model's page, on a random pipeline that is too small to be good at anything."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from galaxydit.eval.model_page.evaluate import evaluate, findings, reconstruct, table_of
from galaxydit.eval.model_page.evaluation_figures import figures_of
from galaxydit.eval.model_page.observed_blocks import observed_blocks, word_share
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.published_models import WAN_TINY
from galaxydit.pipelines.wan_tiny import world
from galaxydit.pipelines.wan_tiny.tools import drawing

QUICK = replace(WAN_TINY, height=32, width=32, num_frames=9, steps=50)


@pytest.fixture(scope="module")
def rows(tiny_wan_builder, tmp_path_factory):
    out, pipe = tmp_path_factory.mktemp("figures"), tiny_wan_builder()
    for index, caption in enumerate(world.draw_prompts(2, 0)):
        evaluate(pipe, caption, index, index, out, QUICK)
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.glob("*.json"))]


def test_every_caption_has_a_row_with_all_its_clauses(rows):
    for row in rows:
        assert len(row["clauses"]) == len(world.parse_caption(row["caption"]).objects)
        assert set(row["branch_difference"]) == set(row["word_share"]) == {"0", "10", "25", "49"}
        assert all(len(values) == 3 for values in row["branch_difference"].values())  # its blocks


def test_a_row_that_exists_is_not_measured_again(tmp_path):
    path = tmp_path / "caption-00.json"
    path.write_text("{}")
    evaluate(None, world.draw_prompts(1, 0)[0], 0, 0, tmp_path, QUICK)
    assert path.read_text() == "{}"


def test_figures_have_intervals_that_hold_them(rows):
    figures = figures_of(rows)
    assert len({figure.name for figure in figures}) == len(figures)
    for figure in figures:
        if not figure.name.startswith("spread"):  # resampled captions repeat, which lowers a spread
            assert figure.low - 1e-6 <= figure.value <= figure.high + 1e-6
    assert len(table_of(figures).rows) == len(figures)


def test_branches_differ_by_the_text_alone(tiny_wan_pipeline):
    with observed_blocks(tiny_wan_pipeline, [0, 1]) as blocks:
        tiny_wan_pipeline("", "", height=32, width=32, num_frames=5, num_inference_steps=2, output_type="latent")
    assert np.max(list(blocks.branch_difference.values())) == 0
    with observed_blocks(tiny_wan_pipeline, [0, 1]) as blocks:
        generate(tiny_wan_pipeline, world.draw_prompts(1, 0)[0], replace(QUICK, steps=2), seed=0)
    assert np.min(list(blocks.branch_difference.values())) > 0


def test_equal_attention_gives_words_their_number(tiny_wan_pipeline):
    attention = tiny_wan_pipeline.transformer.blocks[0].attn2
    torch.nn.init.zeros_(attention.to_q.weight)
    torch.nn.init.zeros_(attention.to_q.bias)
    text = torch.zeros(1, 8, 32)
    text[:, :2] = torch.randn(1, 2, 32)
    assert word_share(attention, torch.randn(1, 4, 32), text) == pytest.approx(2 / 8)


def test_prompts_are_padded_to_the_512_tokens_that_training_assumed(tiny_wan_pipeline):
    lengths = []
    tiny_wan_pipeline.transformer.register_forward_pre_hook(
        lambda module, inputs, named: lengths.append(named["encoder_hidden_states"].shape[1]), with_kwargs=True
    )
    generate(tiny_wan_pipeline, world.draw_prompts(1, seed=0)[0], replace(QUICK, num_frames=5, steps=2), seed=0)
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


def test_a_drawn_clip_agrees_with_its_caption():
    caption = "a red ball moves up in front of a blue square over a plain background"
    frames = drawing.render(world.parse_caption(caption), np.random.default_rng(0))
    for row in findings(frames, caption):
        assert row["colour_found"]
        assert row["motion_found"]
