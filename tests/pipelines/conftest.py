"""Models that several tests of pipelines load."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from diffusers import WanPipeline, WanTransformer3DModel


@pytest.fixture(scope="session")
def saved_two_transformers(
    tiny_wan_builder: Callable[[], WanPipeline],
    tiny_transformer: Callable[[int], WanTransformer3DModel],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The folder that `two_transformers` copies."""
    folder = tmp_path_factory.mktemp("saved") / "two-transformers"
    parts = {name: part for name, part in tiny_wan_builder().components.items() if name != "transformer_2"}
    WanPipeline(**parts, transformer_2=tiny_transformer(3), boundary_ratio=0.9).save_pretrained(folder)
    return folder


@pytest.fixture
def two_transformers(saved_two_transformers: Path, tmp_path: Path) -> Path:
    """The folder of a model with two transformers, as Wan2.2-A14B has; it is the test's own."""
    torch.manual_seed(0)
    return Path(shutil.copytree(saved_two_transformers, tmp_path / "two-transformers"))
