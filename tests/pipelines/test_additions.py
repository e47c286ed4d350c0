"""An attention backend and compiled blocks, set by name as commands set them."""

from pathlib import Path

import pytest
import torch

from galaxydit.errors import GalaxyDiTError
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.runtime.recognition import transformers_of

pytestmark = pytest.mark.usefixtures("native_attention")


def test_attention_and_compiled_blocks_are_set(tiny_wan_folder: Path) -> None:
    pipe = load_pipeline(tiny_wan_folder, device="cpu", attention="_native_math", compile=True)
    block = pipe.transformer.blocks[0]
    assert block.attn1.processor._attention_backend == "_native_math"
    assert block._compiled_call_impl is not None


@pytest.mark.parametrize("backend", ["flash_hub", "fast", "flash"])
def test_attention_that_cannot_run_and_kernels_of_the_hub_are_refused(backend: str, tiny_wan_folder: Path) -> None:
    with pytest.raises(GalaxyDiTError, match=f"attention='{backend}' is not allowed: expected"):
        load_pipeline(tiny_wan_folder, device="cpu", attention=backend)


def test_attention_compiled_blocks_dtype_and_offload_reach_both_transformers(two_transformers: Path) -> None:
    pipe = load_pipeline(
        two_transformers, device="cpu", attention="_native_math", compile=True, dtype=torch.float16, offload="group"
    )
    assert [*transformers_of(pipe)] == ["transformer", "transformer_2"]
    for part in (pipe.transformer, pipe.transformer_2):
        assert part.blocks[0].attn1.processor._attention_backend == "_native_math"
        assert part.blocks[0]._compiled_call_impl is not None
        assert part.blocks[0].attn1.to_q.weight.dtype == torch.float16
        assert any(hasattr(module, "_diffusers_hook") for module in part.modules())
