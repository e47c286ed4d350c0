"""A LoRA, an attention backend, compiled blocks and single files, loaded by name as commands load them."""

from collections.abc import Iterator
from pathlib import Path

import gguf
import peft
import pytest
import torch
from diffusers import WanPipeline
from diffusers.models.attention_dispatch import AttentionBackendName, attention_backend
from diffusers.quantizers.gguf.utils import GGUFParameter
from safetensors.torch import save_file

from galaxydit.errors import GalaxyDiTError
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.settings import GenerationSettings


@pytest.fixture(autouse=True)
def native_attention() -> Iterator[None]:
    """`set_attention_backend` of one model sets that of the process, too."""
    with attention_backend(AttentionBackendName.NATIVE):
        yield


@pytest.fixture
def lora(tiny_wan_pipeline: WanPipeline, tiny_wan_folder: Path, tmp_path: Path) -> Path:
    """A LoRA of the tiny model, whose folder is saved without it."""
    settings = peft.LoraConfig(r=2, target_modules=["to_q", "to_v"], init_lora_weights=False)
    tiny_wan_pipeline.transformer.add_adapter(settings)
    layers = peft.get_peft_model_state_dict(tiny_wan_pipeline.transformer)
    WanPipeline.save_lora_weights(tmp_path / "lora", transformer_lora_layers=layers)
    return tmp_path / "lora" / "pytorch_lora_weights.safetensors"


def test_a_lora_changes_the_video_by_its_file_and_by_its_folder(
    lora: Path, tiny_wan_folder: Path, tiny_settings: GenerationSettings
) -> None:
    plain = load_pipeline(tiny_wan_folder, dtype=torch.float32, device="cpu")
    videos = [generate(plain, "a ball", tiny_settings, 0).frames]
    for name in (lora, lora.parent):
        pipe = load_pipeline(tiny_wan_folder, dtype=torch.float32, device="cpu", lora=str(name))
        videos.append(generate(pipe, "a ball", tiny_settings, 0).frames)
    assert (videos[1] == videos[2]).all()
    assert (videos[0] != videos[1]).any()


def test_a_lora_without_peft_names_the_package(tiny_wan_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("galaxydit.pipelines.additions.find_spec", lambda name: None)
    with pytest.raises(GalaxyDiTError, match="pip install peft"):
        load_pipeline(tiny_wan_folder, device="cpu", lora="some/lora")


@pytest.mark.parametrize("content", [b"damaged", None])
def test_a_file_that_is_no_lora_of_the_model_is_refused(content: bytes | None, tiny_wan_folder: Path, tmp_path: Path):
    other = tmp_path / "other.safetensors"
    if content is None:
        save_file({"unet.to_q.lora_A.weight": torch.ones(2, 2), "unet.to_q.lora_B.weight": torch.ones(2, 2)}, other)
    else:
        other.write_bytes(content)
    with pytest.raises(GalaxyDiTError, match=r"lora='.*' is not allowed: expected one .*; pass a LoRA in safetensors"):
        load_pipeline(tiny_wan_folder, device="cpu", lora=str(other))


def test_attention_and_compiled_blocks_are_set(tiny_wan_folder: Path) -> None:
    pipe = load_pipeline(tiny_wan_folder, device="cpu", attention="_native_math", compile=True)
    block = pipe.transformer.blocks[0]
    assert block.attn1.processor._attention_backend == "_native_math"
    assert block._compiled_call_impl is not None


@pytest.mark.parametrize("backend", ["flash_hub", "fast", "flash"])
def test_attention_that_cannot_run_and_kernels_of_the_hub_are_refused(backend: str, tiny_wan_folder: Path) -> None:
    with pytest.raises(GalaxyDiTError, match=f"attention='{backend}' is not allowed: expected"):
        load_pipeline(tiny_wan_folder, device="cpu", attention=backend)


def test_a_single_file_gives_the_pipeline_of_its_base(
    tiny_wan_pipeline: WanPipeline, tiny_wan_folder: Path, tmp_path: Path
) -> None:
    weights = {name: value + 1 for name, value in tiny_wan_pipeline.transformer.state_dict().items()}
    save_file(weights, tmp_path / "tuned.safetensors")
    pipe = load_pipeline(tmp_path / "tuned.safetensors", base=tiny_wan_folder, dtype=torch.float32, device="cpu")
    assert type(pipe) is WanPipeline
    for name, value in pipe.transformer.state_dict().items():
        torch.testing.assert_close(value, weights[name], rtol=0, atol=0)


def test_weights_of_a_gguf_file_stay_quantised(
    tiny_wan_pipeline: WanPipeline, tiny_wan_folder: Path, tiny_settings: GenerationSettings, tmp_path: Path
) -> None:
    path = tmp_path / "wan-q8.gguf"
    writer = gguf.GGUFWriter(path, arch="wan")
    q8 = gguf.GGMLQuantizationType.Q8_0
    for name, value in tiny_wan_pipeline.transformer.state_dict().items():
        if name.startswith("blocks") and value.ndim == 2 and value.shape[1] % 32 == 0:
            writer.add_tensor(name, gguf.quants.quantize(value.numpy(), q8), raw_dtype=q8)
        else:
            writer.add_tensor(name, value.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    pipe = load_pipeline(path, base=tiny_wan_folder, dtype=torch.float32, device="cpu")
    assert isinstance(pipe.transformer.blocks[0].ffn.net[2].weight, GGUFParameter)
    video = generate(pipe, "a ball", tiny_settings, 0).frames
    plain = generate(tiny_wan_pipeline, "a ball", tiny_settings, 0).frames
    assert 0 < abs(video - plain).mean() < 0.02


def test_one_file_of_a_model_with_two_transformers_is_refused(
    tiny_wan_pipeline: WanPipeline, tiny_wan_folder: Path, tmp_path: Path
) -> None:
    save_file({"x": torch.ones(1)}, tmp_path / "x.safetensors")
    index = tiny_wan_folder / "model_index.json"
    text = index.read_text().replace(
        '"transformer_2": [\n    null,\n    null', '"transformer_2": [\n    "diffusers",\n    "W"'
    )
    assert text != index.read_text()
    (tiny_wan_folder / "transformer_2").mkdir()
    index.write_text(text)
    with pytest.raises(
        GalaxyDiTError, match=r"expected a model with one transformer.*; load the files with from_single"
    ):
        load_pipeline(tmp_path / "x.safetensors", base=tiny_wan_folder, device="cpu")
