"""What a user adds to a loaded pipeline: a LoRA, an attention backend, compiled blocks."""

from collections.abc import Iterable
from typing import Any

from diffusers import DiffusionPipeline
from diffusers.models.attention_dispatch import AttentionBackendName

from galaxydit.errors import check_choice, refusal
from galaxydit.runtime.recognition import transformers_of


def add_lora(pipe: DiffusionPipeline, lora: str) -> None:
    """Load a LoRA from a safetensors file, a folder or the hub. Raises GalaxyDiTError if it does not fit."""
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
