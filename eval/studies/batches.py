"""Videos of many captions, a few in each call of the pipeline."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from diffusers import WanPipeline
from numpy.typing import NDArray

from galaxydit.pipelines.generate import generate_batch
from galaxydit.pipelines.settings import GenerationSettings

BATCH = 6


def generate_in_batches(
    pipe: WanPipeline, prompts: Sequence[str], seed: int, settings: GenerationSettings, **call: Any
) -> NDArray[np.float32]:
    """Videos `(prompts, frames, height, width, 3)` in [0, 1]; prompt i starts from the noise of `seed` + i. The
    pipeline's call also gets the arguments `call`.
    """
    found = []
    for start in range(0, len(prompts), BATCH):
        batch = prompts[start : start + BATCH]
        seeds = range(seed + start, seed + start + len(batch))
        found.append(generate_batch(pipe, batch, seeds, settings, **call))
    return np.concatenate(found)
