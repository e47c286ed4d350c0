"""What is added to a pipeline: an attention backend, compiled blocks, more devices."""

from collections.abc import Iterable
from typing import Any

from diffusers import ContextParallelConfig, DiffusionPipeline
from diffusers.models.attention_dispatch import AttentionBackendName

from galaxydit.errors import check_choice, refusal, short_reason
from galaxydit.pipelines.meeting import meet
from galaxydit.pipelines.runs.run import Rank
from galaxydit.runtime.recognition import transformers_of


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
        expected = f"a backend that runs here ({short_reason(error, 200, named=False)})"
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
