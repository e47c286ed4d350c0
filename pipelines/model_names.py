"""What names a model: the embedded one, a published one, a folder, or a Hugging Face hub id. Loads no torch."""

import json
import re
from pathlib import Path

from galaxydit.errors import GalaxyDiTError, refusal
from galaxydit.pipelines.published_models import CHECKPOINTS

EMBEDDED = {"wan-tiny": Path(__file__).parent / "wan_tiny" / "weights"}
INDEX = "model_index.json"


def local_folder(name: str) -> Path | None:
    """The folder of an embedded or a local model; None for one on the hub.

    Raises GalaxyDiTError for a name that is none of them, and FileNotFoundError for a folder without a pipeline.
    """
    if name in EMBEDDED:
        folder, what = EMBEDDED[name], f"the weights of {name}, which belong to this package"
    elif name and Path(name).is_dir():
        folder, what = Path(name), f"model {name!r}"
    elif name in CHECKPOINTS or re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", name):
        return None
    else:
        raise GalaxyDiTError(
            f"model is {name!r}, allowed are {', '.join([*EMBEDDED, *CHECKPOINTS])}, an existing folder written by "
            "save_pretrained, or a hub id such as Wan-AI/Wan2.1-T2V-1.3B-Diffusers: check the spelling"
        )
    if not (folder / INDEX).is_file():
        raise FileNotFoundError(f"{what}: there is no {INDEX} in {folder}; write the folder with save_pretrained")
    _check_index(folder / INDEX)
    return folder


def _check_index(path: Path) -> None:
    """Raise GalaxyDiTError for an index that is damaged, or that names a component whose folder is missing."""
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
        missing = [name for name, kind in index.items() if isinstance(kind, list) and any(kind)]
        missing = [name for name in missing if not (path.parent / name).is_dir()]
        known = "_class_name" in index
    except (ValueError, AttributeError):
        known, missing = False, []
    if not known or missing:
        expected = f"a folder with {', '.join(missing)}" if missing else f"a {INDEX} that names a pipeline"
        raise refusal("model", str(path.parent), expected, "write the folder again with save_pretrained")
