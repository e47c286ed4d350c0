"""Many generations of a real WanPipeline leave nothing behind.

`GENERATIONS=1000 pytest tests/galaxydit/test_soak.py --log-cli-level=INFO` is the long form.
"""

import gc
import logging
import os
from contextlib import nullcontext, suppress
from typing import Any

import psutil
import pytest
import torch
from torch import Tensor

import galaxydit

GENERATIONS = int(os.environ.get("GENERATIONS", "30"))
FIRST = max(20, GENERATIONS // 10)  # above the number of reports that are kept

pytestmark = [
    pytest.mark.filterwarnings("ignore::galaxydit.FullComputeWarning"),
]


def cancel(pipe: Any, index: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
    if index == 6:
        raise InterruptedError
    return tensors


@pytest.mark.parametrize("attached", ["once", "for each call"])
def test_the_last_generations_leave_no_more_behind_than_the_first(tiny_wan: Any, attached: str) -> None:
    """Every fifth has too few steps to reuse any, every seventh is cancelled, every eleventh is decoded."""

    def generate(first: int, last: int) -> tuple[int, int, int]:
        """Tensors, objects and bytes of this process afterwards."""
        for index in range(first, last):
            changes: dict[str, Any] = {
                "num_inference_steps": 3 if index % 5 == 0 else 10,
                "prompt": f"ball {index % 2}",
            }
            changes |= {"callback_on_step_end": cancel} if index % 7 == 0 else {}
            changes |= {"output_type": "np"} if index % 11 == 0 else {}
            with suppress(InterruptedError), per_call():
                tiny_wan.run(**changes, generator=torch.Generator().manual_seed(index))
        gc.collect()
        objects = gc.get_objects()
        return sum(issubclass(type(one), Tensor) for one in objects), len(objects), psutil.Process().memory_info().rss

    def accelerate() -> Any:
        return galaxydit.accelerate(tiny_wan.pipe, speedup=2.0)

    per_call = accelerate if attached == "for each call" else nullcontext
    gc.collect()
    gc.freeze()  # what other tests left is not counted, neither while it is held nor when it is let go
    try:
        with accelerate() if attached == "once" else nullcontext():
            before = generate(0, FIRST)
            after = generate(FIRST, GENERATIONS)
    finally:
        gc.unfreeze()
    tensors, objects, memory = (late - early for early, late in zip(before, after, strict=True))
    growth = f"{tensors} tensors, {objects} objects, {memory / 2**20:.1f} MiB"
    logging.info("generations %d to %d, attached %s: %s", FIRST, GENERATIONS, attached, growth)
    assert tensors == 0, growth
    assert objects < 5 * (GENERATIONS - FIRST), growth  # one record or state kept for each generation has more
    assert memory < 32 * 2**20, growth
