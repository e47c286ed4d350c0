"""Find a video pipeline by name, folder or hub id and load it, unchanged, with diffusers."""

from pathlib import Path

import torch
from diffusers import DiffusionPipeline
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

from galaxydit.pipelines.model_names import INDEX, local_folder


def load_pipeline(
    name_or_path: str | Path,
    *,
    dtype: torch.dtype | None = None,
    device: str | torch.device | None = None,
    revision: str | None = None,
) -> DiffusionPipeline:
    """A plain diffusers pipeline, on its device and ready to call.

    name_or_path: "wan-tiny" (in this package), a folder with a model_index.json, or a hub id such as
        "Wan-AI/Wan2.1-T2V-1.3B-Diffusers".
    dtype: by default bfloat16. The autoencoder of Wan stays in float32, as its makers advise.
    device: by default the GPU if there is one.
    revision: a branch, tag or commit on the hub.

    Raises ValueError for a name that is none of the three, FileNotFoundError for a folder without a pipeline or a model
    that is not on the hub, and ConnectionError if the hub cannot be reached.
    """
    name = str(name_or_path)
    folder = local_folder(name)
    source = name if folder is None else str(folder)
    index = _download_index(name, revision) if folder is None else folder / INDEX
    dtypes = {"default": dtype or torch.bfloat16}
    if "AutoencoderKLWan" in index.read_text():
        dtypes["vae"] = torch.float32
    pipe = DiffusionPipeline.from_pretrained(source, dtype=dtypes, revision=revision)
    return pipe.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))


def _download_index(name: str, revision: str | None) -> Path:
    """Fetched by itself first, because diffusers reports an unreachable hub as a missing file."""
    try:
        return Path(hf_hub_download(name, INDEX, revision=revision))
    except RepositoryNotFoundError as error:
        raise FileNotFoundError(
            f"model is {name!r}, which is neither a local folder nor a public model on the hub: check the spelling, "
            "or log in with `hf auth login` if it is private"
        ) from error
    except LocalEntryNotFoundError as error:
        raise ConnectionError(
            f"model is {name!r}, which is not in the local cache, and the hub cannot be reached: "
            "connect to the internet, or pass a folder that holds the model"
        ) from error
    except HfHubHTTPError as error:
        raise FileNotFoundError(
            f"model is {name!r} at revision {revision or 'main'}, where the hub has no {INDEX}: "
            f"pass a model in diffusers format and one of its revisions ({error})"
        ) from error
