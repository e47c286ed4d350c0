"""What is said where the memory of a device does not suffice for a video."""

from collections.abc import Iterator
from contextlib import contextmanager

from diffusers import DiffusionPipeline

from galaxydit.errors import GalaxyDiTError, short_reason
from galaxydit.pipelines.settings import GenerationSettings


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory ran out. On a CPU, PyTorch raises a plain RuntimeError."""
    words = ("out of memory", "not enough memory", "can't allocate memory", "Storage size calculation overflowed")
    return isinstance(error, MemoryError) or any(text in str(error) for text in words)


def free_hooks(pipe: DiffusionPipeline) -> None:
    """Bring offloaded components back to CPU memory, as the end of a call does. A modular pipeline has no hooks of its
    own: a manager moves its components when memory is needed."""
    if hasattr(pipe, "maybe_free_model_hooks"):
        pipe.maybe_free_model_hooks()


@contextmanager
def memory_error(pipe: DiffusionPipeline, settings: GenerationSettings) -> Iterator[None]:
    """Context that turns an out-of-memory error into a GalaxyDiTError with the video's size and the cure."""
    try:
        yield
    except Exception as error:
        free_hooks(pipe)  # else an offloaded model would stay on the device beside those of the next call
        if not is_out_of_memory(error):
            raise
        size = f"{settings.width}x{settings.height} pixels, {settings.num_frames} frames"
        cause = short_reason(error, 160, named=False)
        raise GalaxyDiTError(
            f"{size} do not fit into the memory of {pipe._execution_device} ({cause}); take a smaller "
            "--height, --width or --frames, or --offload model or sequential (load_pipeline(offload=...) in Python)"
        ) from error
