"""A transformer from one file, .safetensors or .gguf, for the pipeline of another model."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import diffusers
import torch
from diffusers import GGUFQuantizationConfig, ModelMixin

from galaxydit.errors import refusal


def load_transformer(file: str, index: Path, source: str, revision: str | None, dtype: torch.dtype) -> ModelMixin:
    """The transformer in `file`, by the configuration of the model `source`, whose model_index.json is `index`.

    Weights of a GGUF file stay quantised and compute in `dtype`. Raises GalaxyDiTError where one file cannot hold the
    transformers of that model, or without the package gguf.
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
            raise refusal("model", file, "an installed gguf, which reads this file", "pip install gguf")
        quantised = {"quantization_config": GGUFQuantizationConfig(compute_dtype=dtype)}
    transformer: ModelMixin = loader.from_single_file(
        file, config=source, subfolder="transformer", config_revision=revision, dtype=dtype, **quantised
    )
    return transformer
