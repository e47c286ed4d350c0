"""Find a video pipeline by name, folder or hub id and load it, unchanged, with diffusers."""

import re
from pathlib import Path

import torch
from diffusers import DiffusionPipeline
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

EMBEDDED = {"wan-tiny": Path(__file__).parent / "wan_tiny" / "weights"}
INDEX = "model_index.json"


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
    if name in EMBEDDED:
        source = str(EMBEDDED[name])
        index = _find_index(EMBEDDED[name], f"the weights of {name}, which belong to this package")
    elif Path(name).is_dir():
        source = name
        index = _find_index(Path(name), f"model {name!r}")
    elif re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", name):
        source = name
        index = _download_index(name, revision)
    else:
        raise ValueError(
            f"model is {name!r}, allowed are {', '.join(EMBEDDED)}, an existing folder written by save_pretrained, "
            "or a hub id such as Wan-AI/Wan2.1-T2V-1.3B-Diffusers: check the spelling"
        )
    dtypes = {"default": dtype or torch.bfloat16}
    if "AutoencoderKLWan" in index.read_text():
        dtypes["vae"] = torch.float32
    pipe = DiffusionPipeline.from_pretrained(source, dtype=dtypes, revision=revision)
    return pipe.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))


def _find_index(folder: Path, what: str) -> Path:
    if not (folder / INDEX).is_file():
        raise FileNotFoundError(f"{what}: there is no {INDEX} in {folder}; write the folder with save_pretrained")
    return folder / INDEX


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
