"""What the correction after reused steps gains on the step lists that were published for Wan2.1.

`python -m galaxydit.pipelines.wan_tiny.tools.corrections --prompts 8` logs the PSNR of captions outside training at
each list's own flow shift and guidance, at order 0 and 1, without and with the correction. At these lists wan-tiny's
PSNRs are near the published ones, so reuse errs about as much as on the real weights.
"""

import argparse
import logging
from collections.abc import Sequence

import numpy as np
import torch

import galaxydit
from galaxydit import FixedSteps, GalaxyDiTConfig
from galaxydit.calibration.published import StepList, load_published
from galaxydit.eval.realism import SHIFT_FACTOR
from galaxydit.eval.realism.step_lists import Cases, References
from galaxydit.pipelines.generate import generate_batch
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.psnr import psnr
from galaxydit.pipelines.published_models import recommended_settings
from galaxydit.pipelines.wan_tiny.tools.batches import BATCH
from galaxydit.pipelines.wan_tiny.world import draw_prompts

logger = logging.getLogger(__name__)
SEED = 500


def measure(references: References, rows: Sequence[StepList]) -> None:
    """Log mean and worst PSNR of each list, in dB."""
    for row in rows:
        plain, settings = references.at(row.flow_shift, row.guidance)
        for order in (0, 1):
            for correction in (False, True):
                config = GalaxyDiTConfig(
                    FixedSteps(row.steps), keep_last=0, reuse="residual", order=order, correction=correction
                )
                found: list[float] = []
                for trajectory, (prompts, seeds) in zip(plain, references.cases.batches, strict=True):
                    with galaxydit.accelerate(references.pipe, config=config):
                        videos = generate_batch(references.pipe, prompts, seeds, settings)
                    found += [psnr(*pair) for pair in zip(videos, trajectory.frames, strict=True)]
                kind = "corrected" if correction else "plain"
                logger.info("%s, order %d, %s: %.2f dB, worst %.1f", row.name, order, kind, np.mean(found), min(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    pipe = load_pipeline("wan-tiny", dtype=getattr(torch, arguments.dtype))
    pipe.set_progress_bar_config(disable=True)
    seeds = tuple(range(SEED, SEED + arguments.prompts))
    cases = Cases(tuple(draw_prompts(arguments.prompts, SEED)), seeds, BATCH)
    lists = [row for row in load_published().step_lists if row.method is None and row.plain_steps is None]
    rows = [row for row in lists if not row.conditional_only]
    measure(References(pipe, cases, recommended_settings(pipe), SHIFT_FACTOR), rows)


if __name__ == "__main__":
    main()
