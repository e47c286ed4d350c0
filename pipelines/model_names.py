"""What names a model: the embedded one, a published one, a folder, or a Hugging Face hub id. Loads no torch."""

import re
from pathlib import Path

from galaxydit.errors import GalaxyDiTError
from galaxydit.pipelines.settings import CHECKPOINTS

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
    return folder
