"""Every video pipeline of the installed diffusers is accepted, or refused by name with the reason."""

import re
from dataclasses import fields
from inspect import signature
from pathlib import Path
from types import SimpleNamespace

import diffusers
import pytest
import torch
from diffusers import Cosmos3OmniTransformer, ParallelConfig
from family_tables import rows_with_pipelines, to_markdown, video_pipelines
from torch import nn

import galaxydit
from galaxydit import GalaxyDiTError
from galaxydit.commands.families_command import unsupported_rows
from galaxydit.families import FAMILIES
from galaxydit.unsupported import UNSUPPORTED

README = (Path(galaxydit.__file__).parent / "README.md").read_text(encoding="utf-8")


def test_every_video_pipeline_is_accepted_or_refused_by_name() -> None:
    pipelines = video_pipelines()
    assert len(pipelines) > 70
    unknown = {
        name: transformers
        for name, transformers in pipelines.items()
        if name not in UNSUPPORTED and not (transformers and transformers <= FAMILIES.keys() | UNSUPPORTED.keys())
    }
    assert not unknown, "add a family to galaxydit/families.py, or the reason against it to galaxydit/unsupported.py"


LOOP_NOT_RUN = {
    "ConsisIDPipeline": "it needs OpenCV; its transformer is CogVideoX's with faces",
    "EasyAnimateControlPipeline": "in diffusers 0.42.1 its own call of encode_prompt fails",
    "SanaWMPipeline": "it renders camera rays for the sizes of its one checkpoint",
    "MiniMaxH3ModularPipeline": "it packs references with a tokenizer of its own",
    "LTX2ModularPipeline": "the loop of LTX2Pipeline with the guiders of LTXModularPipeline",
    "LTX25ModularPipeline": "the same",
    "HeliosPyramidDistilledModularPipeline": "a few steps a stage, all of which are computed",
    "WanModularPipeline": "WanBlocks of test_modular_pipelines.py are this pipeline",
    "WanImage2VideoModularPipeline": "the loop of WanBlocks",
    "Wan22Image2VideoModularPipeline": "the loop of Wan22Blocks",
    "Wan22VaceModularPipeline": "the loop of Wan22Blocks",
}
"""Accepted pipelines that no test runs, and why; the transformer of each is in test_all_families.py."""


def test_every_accepted_pipeline_is_run_by_a_test_or_said_not_to_be() -> None:
    here = Path(__file__)
    tests = "\n".join(path.read_text(encoding="utf-8") for path in here.parent.rglob("*.py") if path != here)
    not_run = {
        name
        for name, transformers in video_pipelines().items()
        if name not in UNSUPPORTED and not transformers <= UNSUPPORTED.keys() and not re.search(rf"\b{name}\b", tests)
    }
    assert not_run == LOOP_NOT_RUN.keys()


def test_nothing_is_refused_that_diffusers_does_not_have() -> None:
    pipelines = video_pipelines()
    known = set(pipelines).union(*pipelines.values())
    assert known >= UNSUPPORTED.keys()
    assert not FAMILIES.keys() & UNSUPPORTED.keys()


def test_no_accepted_pipeline_takes_an_ip_adapter() -> None:
    """As tests/README.md says; a pipeline that takes one needs a test of the combination."""
    accepted = [getattr(diffusers, name) for name in video_pipelines() if name not in UNSUPPORTED]
    assert not [kind.__name__ for kind in accepted if "load_ip_adapter" in dir(kind)]


def test_diffusers_does_not_run_guidance_branches_on_processes_of_their_own() -> None:
    names = {field.name for field in fields(ParallelConfig) if not field.name.startswith("_")}
    assert names == {"context_parallel_config", "tensor_parallel_config"}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_the_reason_is_given(name: str) -> None:
    kind = type(name, (nn.Module if "Transformer" in name else SimpleNamespace,), {})
    with pytest.raises(GalaxyDiTError, match=f"{name} is not supported: it.*; use it without galaxydit"):
        galaxydit.accelerate(kind())


@torch.no_grad()
def test_cosmos3_is_refused_by_the_tensors_and_the_order_that_reuse_would_need() -> None:
    torch.manual_seed(0)
    transformer = Cosmos3OmniTransformer(
        head_dim=6,
        hidden_size=12,
        intermediate_size=24,
        latent_channel=2,
        latent_patch_size=1,
        num_attention_heads=2,
        num_hidden_layers=2,
        num_key_value_heads=1,
        patch_latent_dim=2,
        rope_axes_dim=[1, 1, 1],
        vocab_size=32,
    ).eval()
    with pytest.raises(GalaxyDiTError) as refused:
        galaxydit.accelerate(transformer)
    taken = signature(transformer.forward).parameters
    assert "hidden_states" not in taken
    assert all(name in str(refused.value) for name in taken if name.endswith("_tokens"))
    assert [*signature(transformer.layers[0].forward).parameters][:2] == ["und_seq", "gen_seq"]
    assert "(gen_seq, und_seq)" in str(refused.value)

    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    transformer.layers[-1].register_forward_hook(lambda module, inputs, output: seen.append(output))
    layout = {"text_indexes": torch.arange(2), "position_ids": torch.zeros((3, 6), dtype=torch.long), "und_len": 2}
    layout |= {"sequence_length": 6, "vision_token_shapes": [(1, 2, 2)], "vision_sequence_indexes": torch.arange(2, 6)}
    layout |= {"vision_mse_loss_indexes": torch.arange(2, 6), "vision_noisy_frame_indexes": [torch.tensor([0])]}
    for time in (900.0, 100.0):
        noise = {"vision_tokens": [torch.randn(1, 2, 1, 2, 2)], "vision_timesteps": torch.full((4,), time)}
        predictions = transformer(torch.tensor([1, 2]), **layout, **noise, return_dict=False)
    assert isinstance(predictions[0], list)
    (first_text, first), (second_text, second) = seen
    assert torch.equal(first_text, second_text), "a cache that follows it would never compute again"
    assert not torch.equal(first, second)


def test_a_pipeline_with_a_u_net_is_refused_with_the_reason() -> None:
    with pytest.raises(GalaxyDiTError, match="SimpleNamespace is not supported: its denoiser is a U-Net"):
        galaxydit.accelerate(SimpleNamespace(unet=nn.Module()))


def test_the_readme_has_the_tables_of_the_installed_diffusers() -> None:
    assert to_markdown(rows_with_pipelines()) in README
    assert to_markdown(unsupported_rows()) in README
