"""The plugin steps aside where gradients are recorded: a prediction has none."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from diffusers import WanTransformer3DModel
from torch import Tensor

import galaxydit
from galaxydit import FullComputeWarning, GalaxyDiTConfig, Threshold

STEPS = 12
OFTEN = GalaxyDiTConfig(Threshold(50.0), max_consecutive=2)


def denoise(transformer: WanTransformer3DModel, latents: Tensor, steps: int = STEPS) -> Tensor:
    """A denoising loop by hand without torch.no_grad()."""
    text = torch.randn(1, 8, 128, generator=torch.Generator().manual_seed(1))
    for step in range(steps):
        with transformer.cache_context("cond", step_index=step, num_inference_steps=STEPS, sigma=1 - step / STEPS):
            latents = latents - transformer(latents, torch.tensor([900]), text).sample / STEPS
    return latents


def noise() -> Tensor:
    return torch.randn(1, 16, 2, 4, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("wanted", ["of the weights", "of the latent", "of an adapter"])
@pytest.mark.parametrize("reuse", ["output", "residual"])
def test_gradients_are_those_of_the_plain_model(
    tiny_transformer: Callable[[int], WanTransformer3DModel], wanted: str, reuse: str
) -> None:
    transformer = tiny_transformer(3)
    if wanted == "of an adapter":
        peft = pytest.importorskip("peft")
        transformer.add_adapter(peft.LoraConfig(r=2, target_modules=["to_q"], init_lora_weights=False), "style")
    elif wanted == "of the latent":
        transformer.requires_grad_(False)
    parameters = [one for one in transformer.parameters() if one.requires_grad]

    def gradients() -> list[Tensor]:
        latents = noise().requires_grad_(wanted == "of the latent")
        leaves = [latents] if latents.requires_grad else parameters
        return list(torch.autograd.grad(denoise(transformer, latents).square().sum(), leaves, allow_unused=True))

    plain = gradients()
    config = GalaxyDiTConfig(Threshold(50.0), max_consecutive=2, reuse=reuse)
    with galaxydit.accelerate(transformer, config=config) as acceleration:
        with pytest.warns(FullComputeWarning, match=r"gradients are recorded.*torch.no_grad\(\)"):
            accelerated = gradients()
        report = acceleration.report
        assert report.compute_fraction == 1.0
        assert report.bytes_held == 0, "no tensor is kept of such calls"
    assert len(plain) == len(accelerated) > 0
    for one, other in zip(plain, accelerated, strict=True):
        assert (one is None and other is None) or torch.equal(one, other)


def test_frozen_weights_need_no_torch_no_grad(tiny_transformer: Callable[[int], WanTransformer3DModel]) -> None:
    transformer = tiny_transformer(3).requires_grad_(False)
    with galaxydit.accelerate(transformer, config=OFTEN) as acceleration:
        denoise(transformer, noise())
    assert acceleration.report.reused_steps == 6


def test_reuse_goes_on_after_a_step_that_was_differentiated(
    tiny_transformer: Callable[[int], WanTransformer3DModel],
) -> None:
    """As a loss on one step's prediction does: the steps after it begin without history."""
    transformer = tiny_transformer(3)
    steps: list[Any] = []

    def step(index: int) -> None:
        with transformer.cache_context("cond", step_index=index, num_inference_steps=STEPS, sigma=1 - index / STEPS):
            steps.append(transformer(noise(), torch.tensor([900]), torch.ones(1, 8, 128)).sample)

    with galaxydit.accelerate(transformer, config=OFTEN) as acceleration, torch.no_grad():
        for index in range(STEPS):
            if index == 5:
                with torch.enable_grad(), pytest.warns(FullComputeWarning, match="gradients"):
                    step(index)
            else:
                step(index)
    assert [output.requires_grad for output in steps] == [index == 5 for index in range(STEPS)]
    assert [call.step for report in acceleration.reports for call in report.calls if call.reused] == [3, 4, 7, 8, 10]
