"""Models that several tests of pipelines load."""

from collections.abc import Callable
from pathlib import Path

import pytest
from diffusers import WanPipeline, WanTransformer3DModel


@pytest.fixture
def two_transformers(
    tiny_wan_builder: Callable[[], WanPipeline],
    tiny_transformer: Callable[[int], WanTransformer3DModel],
    tmp_path: Path,
) -> Path:
    """The folder of a model with two transformers, as Wan2.2-A14B has."""
    parts = {name: part for name, part in tiny_wan_builder().components.items() if name != "transformer_2"}
    pipe = WanPipeline(**parts, transformer_2=tiny_transformer(3), boundary_ratio=0.9)
    pipe.save_pretrained(tmp_path / "two-transformers")
    return tmp_path / "two-transformers"
