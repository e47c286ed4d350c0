"""Every floating-point dtype of a model ends in a video."""

import warnings
from typing import Any

import pytest
import torch

import galaxydit

REQUESTS: dict[str, dict[str, Any]] = {
    "max_error": {"max_error": 9.0},
    "max_error beside a speedup": {"max_error": 9.0, "speedup": 2.0},
    "proxy": {"policy": "proxy"},
    "proxy in l2": {"policy": "proxy", "proxy": "noisy_latent_l2"},
    "schedule": {"speedup": 2.0},
    "threshold": {"threshold": 9.0},
}


@pytest.mark.matrix(
    name=REQUESTS,
    dtype=[torch.float64, torch.float32, torch.bfloat16, torch.float16],
    part=["whole pipeline", "transformer alone"],
)
def test_every_dtype_ends_in_a_video(tiny_wan: Any, name: str, dtype: torch.dtype, part: str) -> None:
    (tiny_wan.pipe if part == "whole pipeline" else tiny_wan.pipe.transformer).to(dtype)
    plain = tiny_wan.run(num_inference_steps=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with galaxydit.accelerate(tiny_wan.pipe, **REQUESTS[name]) as acceleration:
            latents = tiny_wan.run()
    assert acceleration.report.reused_steps > 0
    assert torch.isfinite(latents).all()
    assert latents.dtype == plain.dtype
