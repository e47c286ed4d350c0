"""The transformer in one file, all of whose tensors are used: what a file has too much or too little is refused."""

import json
import re
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import diffusers
import torch
from accelerate import init_empty_weights
from diffusers import GGUFQuantizationConfig, ModelMixin
from diffusers.loaders.single_file_model import SINGLE_FILE_LOADABLE_CLASSES
from diffusers.loaders.single_file_utils import load_single_file_checkpoint
from safetensors import safe_open

from galaxydit.errors import GalaxyDiTError, refusal
from galaxydit.pipelines.scaled_weights import COMPANIONS, CURE, apply_scales, check_header

PREFIX = "model.diffusion_model."  # of the transformer in files that also have other components
OTHERS = ("vae", "first_stage_model", "text_encoders", "cond_stage_model", "conditioner", "audio_vae", "vocoder")
"""Components in files without that prefix, beside those that the base names."""


def load_transformer(file: str, index: Path, source: str, revision: str | None, dtype: torch.dtype) -> ModelMixin:
    """The transformer in `file`, by the configuration of the model `source`, whose model_index.json is `index`.

    Weights of a GGUF file stay quantised and compute in `dtype`; others are multiplied by the scales beside them.
    Tensors of other components are ignored. Raises GalaxyDiTError for tensors that the transformer lacks or does not
    use, where one file cannot hold the transformers of that model, or without the package gguf.
    """
    parts = json.loads(index.read_text(encoding="utf-8"))
    kind = parts.get("transformer") or [None, "None"]
    loader: Any = getattr(diffusers, str(kind[1]), None)
    if not hasattr(loader, "from_single_file") or (parts.get("transformer_2") or [None])[0] is not None:
        expected = "a model with one transformer, whose diffusers class has from_single_file"
        cure = "load the files with from_single_file in Python, and pass them to the pipeline's from_pretrained"
        raise refusal("base", source, expected, cure)
    quantised = {}
    if Path(file).suffix == ".gguf":
        if find_spec("gguf") is None:
            raise refusal("model", file, "an installed gguf, which reads this file", "pip install 'galaxydit[gguf]'")
        quantised = {"quantization_config": GGUFQuantizationConfig(compute_dtype=dtype)}
    else:
        with safe_open(file, "pt") as tensors:
            check_header(file, tensors.metadata())
    weights = _of_transformer(load_single_file_checkpoint(file), parts)
    apply_scales(file, weights, dtype)
    config = loader.load_config(source, subfolder="transformer", revision=revision)
    with init_empty_weights():
        shapes = {name: value.shape for name, value in loader.from_config(config).state_dict().items()}
    weights = _named_as(shapes, weights, loader, config)
    _check_complete(file, weights, shapes, loader)
    transformer: ModelMixin = loader.from_single_file(
        {name: weights[name] for name in shapes},
        config=source,
        subfolder="transformer",
        config_revision=revision,
        dtype=dtype,
        **quantised,
    )
    return transformer


def _of_transformer(weights: Mapping[str, Any], parts: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors without those of other components."""
    if any(name.startswith(PREFIX) for name in weights):
        # A name without a dot, such as "scaled_fp8", describes the file.
        own = {name for name in weights if name.startswith(PREFIX) or "." not in name or _is_companion(name, weights)}
        return {name: value for name, value in weights.items() if name in own}
    others = {*OTHERS, *parts} - {"transformer"}
    return {name: value for name, value in weights.items() if name.partition(".")[0] not in others}


def _is_companion(name: str, weights: Mapping[str, Any]) -> bool:
    """Whether a name without the prefix is that of a scale, or the like, of a weight with the prefix."""
    layer, _, kind = name.removeprefix("diffusion_model.").rpartition(".")
    return kind in COMPANIONS and f"{PREFIX}{layer}.weight" in weights


def _named_as(names: Iterable[str], weights: dict[str, Any], loader: Any, config: Any) -> dict[str, Any]:
    """The weights under diffusers' names: as they are, or converted from the names of the model's authors."""
    wanted = set(names)
    plain = {name.removeprefix(PREFIX): value for name, value in weights.items()}
    known = [base.__name__ for base in loader.__mro__ if base.__name__ in SINGLE_FILE_LOADABLE_CLASSES]
    converter = SINGLE_FILE_LOADABLE_CLASSES[known[0]] if known else None
    if converter is None or wanted <= plain.keys():
        return plain
    converted: dict[str, Any] = converter["checkpoint_mapping_fn"](checkpoint=weights, config=config)
    return min(plain, converted, key=lambda each: len(wanted - each.keys()))


def _check_complete(file: str, weights: Mapping[str, Any], shapes: Mapping[str, torch.Size], loader: Any) -> None:
    """Raise GalaxyDiTError, with their names, for tensors that are missing, of another shape, or not used."""
    if missing := [name for name in shapes if name not in weights]:
        raise GalaxyDiTError(f"model={file!r} lacks {listed(missing)} of the base", "take a whole file, or its base")
    for name, shape in shapes.items():
        value = weights[name]
        if value.shape != shape and not hasattr(value, "quant_type"):  # values of GGUF are packed
            expected = f"{name} of {tuple(shape)}, as in the base, not of {tuple(value.shape)}"
            raise refusal("model", file, expected, "take the base of this file, or a file that is not packed")
    ignored = loader._keys_to_ignore_on_load_unexpected or ()
    unused = []
    for name in weights:
        if name not in shapes and not any(re.search(each, name) for each in ignored):
            unused.append(name)
    if unused:
        expected = f"no tensors without use in {loader.__name__}, such as {listed(unused)}"
        raise refusal("model", file, expected, f"{CURE}, or the base of this file")


def listed(names: list[str]) -> str:
    """The first three names and the number of the others."""
    text = ", ".join(names[:3])
    if len(names) > 3:
        text += f" and {len(names) - 3} more"
    return text
