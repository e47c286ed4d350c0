"""What a reused step is expected to take."""

import pytest
from diffusers import WanPipeline

from galaxydit.calibration.costs import measure_seconds, predicted_speedup
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.profiles.schema import Seconds


def test_the_prediction_counts_both_guidance_branches_of_a_reused_step() -> None:
    """A step of two branches with 30 blocks of 10 ms, 50 ms outside the blocks and 20 ms outside the transformer."""
    seconds = Seconds(
        step=2 * (30 * 0.01 + 0.05) + 0.02,
        block=0.01,
        outside_blocks=2 * 0.05,
        outside_transformer=0.02,
        predicted_speedup=(),
        measured_speedup=(),
    )
    reused = 0.02 + 2 * 0.05 / 2
    assert predicted_speedup(seconds, 50, 25) == pytest.approx(50 * 0.72 / (25 * 0.72 + 25 * reused))


def test_what_a_step_does_outside_the_blocks_is_measured_in_both_branches(
    tiny_wan_pipeline: WanPipeline, settings: GenerationSettings, prompts: list[str]
) -> None:
    seconds = measure_seconds(tiny_wan_pipeline, prompts[0], settings, 0)
    in_blocks = 2 * len(tiny_wan_pipeline.transformer.blocks) * seconds.block
    assert seconds.outside_blocks > 0
    assert seconds.step == pytest.approx(in_blocks + seconds.outside_blocks + seconds.outside_transformer)
