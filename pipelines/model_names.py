"""Names of models: embedded (wan-tiny), published (`CHECKPOINTS`), a folder, or a hub id. Loads no torch."""

import json
import re
from collections.abc import Iterable
from pathlib import Path

from huggingface_hub import try_to_load_from_cache

from galaxydit.errors import GalaxyDiTError, did_you_mean, refusal
from galaxydit.foreign_text import one_line
from galaxydit.pipelines.published_models import CHECKPOINTS, Checkpoint, checkpoint_of

EMBEDDED = {"wan-tiny": Path(__file__).parent / "wan_tiny" / "weights"}
EXAMPLE_CAPTION = "a red ball moves left over a plain background"
EXAMPLE_PROMPT = "A cat walks on the grass, realistic"
INDEX = "model_index.json"
MODULAR_INDEX = "modular_model_index.json"
UNUSED_PARTS = {"MiniMaxH3ModularPipeline": ("transformer_ref",)}
"""Parts of a modular pipeline that are neither downloaded nor loaded, because no input of this project uses them."""
SINGLE_FILES = (".safetensors", ".gguf")
UNSAFE_FILES = (".ckpt", ".bin", ".pt", ".pth")  # pickles, which can run code


def check_model(name: str, base: str | None) -> None:
    """Raise GalaxyDiTError or FileNotFoundError unless `name` is a model, or a single file of a part of `base`."""
    if Path(name).suffix in UNSAFE_FILES:
        expected = "a .safetensors or .gguf file, because other formats can run code"
        raise refusal("model", name, expected, "convert it to safetensors")
    if Path(name).suffix not in SINGLE_FILES or Path(name).is_dir():
        local_folder(name)
        if base is not None:
            raise refusal("base", base, "None, because the model is no single file", "leave it out")
        return
    if base is None:
        expected = "the model that has all other parts, because one file holds the transformer alone"
        raise refusal("base", None, expected, "pass for example --base wan2.1-t2v-14b (in Python base=)")
    if not Path(name).is_file():
        raise FileNotFoundError(f"model {name!r} is no file: check the spelling; a path starts at {Path.cwd()}")
    local_folder(base)


def local_folder(name: str) -> Path | None:
    """The folder of an embedded or local model; None for a published model or a hub id. Never asks the hub.

    Raises GalaxyDiTError for other names and damaged folders, FileNotFoundError for one without a model_index.json or,
    of a modular pipeline, a modular_model_index.json.
    """
    if name in EMBEDDED:
        folder = EMBEDDED[name]
        what = f"the weights of {name}, which belong to this package"
    elif name and Path(name).is_dir():
        folder = Path(name)
        what = f"model {name!r}"
    elif name in CHECKPOINTS or re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", name):
        return None
    else:
        names = [*EMBEDDED, *CHECKPOINTS]
        expected = f"one of {', '.join(names)}, an existing folder written by save_pretrained, or a hub id"
        proposal = did_you_mean(name, names) or "; such as Wan-AI/Wan2.1-T2V-1.3B-Diffusers"
        raise GalaxyDiTError(f"model={name!r} is not allowed: expected {expected}{proposal}")
    if (folder / MODULAR_INDEX).is_file() and not (folder / INDEX).is_file():
        return folder  # its parts are checked when it is loaded
    if not (folder / INDEX).is_file():
        missing_index = f"{what}: there is no {INDEX} in {folder}; write the folder with save_pretrained"
        raise FileNotFoundError(one_line(missing_index))
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        parts = [part for part, kind in index.items() if isinstance(kind, list) and any(kind)]
    except (OSError, ValueError, AttributeError, RecursionError):
        index = {}
        parts = []
    missing = [part for part in parts if not (folder / part).is_dir()]
    if missing or "_class_name" not in index:
        expected = f"a {INDEX} that names a pipeline"
        if missing:
            expected = f"a folder with {', '.join(missing)}"
        raise refusal("model", str(folder), expected, "write the folder again with save_pretrained")
    return folder


def absent_checkpoint(name: str, revision: str | None = None) -> Checkpoint | None:
    """The published model of this name or hub id if its weights are not on this machine, else None. Asks no hub."""
    checkpoint = None
    if not Path(name).is_dir():
        checkpoint = checkpoint_of(name)
    if checkpoint is None:
        return None
    for name in (INDEX, MODULAR_INDEX):
        index = try_to_load_from_cache(checkpoint.hub_id, name, revision=revision or checkpoint.revision)
        weights: Iterable[Path] = ()
        if isinstance(index, str):
            weights = Path(index).parent.glob(f"{checkpoint.transformer}/*.*")
        if any(path.suffix in SINGLE_FILES for path in weights):
            return None
    return checkpoint


def example_prompt(model: str) -> str:
    """A prompt that a model understands; wan-tiny knows the words of its captions alone."""
    return EXAMPLE_CAPTION if model in EMBEDDED else EXAMPLE_PROMPT
