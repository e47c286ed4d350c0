import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import huggingface_hub.constants
import pytest
import torch
from diffusers import (
    FlowMatchEulerDiscreteScheduler,
    FlowMatchHeunDiscreteScheduler,
    UniPCMultistepScheduler,
    WanPipeline,
    WanTransformer3DModel,
)
from huggingface_hub.errors import RemoteEntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError

from galaxydit.errors import GalaxyDiTError
from galaxydit.pipelines import loading, model_names
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.published_models import CHECKPOINTS, recommended_settings

HUB_ID = "Wan-AI/Wan2.1-T2V-1.3B-Diffusers"


def test_a_folder_gives_the_pipeline_that_was_saved(tiny_wan_pipeline: WanPipeline, tiny_wan_folder: Path):
    pipe = load_pipeline(tiny_wan_folder, dtype=torch.float32, device="cpu")
    assert type(pipe) is WanPipeline
    loaded = pipe.transformer.state_dict()
    for name, value in tiny_wan_pipeline.transformer.state_dict().items():
        torch.testing.assert_close(loaded[name], value, rtol=0, atol=0)


def test_by_default_only_the_autoencoder_stays_in_float32(tiny_wan_folder: Path):
    pipe = load_pipeline(tiny_wan_folder, device="cpu")
    assert (pipe.transformer.dtype, pipe.text_encoder.dtype, pipe.vae.dtype) == (
        torch.bfloat16,
        torch.bfloat16,
        torch.float32,
    )


def test_the_embedded_model_is_loaded_by_its_name(tiny_wan_folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(model_names.EMBEDDED, "wan-tiny", tiny_wan_folder)
    pipe = load_pipeline("wan-tiny")
    assert (type(pipe), pipe.transformer.dtype) == (WanPipeline, torch.bfloat16)


def test_a_published_model_is_loaded_as_its_makers_run_it(
    tiny_wan_pipeline: WanPipeline, tiny_wan_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    asked = []

    def from_pretrained(source: str, **given: object) -> WanPipeline:
        asked.append((source, given))
        return tiny_wan_pipeline

    monkeypatch.setattr(loading, "_download_index", lambda name, revision: tiny_wan_folder / model_names.INDEX)
    monkeypatch.setattr(loading.DiffusionPipeline, "from_pretrained", from_pretrained)
    monkeypatch.setattr(loading.DiffusionPipeline, "download", lambda *_, **__: str(tiny_wan_folder))
    pipe = load_pipeline("wan2.1-t2v-1.3b", device="cpu")
    dtypes = {"default": torch.bfloat16, "vae": torch.float32}
    assert asked == [(HUB_ID, {"dtype": dtypes, "revision": None})]
    assert (type(pipe.scheduler), pipe.scheduler.config.flow_shift) == (UniPCMultistepScheduler, 8.0)
    load_pipeline("cogvideox-2b", device="cpu", dtype=torch.bfloat16)
    source, given = asked[-1]
    assert (source, given["dtype"]["default"]) == ("THUDM/CogVideoX-2b", torch.bfloat16)


def test_the_transformer_and_the_scheduler_are_those_that_the_recipe_names(
    tiny_wan_folder: Path, tiny_transformer: Callable[[int], WanTransformer3DModel], monkeypatch: pytest.MonkeyPatch
):
    """LTX-2.5's repository has a full transformer beside the distilled one of its index."""
    tiny_transformer(2).save_pretrained(tiny_wan_folder / "transformer_full")
    shifted = CHECKPOINTS["ltx-2.5"].scheduler
    recipe = replace(CHECKPOINTS["ltx-2.5"], hub_id=str(tiny_wan_folder), scheduler={"flow_shift": 2.0})
    monkeypatch.setitem(CHECKPOINTS, "ltx-2.5", recipe)
    monkeypatch.setattr(loading, "_download_index", lambda *_: tiny_wan_folder / model_names.INDEX)
    asked = []
    monkeypatch.setattr(loading, "_download", lambda *given: asked.append(given[-1]) or tiny_wan_folder)
    pipe = load_pipeline("ltx-2.5", device="cpu")
    assert pipe.transformer.config.num_layers == 2
    assert pipe.scheduler.config.flow_shift == 2.0
    assert asked == [{"transformer": None}], "the distilled one is not fetched"
    assert FlowMatchEulerDiscreteScheduler.from_config({}, **shifted).config.shift_terminal == 0.1


@pytest.mark.parametrize("name", ["wan2.1-t2v-1.3b", HUB_ID])
def test_a_revision_is_asked_of_the_hub(
    name: str, tiny_wan_pipeline: WanPipeline, tiny_wan_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    asked = []

    def download(source: str, file: str, revision: str | None) -> str:
        asked.append((source, revision))
        return str(tiny_wan_folder / file)

    def from_pretrained(source: str, revision: str | None, **_: object) -> WanPipeline:
        asked.append((source, revision))
        return tiny_wan_pipeline

    monkeypatch.setattr(loading, "hf_hub_download", download)
    monkeypatch.setattr(loading.DiffusionPipeline, "from_pretrained", from_pretrained)
    monkeypatch.setattr(loading.DiffusionPipeline, "download", lambda *_, **__: str(tiny_wan_folder))
    load_pipeline(name, device="cpu", revision="refs/pr/1")
    assert asked == [(HUB_ID, "refs/pr/1")] * 2
    pinned = replace(CHECKPOINTS["wan2.1-t2v-1.3b"], revision="0fad780")
    monkeypatch.setitem(CHECKPOINTS, "wan2.1-t2v-1.3b", pinned)
    load_pipeline("wan2.1-t2v-1.3b", device="cpu")
    load_pipeline("wan2.1-t2v-1.3b", device="cpu", revision="main")
    assert [revision for _, revision in asked[2:]] == ["0fad780"] * 2 + ["main"] * 2


@pytest.mark.parametrize("offload", ["model", "group", "sequential"])
def test_an_offloaded_pipeline_makes_the_same_video(tiny_wan_folder: Path, offload: loading.Offload):
    size = {"height": 32, "width": 32, "num_frames": 5, "num_inference_steps": 2, "max_sequence_length": 16}

    def run(pipe: WanPipeline) -> torch.Tensor:
        return pipe("a ball", **size, output_type="latent", generator=torch.Generator().manual_seed(0)).frames

    expected = run(load_pipeline(tiny_wan_folder, device="cpu"))
    pipe = load_pipeline(tiny_wan_folder, device="cpu", offload=offload)
    assert torch.equal(run(pipe), expected)
    hooked = [module for module in pipe.transformer.modules() if {"_hf_hook", "_diffusers_hook"} & vars(module).keys()]
    assert hooked


def test_an_offload_of_another_kind_is_refused(tiny_wan_folder: Path):
    with pytest.raises(
        ValueError, match="offload='disk' is not allowed: expected one of 'none', 'model', 'sequential', 'group'"
    ):
        load_pipeline(tiny_wan_folder, offload="disk")


@pytest.mark.parametrize("sharded", [False, True])
def test_weights_that_exist_in_fp16_alone_are_loaded_with_a_word(
    sharded: bool, tiny_wan_pipeline: WanPipeline, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    tiny_wan_pipeline.save_pretrained(tmp_path, variant="fp16", max_shard_size=20_000 if sharded else "10GB")
    shards = list((tmp_path / "transformer").glob("*.fp16-*.safetensors"))
    assert (len(shards) > 1) == sharded
    pipe = load_pipeline(tmp_path, dtype=torch.float32, device="cpu")
    for name, value in tiny_wan_pipeline.transformer.state_dict().items():
        torch.testing.assert_close(pipe.transformer.state_dict()[name], value, rtol=0, atol=0)
    assert "has its weights in fp16 alone, so these are loaded" in caplog.text


def test_plain_weights_are_taken_where_fp16_is_beside_them(
    tiny_wan_pipeline: WanPipeline, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    tiny_wan_pipeline.save_pretrained(tmp_path)
    halved = tmp_path / "transformer" / "diffusion_pytorch_model.fp16.safetensors"
    halved.write_bytes(b"damaged")
    load_pipeline(tmp_path, device="cpu")
    assert "fp16" not in caplog.text


def test_weights_of_a_hub_model_are_downloaded_in_fp16_where_it_has_no_others(
    tiny_wan_pipeline: WanPipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    tiny_wan_pipeline.save_pretrained(tmp_path / "fp16", variant="fp16")
    tiny_wan_pipeline.scheduler.save_pretrained(tmp_path / "plain" / "scheduler")
    asked = []

    def download(source: str, revision: str | None, variant: str | None = None) -> str:
        asked.append(variant)
        return str(tmp_path / (variant or "plain"))

    original = loading.DiffusionPipeline.from_pretrained
    monkeypatch.setattr(loading, "_download_index", lambda *_: tmp_path / "fp16" / model_names.INDEX)
    monkeypatch.setattr(loading.DiffusionPipeline, "download", download)
    monkeypatch.setattr(
        loading.DiffusionPipeline, "from_pretrained", lambda source, **given: original(tmp_path / "fp16", **given)
    )
    assert isinstance(load_pipeline("someone/fp16-only", device="cpu"), WanPipeline)
    assert asked == [None, "fp16"]


@pytest.mark.parametrize("name", ["wan.safetensors", "models/wan.gguf", "/models/wan.gguf"])
def test_a_single_file_needs_the_model_of_the_other_parts(name: str):
    with pytest.raises(GalaxyDiTError, match=r"base=None is not allowed: expected the model that .*; pass .*--base"):
        load_pipeline(name)
    with pytest.raises(FileNotFoundError, match=f"model '{name}' is no file"):
        load_pipeline(name, base="wan-tiny")


def test_a_base_is_for_single_files_and_a_pickle_is_refused():
    with pytest.raises(GalaxyDiTError, match=r"base='wan-tiny' is not allowed: expected None"):
        load_pipeline("wan-tiny", base="wan-tiny")
    with pytest.raises(GalaxyDiTError, match=r"model='wan.ckpt' is not allowed: .*; convert it to safetensors"):
        load_pipeline("wan.ckpt", base="wan-tiny")


def test_an_unknown_name_is_answered_with_what_is_allowed():
    with pytest.raises(
        GalaxyDiTError,
        match=r"'wan-tinny' is not allowed: expected one of wan-tiny, .* or a hub id.*mean 'wan-tiny'\?",
    ):
        load_pipeline("wan-tinny")


@pytest.mark.parametrize("name", ["/no/such/folder", "./nowhere", "a/b/c", "../up"])
def test_a_folder_that_does_not_exist_is_not_taken_for_a_hub_id(name: str):
    with pytest.raises(ValueError, match="an existing folder"):
        load_pipeline(name)


def test_a_folder_without_a_pipeline_is_named(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"there is no model_index.json in .*; write the folder with save_pret"):
        load_pipeline(tmp_path)


def test_a_pipeline_that_diffusers_does_not_have_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model_index.json").write_text('{"_class_name": "NoSuchPipeline"}')
    with pytest.raises(GalaxyDiTError, match=r"expected a pipeline that diffusers .* can load \(.*NoSuchPipeline\)"):
        load_pipeline(tmp_path)


@pytest.mark.parametrize(
    "part", ["transformer/diffusion_pytorch_model", "vae/diffusion_pytorch_model", "text_encoder/model"]
)
def test_weights_that_were_copied_by_half_are_refused(tiny_wan_folder: Path, part: str) -> None:
    weights = tiny_wan_folder / f"{part}.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises((GalaxyDiTError, OSError), match=r"can load|Unable to load weights"):
        load_pipeline(tiny_wan_folder, device="cpu")


@pytest.mark.parametrize("place", [["_attn_implementation"], ["text_config", "attn_implementation"]])
def test_a_configuration_that_names_code_of_the_hub_is_refused(tiny_wan_folder: Path, place: list[str]) -> None:
    config = tiny_wan_folder / "text_encoder" / "config.json"
    value: object = "someone/kernels"
    for key in reversed(place):
        value = {key: value}
    config.write_text(json.dumps(json.loads(config.read_text()) | value))
    with pytest.raises(GalaxyDiTError, match=rf"text_encoder\.{'.'.join(place)}='someone/kernels' is not allowed"):
        load_pipeline(tiny_wan_folder, device="cpu")


class Command:
    """Pickled, a command that is run by whoever loads it."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self.marker}",)


def test_weights_that_hold_code_are_refused_and_not_run(tiny_wan_folder: Path, tmp_path: Path) -> None:
    (tiny_wan_folder / "text_encoder" / "model.safetensors").unlink()
    torch.save({"shared.weight": Command(tmp_path / "run")}, tiny_wan_folder / "text_encoder" / "pytorch_model.bin")
    with pytest.raises((GalaxyDiTError, OSError), match=r"can load|text_encoder"):
        load_pipeline(tiny_wan_folder, device="cpu")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("content", ["[" * 100_000, "{}", '{"num_attention_heads": 0}'])
def test_configurations_that_make_no_model_are_refused(tiny_wan_folder: Path, content: str) -> None:
    config = tiny_wan_folder / "transformer" / "config.json"
    if content == '{"num_attention_heads": 0}':
        content = json.dumps(json.loads(config.read_text()) | json.loads(content))
    config.write_text(content)
    with pytest.raises((GalaxyDiTError, OSError)):
        load_pipeline(tiny_wan_folder, device="cpu")
    assert torch.get_default_dtype() == torch.float32, "what is loaded next would be of another dtype"


def test_weights_that_lack_layers_are_refused(tiny_wan_folder: Path) -> None:
    config = tiny_wan_folder / "transformer" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"num_layers": 5}))
    with pytest.raises(GalaxyDiTError, match=r"expected a pipeline that diffusers .* can load \(.*meta tensor"):
        load_pipeline(tiny_wan_folder, device="cpu")


def test_a_model_that_does_not_fit_into_memory_is_refused_with_offload_as_the_cure(
    tiny_wan_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 26.00 GiB")

    monkeypatch.setattr(loading.DiffusionPipeline, "to", fill)
    with pytest.raises(
        GalaxyDiTError, match=r"model=.* expected one that fits into the memory of cpu .*--offload model"
    ):
        load_pipeline(tiny_wan_folder, device="cpu")


def test_an_unreachable_hub_is_called_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ConnectionError, match=f"{HUB_ID}.* cannot be reached"):
        load_pipeline(HUB_ID)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (RepositoryNotFoundError, "neither a local folder nor a public model"),
        (RevisionNotFoundError, "at revision v9, where the hub has no model_index.json"),
        (RemoteEntryNotFoundError, "at revision v9, where the hub has no model_index.json"),
    ],
)
def test_what_the_hub_does_not_have_is_named(error: type, message: str, monkeypatch: pytest.MonkeyPatch):
    def refuse(*args: object, **kwargs: object) -> str:
        raise error.__new__(error)

    monkeypatch.setattr(loading, "hf_hub_download", refuse)
    with pytest.raises(FileNotFoundError, match=message):
        load_pipeline(HUB_ID, revision="v9")


def test_a_local_copy_of_a_published_model_has_the_flow_shift_of_its_recipe(
    tiny_wan_pipeline: WanPipeline, tiny_transformer: Callable[[int], WanTransformer3DModel], tmp_path: Path
) -> None:
    tiny_wan_pipeline.register_modules(transformer=tiny_transformer(30))  # as many layers as Wan2.1-T2V-1.3B
    tiny_wan_pipeline.scheduler = FlowMatchHeunDiscreteScheduler()
    tiny_wan_pipeline.save_pretrained(tmp_path / "other")
    assert type(load_pipeline(tmp_path / "other", device="cpu").scheduler) is FlowMatchHeunDiscreteScheduler
    shifted = UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0)
    tiny_wan_pipeline.scheduler = shifted
    tiny_wan_pipeline.save_pretrained(tmp_path / "copy")
    pipe = load_pipeline(tmp_path / "copy", device="cpu")
    assert pipe.scheduler.config.flow_shift == recommended_settings(pipe).flow_shift == 8.0
