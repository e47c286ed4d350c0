"""LoRAs, loaded by name as commands load them, reach each transformer, or a warning says which they do not reach."""

import warnings
from pathlib import Path
from types import ModuleType

import pytest
import torch
from diffusers import WanPipeline
from safetensors.torch import load_file, save_file

from galaxydit.errors import DataWarning, GalaxyDiTError
from galaxydit.eval.jobs.jobfile import job_of
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.settings import GenerationSettings


@pytest.fixture
def peft() -> ModuleType:
    return pytest.importorskip("peft", reason="PEFT is not installed: pip install 'galaxydit[lora]'")


@pytest.fixture
def lora(peft: ModuleType, tiny_wan_pipeline: WanPipeline, tiny_wan_folder: Path, tmp_path: Path) -> Path:
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


def test_a_list_of_loras_is_refused_by_the_name_of_the_argument(tiny_wan_folder: Path) -> None:
    with pytest.raises(GalaxyDiTError, match=r"lora_2=.* is not allowed: expected the name of one LoRA"):
        load_pipeline(tiny_wan_folder, device="cpu", lora="a", lora_2=["b"])  # type: ignore[arg-type]


def test_a_folder_with_two_loras_is_refused_because_diffusers_takes_either(lora: Path, tiny_wan_folder: Path) -> None:
    low = lora.with_name("low_noise.safetensors")
    low.write_bytes(lora.read_bytes())
    load_pipeline(tiny_wan_folder, device="cpu", lora=str(lora.parent))  # diffusers takes the one of its own name
    lora.rename(lora.with_name("high_noise.safetensors"))
    with pytest.raises(
        GalaxyDiTError, match=r"not with high_noise.safetensors, low_noise.safetensors; pass a file; two"
    ):
        load_pipeline(tiny_wan_folder, device="cpu", lora=str(lora.parent))


def test_a_lora_without_peft_names_the_package(tiny_wan_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("galaxydit.pipelines.lora.find_spec", lambda name: None)
    with pytest.raises(GalaxyDiTError, match=r"pip install .galaxydit\[lora\]"):
        load_pipeline(tiny_wan_folder, device="cpu", lora="some/lora")


@pytest.mark.usefixtures("peft")
@pytest.mark.parametrize("content", [b"damaged", None])
def test_a_file_that_is_no_lora_of_the_model_is_refused(content: bytes | None, tiny_wan_folder: Path, tmp_path: Path):
    other = tmp_path / "other.safetensors"
    if content is None:
        save_file({"unet.to_q.lora_A.weight": torch.ones(2, 2), "unet.to_q.lora_B.weight": torch.ones(2, 2)}, other)
    else:
        other.write_bytes(content)
    with pytest.raises(GalaxyDiTError, match=r"lora='.*' is not allowed: expected one .*; pass a LoRA in safetensors"):
        load_pipeline(tiny_wan_folder, device="cpu", lora=str(other))


def layers(pipe: WanPipeline) -> dict[str, torch.Tensor]:
    """A weight of the LoRA by transformer."""
    found = {}
    for component in ("transformer", "transformer_2"):
        for name, value in getattr(pipe, component).named_parameters():
            if "blocks.0.attn1.to_q.lora_B" in name:
                found[component] = value
    return found


def test_a_lora_alone_goes_into_both_transformers_with_a_warning_that_names_both(
    lora: Path, two_transformers: Path
) -> None:
    with pytest.warns(DataWarning, match="into transformer and into transformer_2; pass the LoRA of transformer_2 as"):
        pipe = load_pipeline(two_transformers, dtype=torch.float32, device="cpu", lora=str(lora))
    first, second = layers(pipe).values()
    assert torch.equal(first, second)


def test_a_pair_of_loras_goes_into_its_transformers_without_a_warning(
    lora: Path, two_transformers: Path, tmp_path: Path
) -> None:
    save_file({name: 2 * value for name, value in load_file(lora).items()}, tmp_path / "low.safetensors")
    given = {"lora": str(lora), "lora_2": str(tmp_path / "low.safetensors")}
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        pipe = load_pipeline(two_transformers, dtype=torch.float32, device="cpu", **given)
    first, second = layers(pipe).values()
    assert torch.equal(2 * first, second)


def test_a_second_lora_alone_says_that_the_first_transformer_has_none(lora: Path, two_transformers: Path) -> None:
    with pytest.warns(DataWarning, match="transformer has no LoRA"):
        pipe = load_pipeline(two_transformers, dtype=torch.float32, device="cpu", lora_2=str(lora))
    assert [*layers(pipe)] == ["transformer_2"]


def test_a_second_lora_for_one_transformer_is_refused(lora: Path, tiny_wan_folder: Path) -> None:
    with pytest.raises(
        GalaxyDiTError, match=r"lora_2=.* is not allowed: expected None, because WanPipeline has no sec"
    ):
        load_pipeline(tiny_wan_folder, device="cpu", lora=str(lora), lora_2=str(lora))


def test_layers_of_a_lora_that_the_model_lacks_are_named(lora: Path, tiny_wan_folder: Path) -> None:
    weights = load_file(lora)
    for side in "AB":
        value = weights[f"transformer.blocks.0.attn1.to_q.lora_{side}.weight"].clone()
        weights[f"transformer.blocks.0.attn2.add_k_proj.lora_{side}.weight"] = value
        weights[f"transformer_2.blocks.0.attn1.to_q.lora_{side}.weight"] = value.clone()
    save_file(weights, lora)
    with pytest.warns(
        DataWarning, match=r"2 of its \d+ layers are not of transformer: transformer.blocks.0.attn2.add_k"
    ):
        load_pipeline(tiny_wan_folder, device="cpu", lora=str(lora))


@pytest.mark.usefixtures("peft")
def test_changes_of_norms_that_diffusers_drops_are_named_unless_they_are_zero(
    tiny_wan_folder: Path, tmp_path: Path
) -> None:
    layer = "diffusion_model.blocks.0.self_attn"
    weights = {f"{layer}.q.lora_down.weight": torch.ones(2, 32), f"{layer}.q.lora_up.weight": torch.ones(32, 2)}
    weights |= {f"{layer}.norm_q.diff": torch.zeros(32), "diffusion_model.time_projection.1.diff_b": torch.zeros(192)}
    path = tmp_path / "authors.safetensors"
    save_file(weights, path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        load_pipeline(tiny_wan_folder, device="cpu", lora=str(path))
    save_file({name: value + 1 for name, value in weights.items()}, path)
    with pytest.warns(DataWarning, match=r"2 of its tensors are not used by diffusers: .*norm_q.diff, .*1.diff_b"):
        load_pipeline(tiny_wan_folder, device="cpu", lora=str(path))


@pytest.mark.parametrize(
    "part", ["dora_scale", "scale_weight", "weight_scale", "lora_A.weight_scale", "lora_mid.weight", "hada_w1_a"]
)
def test_a_lora_with_tensors_that_diffusers_drops_is_refused(part: str, lora: Path, tiny_wan_folder: Path) -> None:
    save_file(load_file(lora) | {f"transformer.blocks.0.attn1.to_q.{part}": torch.ones(1)}, lora)
    with pytest.raises(GalaxyDiTError, match=f"expected a LoRA without transformer.blocks.0.attn1.to_q.{part}"):
        load_pipeline(tiny_wan_folder, device="cpu", lora=str(lora))


@pytest.mark.parametrize("change", ["half", "bias"])
def test_a_layer_that_peft_leaves_without_values_is_said_of_the_lora(
    change: str, lora: Path, tiny_wan_folder: Path
) -> None:
    tensors = load_file(lora)
    name = "transformer.blocks.0.attn1.to_q.lora_B"
    if change == "half":
        del tensors[f"{name}.weight"]
    else:
        tensors[f"{name}.bias"] = torch.ones(32)
    save_file(tensors, lora)
    with pytest.raises(GalaxyDiTError, match=r"lora=.* both halves of each layer and no biases, unlike blocks\.0"):
        load_pipeline(tiny_wan_folder, device="cpu", lora=str(lora))


@pytest.mark.usefixtures("peft")
def test_a_lora_file_that_is_not_there_is_not_looked_for_on_the_hub(tiny_wan_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(GalaxyDiTError, match=r"lora=.* expected an existing file; check the spelling"):
        load_pipeline(tiny_wan_folder, device="cpu", lora=str(tmp_path / "absent.safetensors"))


def test_jobs_take_a_lora_for_each_transformer_from_their_folder(lora: Path) -> None:
    data = {"model": "wan-tiny", "lora": lora.name, "lora_2": lora.name, "prompts": {"texts": ["a ball"]}}
    job = job_of(data, lora.parent)
    assert job.additions == {"lora": str(lora.resolve()), "lora_2": str(lora.resolve())}
