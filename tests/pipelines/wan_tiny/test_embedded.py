"""The embedded model, with its trained weights."""

from dataclasses import replace
from pathlib import Path

import torch

from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.model_names import EMBEDDED
from galaxydit.pipelines.published_models import WAN_TINY, recommended_settings
from galaxydit.pipelines.wan_tiny.detect import caption_agreement
from galaxydit.pipelines.wan_tiny.world import draw_prompts


def test_wan_tiny_is_loaded_by_name_in_bfloat16_and_recognised():
    pipe = load_pipeline("wan-tiny", device="cpu")
    assert (pipe.transformer.dtype, pipe.vae.dtype) == (torch.bfloat16, torch.float32)
    assert recommended_settings(pipe) == WAN_TINY


def test_wan_tiny_draws_a_video_and_not_noise():
    """Neighbouring pixels and frames of a video are alike; those of noise are not."""
    pipe = load_pipeline("wan-tiny", device="cpu", dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)
    (prompt,) = draw_prompts(1, seed=0)
    frames = generate(pipe, prompt, replace(WAN_TINY, steps=12), seed=0).frames
    assert frames.shape == (9, 64, 64, 3)
    assert all(each.colour_found for each in caption_agreement(frames, prompt))
    spread = frames.std()
    assert abs(frames[:, :, 1:] - frames[:, :, :-1]).mean() < 0.25 * spread
    assert abs(frames[1:] - frames[:-1]).mean() < 0.5 * spread


def test_weights_are_small_enough_to_live_in_the_repository():
    size = sum(path.stat().st_size for path in Path(EMBEDDED["wan-tiny"]).rglob("*") if path.is_file())
    assert size <= 32 * 2**20
