"""Methods that diffusers ships as a cache: enabling one, and a `Method` around its configuration.

These caches key their state by the name of the cache context, so the two guidance branches of Wan have separate
states; a pipeline resets them when a generation ends.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.eval.compare.method import Attached, Calibrate, Method, Setting
from galaxydit.eval.compare.third_party import restored, tensors_in_hooks


@contextmanager
def enabled(pipe: DiffusionPipeline, config: Any) -> Iterator[Attached]:
    """Run the pipeline's transformer with a diffusers cache."""
    transformer = pipe.transformer
    with restored(pipe):
        transformer.enable_cache(config)
        try:
            yield Attached(tensors_in_hooks(transformer))
        finally:
            transformer.disable_cache()


def cache_method(
    name: str,
    source: str,
    settings: Callable[[int], Sequence[Setting]],
    config: Callable[[DiffusionPipeline, Setting, Any], Any],
    calibrate: Calibrate | None = None,
) -> Method:
    """A method that enables the cache which `config` returns for pipeline, setting and calibration."""

    @contextmanager
    def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Iterator[Attached]:
        with enabled(pipe, config(pipe, setting, calibration)) as attached:
            yield attached

    return Method(name, source, settings, attach, calibrate)
