from pathlib import Path

import huggingface_hub.constants
import pytest
import torch
from diffusers import WanPipeline
from huggingface_hub.errors import RemoteEntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError

from galaxydit.pipelines import loading, model_names
from galaxydit.pipelines.loading import load_pipeline

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


def test_an_unknown_name_is_answered_with_what_is_allowed():
    with pytest.raises(ValueError, match=r"'wan-tinny', allowed are wan-tiny, an existing folder .* or a hub id"):
        load_pipeline("wan-tinny")


@pytest.mark.parametrize("name", ["/no/such/folder", "./nowhere", "a/b/c", "../up"])
def test_a_folder_that_does_not_exist_is_not_taken_for_a_hub_id(name: str):
    with pytest.raises(ValueError, match="an existing folder"):
        load_pipeline(name)


def test_a_folder_without_a_pipeline_is_named(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"there is no model_index.json in .*; write the folder with save_pret"):
        load_pipeline(tmp_path)


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


def test_the_package_itself_offers_load_pipeline() -> None:
    import galaxydit.pipelines
    from galaxydit.pipelines import load_pipeline as offered

    assert offered is load_pipeline
    with pytest.raises(AttributeError, match="no attribute 'load_video'"):
        _ = galaxydit.pipelines.load_video
