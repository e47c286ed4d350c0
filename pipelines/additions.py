"""What is added to a pipeline: a file's transformer, a LoRA, an attention backend, compiled blocks, more devices."""

import json
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import diffusers
import torch
from diffusers import ContextParallelConfig, DiffusionPipeline, GGUFQuantizationConfig, ModelMixin
from diffusers.models.attention_dispatch import AttentionBackendName

from galaxydit.errors import check_choice, refusal
from galaxydit.pipelines.meeting import meet
from galaxydit.pipelines.runs.run import Rank
from galaxydit.runtime.recognition import transformers_of


def add_lora(pipe: DiffusionPipeline, lora: str) -> None:
    """Load a LoRA from a safetensors file, a folder or the hub. Raises GalaxyDiTError if it does not fit, or
    without the package peft."""
    if find_spec("peft") is None:
        raise refusal("lora", lora, "an installed peft, which loads it", "pip install peft")
    cure = "pass a LoRA in safetensors that was made for this model"
    if not hasattr(pipe, "load_lora_weights"):
        raise refusal("lora", lora, f"none, because {type(pipe).__name__} loads no LoRA", "leave it out")
    try:
        pipe.load_lora_weights(lora, use_safetensors=True)
    except Exception as error:  # whatever diffusers and PEFT raise for files that do not fit
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        raise refusal("lora", lora, f"one that {type(pipe).__name__} can load ({reason})", cure) from error
    if not pipe.get_active_adapters():
        raise refusal("lora", lora, f"one with layers of {type(pipe).__name__}", cure)


def set_attention(transformers: Iterable[Any], backend: str) -> None:
    """Set diffusers' attention backend, in the whole process. Raises GalaxyDiTError for one that cannot run.

    Kernels of the hub are refused, because their code would run.
    """
    names = tuple(name.value for name in AttentionBackendName if "hub" not in name.value)
    check_choice("attention", backend, names)
    try:
        for transformer in transformers:
            transformer.set_attention_backend(backend)
    except (ImportError, RuntimeError, ValueError) as error:
        expected = f"a backend that runs here ({' '.join(str(error).split())[:200]})"
        raise refusal("attention", backend, expected, "install its package, or pass native") from error


def compile_blocks(pipe: DiffusionPipeline) -> None:
    """Compile the repeated blocks of all transformers. Raises GalaxyDiTError for a class that names none."""
    transformers: list[Any] = [*transformers_of(pipe).values()]
    for transformer in transformers:
        if not getattr(transformer, "_repeated_blocks", None):
            expected = f"False, because {type(transformer).__name__} names no repeated blocks"
            raise refusal("compile", True, expected, "leave it out")
        transformer.compile_repeated_blocks()


def share_video(pipe: DiffusionPipeline, rank: Rank) -> None:
    """Split the tokens of every transformer among `rank.size` processes, by Ulysses (arXiv 2309.14509).

    Each process calls this, with torch's variables such as MASTER_ADDR set. Raises ValueError without a plan of
    diffusers (`_cp_plan`); sizes that do not divide heads or tokens fail only in calls of the transformer.
    """
    if rank.size == 1:
        return
    meet(rank)
    for name in transformers_of(pipe):
        getattr(pipe, name).enable_parallelism(config=ContextParallelConfig(ulysses_degree=rank.size))


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
