"""What tells the results of one pipeline from those of another."""

import copy
from collections.abc import Callable

import accelerate
import pytest
import torch
from diffusers import WanPipeline

from galaxydit.adapters import adapter_states
from galaxydit.pipelines.conditions import code_identity, conditions_of, without_texts
from galaxydit.pipelines.settings import GenerationSettings


def scale_the_last_feed_forward(pipe: WanPipeline) -> None:
    with torch.no_grad():
        pipe.transformer.blocks[-1].ffn.net[2].weight.mul_(1.01)


def change_a_bias(pipe: WanPipeline) -> None:
    with torch.no_grad():
        pipe.transformer.blocks[1].attn1.to_q.bias.add_(0.01)


def train_the_adapter_anew(pipe: WanPipeline) -> None:
    with torch.no_grad():
        for name, parameter in pipe.transformer.named_parameters():
            if "lora_B" in name:
                parameter.mul_(-3)


@pytest.mark.parametrize(
    "change",
    [
        scale_the_last_feed_forward,
        change_a_bias,
        train_the_adapter_anew,
        lambda pipe: pipe.transformer.set_adapters(["style"], 0.5),
        lambda pipe: pipe.transformer.disable_adapters(),
        lambda pipe: pipe.register_to_config(boundary_ratio=0.9),
        lambda pipe: pipe.vae.decoder.conv_out.weight.data.mul_(1.01),
        lambda pipe: pipe.vae.register_to_config(latents_std=[2.0] * 16),
        lambda pipe: setattr(pipe.text_encoder.config, "num_heads", 1),
        lambda pipe: pipe.tokenizer.add_tokens(["aurora"]),
    ],
)
def test_results_of_a_changed_pipeline_are_told_apart(
    change: Callable[[WanPipeline], object], tiny_wan_pipeline: WanPipeline, tiny_settings: GenerationSettings
) -> None:
    peft = pytest.importorskip("peft")
    settings = peft.LoraConfig(r=2, target_modules=["to_q"], init_lora_weights=False)
    tiny_wan_pipeline.transformer.add_adapter(settings, "style")
    before = conditions_of(tiny_wan_pipeline, tiny_settings)
    assert conditions_of(tiny_wan_pipeline, tiny_settings) == before
    assert adapter_states(tiny_wan_pipeline.transformer)
    change(tiny_wan_pipeline)
    assert conditions_of(tiny_wan_pipeline, tiny_settings) != before


def test_offloading_does_not_change_what_a_model_is(
    tiny_wan_pipeline: WanPipeline, tiny_settings: GenerationSettings
) -> None:
    before = conditions_of(tiny_wan_pipeline, tiny_settings)
    for module in (tiny_wan_pipeline.text_encoder, tiny_wan_pipeline.transformer, tiny_wan_pipeline.vae):
        accelerate.cpu_offload(module, execution_device=torch.device("cpu"))
    assert conditions_of(tiny_wan_pipeline, tiny_settings) == before


def test_weights_in_eight_bits_are_told_apart(
    tiny_wan_pipeline: WanPipeline, tiny_settings: GenerationSettings
) -> None:
    found = []
    for scale in (1.0, 1.5):
        transformer = copy.deepcopy(tiny_wan_pipeline.transformer)
        for name, weights in transformer.named_parameters():
            if "ffn" in name:
                weights.data.mul_(scale)
        transformer.enable_layerwise_casting(torch.float8_e4m3fn, torch.float32)
        pipe = WanPipeline(**(tiny_wan_pipeline.components | {"transformer": transformer}))
        found.append(conditions_of(pipe, tiny_settings))
    assert found[0]["weights"] != found[1]["weights"]


def test_code_is_the_same_with_other_words_and_another_with_other_numbers():
    first = without_texts('"""What it does."""\n\ndef f(x):\n    """Half."""\n    return x / 2\n')
    assert without_texts("def f(x):  # halves\n    return x / 2\n") == first
    assert without_texts("def f(x):\n    return x / 3\n") != first
    one = without_texts("A = 1\n")
    assert without_texts('A = 1\n"""One."""\n') == without_texts('A = 1\n"""A number."""\n') == one
    assert one != without_texts("A = 2\n")


def test_the_identity_of_this_project_is_sixteen_digits():
    assert len(code_identity()) == 16
    assert int(code_identity(), 16) >= 0
