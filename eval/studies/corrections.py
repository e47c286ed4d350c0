"""Gain of the correction after reused steps on the shipped schedules, and on step lists published for Wan2.1.

`python -m galaxydit.eval.studies.corrections --prompts 8` logs the PSNR on captions not used in training without and
with the correction. The published step lists run at their own flow shift and guidance. There wan-tiny's PSNRs are near
the published ones, so reuse errs about as much as on the real weights.
"""

import argparse
import logging
from dataclasses import replace

import numpy as np
import torch

import galaxydit
from galaxydit import FixedSteps, GalaxyDiTConfig
from galaxydit.calibration.published import StepList, load_published
from galaxydit.eval.compare.methods.ablations import shipped
from galaxydit.eval.realism import SHIFT_FACTOR
from galaxydit.eval.realism.step_lists import Cases, References
from galaxydit.pipelines.generate import generate_batch
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.psnr import psnr
from galaxydit.pipelines.published_models import recommended_settings
from galaxydit.pipelines.wan_tiny.world import draw_prompts

logger = logging.getLogger(__name__)
SEED, BATCH = 500, 6
OWN_SHIFT, OWN_GUIDANCE = 5.0, 5.0  # published values that equal wan-tiny's own after scaling


def measure(references: References, name: str, row: StepList | None, config: GalaxyDiTConfig) -> None:
    """Log mean and worst PSNR in dB without and with the correction; without `row` at the model's own flow shift."""
    plain, settings = references.at(row.flow_shift, row.guidance) if row else references.at(OWN_SHIFT, OWN_GUIDANCE)
    for correction in (False, True):
        found: list[float] = []
        for trajectory, (prompts, seeds) in zip(plain, references.cases.batches, strict=True):
            with galaxydit.accelerate(references.pipe, config=replace(config, correction=correction)):
                videos = generate_batch(references.pipe, prompts, seeds, settings)
            found += [psnr(*pair) for pair in zip(videos, trajectory.frames, strict=True)]
        kind = "corrected" if correction else "plain"
        logger.info("%s, %s: %.2f dB, worst %.1f", name, kind, np.mean(found), min(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--speedups", type=float, nargs="*", default=[2.0, 2.5, 3.0], help="of the shipped schedules")
    parser.add_argument("--lists", type=int, default=5, help="number of published step lists, from the first")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    pipe = load_pipeline("wan-tiny", dtype=getattr(torch, arguments.dtype))
    pipe.set_progress_bar_config(disable=True)
    seeds = tuple(range(SEED, SEED + arguments.prompts))
    cases = Cases(tuple(draw_prompts(arguments.prompts, SEED)), seeds, BATCH)
    lists = [row for row in load_published().step_lists if row.steps and not (row.method or row.conditional_only)]
    references = References(pipe, cases, recommended_settings(pipe), SHIFT_FACTOR)
    for speedup in arguments.speedups:
        planned = shipped(pipe, speedup=speedup)
        measure(references, f"the shipped schedule at {speedup:g}x", None, planned)
        measure(references, f"the same at order 0, {speedup:g}x", None, replace(planned, order=0))
    for row in lists[: arguments.lists]:
        for order in (0, 1):
            config = GalaxyDiTConfig(FixedSteps(row.steps), keep_last=0, reuse="residual", order=order)
            measure(references, f"{row.name}, order {order}", row, config)


if __name__ == "__main__":
    main()
