"""Hide the bars that diffusers and transformers draw while they load a model."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_loading_bars() -> Iterator[None]:
    """Draw no bars of parts and weights that are loaded; bars of downloads stay. Restores what was set before."""
    import diffusers
    import huggingface_hub.utils as hub
    import transformers

    hub_shows = not hub.are_progress_bars_disabled()
    loaders = [
        library.utils.logging
        for library in (diffusers, transformers)
        if library.utils.logging.is_progress_bar_enabled()
    ]
    for loader in loaders:
        loader.disable_progress_bar()
    if hub_shows:
        hub.enable_progress_bars()  # transformers disables them with its own
    try:
        yield
    finally:
        for loader in loaders:
            loader.enable_progress_bar()
        if not hub_shows:
            hub.disable_progress_bars()
