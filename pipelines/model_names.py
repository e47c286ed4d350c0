"""Names of models: embedded (wan-tiny), published (`CHECKPOINTS`), a folder, or a hub id. Loads no torch."""

import json
import re
from pathlib import Path

from galaxydit.errors import GalaxyDiTError, did_you_mean, refusal
from galaxydit.pipelines.published_models import CHECKPOINTS

EMBEDDED = {"wan-tiny": Path(__file__).parent / "wan_tiny" / "weights"}
INDEX = "model_index.json"
SINGLE_FILES = (".safetensors", ".gguf", ".ckpt", ".bin", ".pt", ".pth")


def local_folder(name: str) -> Path | None:
    """The folder of an embedded or local model; None for a published model or a hub id. Never asks the hub.

    Raises GalaxyDiTError for other names and damaged folders, FileNotFoundError for one without a model_index.json.
    """
    if name in EMBEDDED:
        folder, what = EMBEDDED[name], f"the weights of {name}, which belong to this package"
    elif name and Path(name).is_dir():
        folder, what = Path(name), f"model {name!r}"
    elif Path(name).suffix in SINGLE_FILES:
        expected = "a folder of a whole pipeline, because one file holds the weights of a component alone"
        cure = (
            "load the file with from_single_file of its diffusers class (in Python), pass the model to the pipeline's "
        )
        raise refusal("model", name, expected, cure + "from_pretrained, and write a folder with save_pretrained")
    elif name in CHECKPOINTS or re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", name):
        return None
    else:
        names = [*EMBEDDED, *CHECKPOINTS]
        expected = f"one of {', '.join(names)}, an existing folder written by save_pretrained, or a hub id"
        proposal = did_you_mean(name, names) or "; such as Wan-AI/Wan2.1-T2V-1.3B-Diffusers"
        raise GalaxyDiTError(f"model={name!r} is not allowed: expected {expected}{proposal}")
    if not (folder / INDEX).is_file():
        raise FileNotFoundError(f"{what}: there is no {INDEX} in {folder}; write the folder with save_pretrained")
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        parts = [name for name, kind in index.items() if isinstance(kind, list) and any(kind)]
    except (OSError, ValueError, AttributeError, RecursionError):
        index, parts = {}, []
    missing = [name for name in parts if not (folder / name).is_dir()]
    if missing or "_class_name" not in index:
        expected = f"a folder with {', '.join(missing)}" if missing else f"a {INDEX} that names a pipeline"
        raise refusal("model", str(folder), expected, "write the folder again with save_pretrained")
    return folder
