from dataclasses import replace

import pytest
from diffusers import WanPipeline

from galaxydit.eval.overhead import Overhead, measure_overhead
from galaxydit.pipelines.settings import GenerationSettings


def test_the_ratio_is_the_median_over_pairs() -> None:
    assert Overhead((1.0, 2.0, 4.0), (1.1, 2.0, 8.0)).ratio == pytest.approx(1.1)


def test_each_prompt_gives_a_pair_in_which_nothing_was_reused(
    tiny_wan_pipeline: WanPipeline, tiny_settings: GenerationSettings
) -> None:
    prompts = ["a red ball orbits over a plain background"] * 2
    overhead = measure_overhead(tiny_wan_pipeline, prompts, replace(tiny_settings, steps=10))
    assert len(overhead.plain) == len(overhead.attached) == 2
    assert min(overhead.plain + overhead.attached) > 0


def test_no_prompts_are_refused(tiny_wan_pipeline: WanPipeline, tiny_settings: GenerationSettings) -> None:
    with pytest.raises(ValueError, match="prompts is empty"):
        measure_overhead(tiny_wan_pipeline, [], tiny_settings)
