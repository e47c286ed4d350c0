"""A transformer from one file: all of its tensors are used, or the file is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import WanPipeline
from safetensors.torch import load_file, save_file

from galaxydit.errors import GalaxyDiTError
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.scaled_weights import apply_scales
from galaxydit.pipelines.settings import GenerationSettings

LAYER = "blocks.0.ffn.net.2"


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
    gguf = pytest.importorskip("gguf", reason="gguf is not installed: pip install 'galaxydit[gguf]'")
    from diffusers.quantizers.gguf.utils import GGUFParameter

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


def as_json(description: Any) -> torch.Tensor:
    return torch.tensor([*json.dumps(description).encode()], dtype=torch.uint8)


@pytest.fixture
def load(tiny_wan_pipeline: WanPipeline, tiny_wan_folder: Path, tmp_path: Path) -> Callable[..., WanPipeline]:
    """A function that loads the tiny transformer, with changed tensors, from one file; None removes a tensor."""

    def load(
        changes: dict[str, Any], name_of: Callable[[str], str] = str, metadata: dict[str, str] | None = None
    ) -> WanPipeline:
        weights = tiny_wan_pipeline.transformer.state_dict()
        named = {name_of(name): value for name, value in weights.items()} | changes
        kept = {name: value.contiguous() for name, value in named.items() if value is not None}
        save_file(kept, tmp_path / "file.safetensors", metadata)
        return load_pipeline(tmp_path / "file.safetensors", base=tiny_wan_folder, dtype=torch.float32, device="cpu")

    return load


SCALES = {
    "one number": (torch.tensor(0.5), lambda scale: scale),
    "one number in a list": (torch.tensor([0.5]), lambda scale: scale),
    "rows": (torch.arange(1.0, 33.0), lambda scale: scale[:, None]),
    "rows in a column": (torch.arange(1.0, 33.0)[:, None], lambda scale: scale),
    "blocks": (torch.arange(1.0, 9.0).reshape(2, 4), lambda scale: scale.kron(torch.ones(16, 16))),
    "groups of rows": (torch.rand(32, 4), lambda scale: scale.kron(torch.ones(1, 16))),
    "one cut block of 128": (torch.tensor([[0.5]]), lambda scale: scale),
}


@pytest.mark.parametrize("shape", SCALES)
def test_a_scale_is_that_of_a_weight_of_its_rows_or_of_its_blocks(shape: str) -> None:
    scale, spread = SCALES[shape]
    weight = torch.randn(32, 64).to(torch.float8_e4m3fn)
    weights = {"layer.weight": weight, "layer.weight_scale": scale}
    apply_scales("file.safetensors", weights, torch.float32)
    torch.testing.assert_close(weights, {"layer.weight": weight.float() * spread(scale)})


def test_last_blocks_of_128_may_be_smaller() -> None:
    scale = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    weights = {"layer.weight": torch.ones(130, 200), "layer.weight_scale_inv": scale}
    apply_scales("file.safetensors", weights, torch.float32)
    torch.testing.assert_close(weights["layer.weight"], scale.kron(torch.ones(128, 128))[:130, :200])


AUTHORS_NAMES = (  # in Wan's own files, by those of diffusers
    ("condition_embedder.time_embedder.linear_1", "time_embedding.0"),
    ("condition_embedder.time_embedder.linear_2", "time_embedding.2"),
    ("condition_embedder.text_embedder.linear_1", "text_embedding.0"),
    ("condition_embedder.text_embedder.linear_2", "text_embedding.2"),
    ("condition_embedder.time_proj", "time_projection.1"),
    ("attn1.", "self_attn."),
    ("attn2.", "cross_attn."),
    (".to_out.0.", ".o."),
    (".to_", "."),
    ("proj_out", "head.head"),
    ("ffn.net.0.proj", "ffn.0"),
    ("ffn.net.2", "ffn.2"),
    ("norm2", "norm3"),
)


def authors_name(name: str) -> str:
    name = "head.modulation" if name == "scale_shift_table" else name.replace("scale_shift_table", "modulation")
    for ours, theirs in AUTHORS_NAMES:
        name = name.replace(ours, theirs)
    return name


@pytest.mark.parametrize("of", [authors_name, str])
@pytest.mark.parametrize(
    ("kind", "prefix"), [("scale_weight", ""), ("weight_scale", "model.diffusion_model."), ("weight_scale_inv", "")]
)
def test_quantised_weights_are_multiplied_by_the_scales_beside_them(
    of: Callable[[str], str], kind: str, prefix: str, tiny_wan_pipeline: WanPipeline, load: Any
) -> None:
    plain = tiny_wan_pipeline.transformer.state_dict()
    weight = plain[f"{LAYER}.weight"].to(torch.float8_e4m3fn)
    layer = prefix + of(f"{LAYER}.")
    changes = {
        f"{layer}weight": weight,
        f"{layer}{kind}": torch.tensor(0.5),
        f"{layer}scale_input": torch.ones(()),
        f"{layer}comfy_quant": as_json({"format": "float8_e4m3fn"}),
        f"{prefix}scaled_fp8": torch.empty(0, dtype=torch.float8_e4m3fn),
        "vae.decoder.weight": torch.ones(1),
        "vae.decoder.scale_weight": torch.ones(3),
    }
    loaded = load(changes, lambda name: prefix + of(name)).transformer.state_dict()
    expected = plain | {f"{LAYER}.weight": weight.float() / 2}
    torch.testing.assert_close(dict(loaded), dict(expected), rtol=0, atol=0)


def test_integers_are_multiplied_and_refused_without_a_scale(load: Any) -> None:
    weight = torch.randint(-127, 127, (32, 64), dtype=torch.int8)
    changes = {f"{LAYER}.weight": weight, f"{LAYER}.weight_scale": torch.full((32, 1), 0.01)}
    loaded = load(changes).transformer.state_dict()[f"{LAYER}.weight"]
    torch.testing.assert_close(loaded, weight * 0.01)
    with pytest.raises(GalaxyDiTError, match="is quantised and has no scale beside it"):
        load({f"{LAYER}.weight": weight})


FP8 = torch.ones(32, 64).to(torch.float8_e4m3fn)
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "nvfp4": (
        {
            f"{LAYER}.weight": torch.ones(32, 32, dtype=torch.uint8),
            f"{LAYER}.weight_scale": torch.ones(32, 4).to(torch.float8_e4m3fn),
            f"{LAYER}.weight_scale_2": torch.ones(()),
        },
        "weight_scale",
    ),
    "mxfp8": ({f"{LAYER}.weight": FP8, f"{LAYER}.weight_scale": torch.ones(32, 2, dtype=torch.uint8)}, "weight_scale"),
    "a second scale": (
        {f"{LAYER}.weight": FP8, f"{LAYER}.weight_scale": torch.ones(()), f"{LAYER}.weight_scale_2": torch.ones(())},
        f"{LAYER}.weight_scale_2",
    ),
    "a scale of another shape": ({f"{LAYER}.weight": FP8, f"{LAYER}.scale_weight": torch.ones(5)}, "scale_weight"),
    "a scale without weight": ({"blocks.9.ffn.0.scale_weight": torch.ones(())}, "blocks.9.ffn.0.scale_weight without"),
    "a product without bounds": (
        {f"{LAYER}.weight": torch.full((32, 64), 1e6), f"{LAYER}.scale_weight": torch.tensor(1e38)},
        "weights that are finite in float32",
    ),
    "two scales of one kind": (
        {f"{LAYER}.weight": FP8, f"{LAYER}.scale_weight": torch.ones(()), f"{LAYER}.weight_scale": torch.ones(())},
        "one scale for each weight",
    ),
    "integers without a scale": ({f"{LAYER}.weight": torch.ones(32, 64, dtype=torch.int32)}, "has no scale beside it"),
    "a scale that is no number": ({f"{LAYER}.scale_weight": torch.tensor(torch.nan)}, "finite scales"),
    "one weight without a scale": (
        {f"{LAYER}.weight": FP8, "blocks.0.attn1.to_q.scale_weight": torch.ones(())},
        f"{LAYER}.weight is quantised and has no scale",
    ),
    "a mark without scales": ({f"{LAYER}.weight": FP8, "scaled_fp8": torch.ones(0)}, "has no scale"),
    "a rotated format": ({f"{LAYER}.comfy_quant": as_json({"format": "int8_tensorwise", "convrot": True})}, "convrot"),
    "a packed format": ({f"{LAYER}.comfy_quant": as_json({"format": "nvfp4"})}, "nvfp4"),
    "a description that is none": ({f"{LAYER}.comfy_quant": as_json([])}, "readable description"),
    "a layer too many": ({"blocks.9.ffn.net.2.weight": torch.ones(2)}, "blocks.9.ffn.net.2.weight"),
    "values of NF4": ({f"{LAYER}.weight.absmax": torch.ones(8)}, f"{LAYER}.weight.absmax"),
    "another part": ({"vace_blocks.0.weight": torch.ones(2)}, "vace_blocks.0.weight"),
    "a missing layer": ({f"{LAYER}.weight": None}, f"lacks {LAYER}.weight of the base"),
    "a weight of another shape": (
        {f"{LAYER}.weight": torch.ones(4, 4)},
        r"of \(32, 64\), as in the base, not of \(4, 4",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_tensors_that_the_transformer_would_not_use_or_lacks_are_refused_by_name(case: str, load: Any) -> None:
    changes, named = WRONG[case]
    with pytest.raises(GalaxyDiTError, match=named):
        load(changes)


@pytest.mark.parametrize("prefix", ["", "diffusion_model."])
def test_a_scale_without_the_prefix_of_its_weight_is_refused(prefix: str, load: Any) -> None:
    def in_a_file_of_all_parts(name: str) -> str:
        return f"model.diffusion_model.{name}"

    changes = {
        in_a_file_of_all_parts(f"{LAYER}.weight"): FP8,
        f"{prefix}{LAYER}.scale_weight": torch.tensor(0.5),
        "vae.decoder.scale_weight": torch.ones(3),
    }
    with pytest.raises(GalaxyDiTError, match=f"has {prefix}{LAYER}.scale_weight without"):
        load(changes, in_a_file_of_all_parts)


@pytest.mark.parametrize("companion", ["weight.scale", "scale_inv", "weight.absmax", None])
def test_a_folder_with_other_companions_of_quantised_weights_is_refused(
    companion: str | None, tiny_wan_folder: Path
) -> None:
    (path,) = (tiny_wan_folder / "transformer").glob("*.safetensors")
    named, value = f"{LAYER}.weight", torch.ones(32, 64, dtype=torch.int8)
    changes = {named: value}
    if companion is not None:
        named = f"{LAYER}.{companion}"
        changes = {f"{LAYER}.weight": FP8, named: torch.ones(1)}
    save_file(load_file(path) | changes, path, {"format": "pt"})
    with pytest.raises(GalaxyDiTError, match=f"such as {named} in transformer"):
        load_pipeline(tiny_wan_folder, device="cpu")


def test_formats_in_the_header_of_a_file_are_checked(load: Any) -> None:
    for layers, is_known in (({LAYER: {"format": "float8_e4m3fn"}}, True), ({LAYER: {"format": "mxfp8"}}, False)):
        metadata = {"_quantization_metadata": json.dumps({"layers": layers})}
        if is_known:
            load({}, metadata=metadata)
        else:
            with pytest.raises(GalaxyDiTError, match=f"unlike {LAYER}"):
                load({}, metadata=metadata)


def test_a_folder_with_scales_is_refused(tiny_wan_folder: Path) -> None:
    (path,) = (tiny_wan_folder / "transformer").glob("*.safetensors")
    save_file(load_file(path) | {f"{LAYER}.scale_weight": torch.ones(())}, path, {"format": "pt"})
    with pytest.raises(GalaxyDiTError, match=f"such as {LAYER}.scale_weight in transformer"):
        load_pipeline(tiny_wan_folder, device="cpu")
