from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import WanPipeline

from galaxydit.calibration.calibration import Calibration
from galaxydit.calibration.html_report import write_report
from galaxydit.calibration.profile_tables import redundancy_table
from galaxydit.calibration.redundancy import Redundancy, measure_redundancy
from galaxydit.pipelines.settings import GenerationSettings

PROMPT = "a red ball moves left over a plain background"


@pytest.fixture
def measured(tiny_wan_pipeline: WanPipeline, settings: GenerationSettings) -> Redundancy:
    return measure_redundancy(tiny_wan_pipeline, PROMPT, settings, 3)


def test_changes_are_those_of_the_outputs_of_each_block_in_each_branch(
    measured: Redundancy, tiny_wan_pipeline: WanPipeline, settings: GenerationSettings
) -> None:
    outputs: list[torch.Tensor] = []
    hook = tiny_wan_pipeline.transformer.blocks[1].register_forward_hook(
        lambda module, inputs, output: outputs.append(output.flatten(1).float().clone())
    )
    again = measure_redundancy(tiny_wan_pipeline, PROMPT, settings, 3)
    hook.remove()
    for branch in range(2):
        own = outputs[branch::2]
        for step in range(1, settings.steps):
            change = (own[step] - own[step - 1]).abs().mean() / own[step - 1].abs().mean()
            assert again.array[branch, 0, 1, step] == pytest.approx(float(change), rel=1e-4)
    assert np.array_equal(again.array, measured.array)


def test_every_part_of_the_family_has_a_row_and_nothing_is_left_behind(
    measured: Redundancy, tiny_wan_pipeline: WanPipeline
) -> None:
    assert measured.parts == ("block", "self_attention", "cross_attention_norm", "cross_attention", "feed_forward")
    assert measured.branches == ("call 0", "call 1")
    assert not any(module._forward_hooks for module in tiny_wan_pipeline.transformer.modules())


def test_the_share_below_a_limit_counts_blocks_and_steps() -> None:
    changes = ((((0.0, 0.01, 0.3), (0.0, 0.04, 0.02)),),)
    (row,) = redundancy_table(Redundancy(("block",), ("call 0",), changes))
    assert (row["below 0.02"], row["below 0.05"], row["below 0.1"]) == ("25 %", "75 %", "75 %")


def test_the_report_shows_heat_maps_and_numbers(calibration: Calibration, measured: Redundancy, tmp_path: Path) -> None:
    page = write_report(replace(calibration, redundancy=measured), tmp_path)
    assert (tmp_path / "redundancy-of-blocks.png").stat().st_size > 1000
    assert "Redundancy of blocks" in page.read_text()
    assert "self attention, call 1" in page.read_text()
