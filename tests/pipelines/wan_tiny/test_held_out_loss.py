"""The loss on unseen clips, compared with the shipped weights."""

import pytest
from safetensors.torch import load_file

from galaxydit.pipelines.wan_tiny.tools import build
from galaxydit.pipelines.wan_tiny.tools.held_out_loss import held_out_loss
from galaxydit.pipelines.wan_tiny.tools.training_latents import World


@pytest.fixture(scope="module")
def shipped():
    return load_file(build.SHIPPED / "transformer" / "diffusion_pytorch_model.safetensors")


def test_the_loss_is_the_same_at_each_call_and_rises_with_damaged_weights(shipped):
    loss = held_out_loss(shipped, World.FIRST, clips=2)
    assert held_out_loss(shipped, World.FIRST, clips=2) == loss
    assert 0.05 < loss < 0.8
    damaged = shipped | {"proj_out.weight": shipped["proj_out.weight"] * 0}
    assert held_out_loss(damaged, World.FIRST, clips=2) > 1.5 * loss


def test_the_worlds_differ(shipped):
    first, varied = (held_out_loss(shipped, world, clips=2) for world in World)
    assert first != varied
