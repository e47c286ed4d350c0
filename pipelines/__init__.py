"""Loading, generating and saving: `from galaxydit.pipelines import load_pipeline`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from galaxydit.pipelines.loading import load_pipeline

__all__ = ["load_pipeline"]


def __getattr__(name: str) -> Any:
    """Imported when it is asked for: diffusers takes seconds to load."""
    if name == "load_pipeline":
        from galaxydit.pipelines.loading import load_pipeline

        return load_pipeline
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
