"""How much a schedule of its own can win for a prompt, over one schedule for all: the limit of every adaptive rule.

`python -m galaxydit.eval.compare.prompt_limit` records each prompt's own full generation and plans from that recording
alone, which no rule can know beforehand. The shared schedule is planned by the same search from calibration prompts.
Both compute equally many steps, at order 1. The search is exact for the linear response of a recording; a search over
finished videos could find more.
"""

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from diffusers import DiffusionPipeline

from galaxydit.calibration.generation_observer import record_sample
from galaxydit.calibration.samples import read_prompts
from galaxydit.calibration.schedule_error import ScheduleError
from galaxydit.calibration.search import best_schedules
from galaxydit.commands.captions import WITH_CAPTIONS, read_or_draw_prompts, reserved_captions
from galaxydit.eval.compare.methods.uniform_skip import following
from galaxydit.eval.compare.plan import TUNING_SEED
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.psnr import psnr
from galaxydit.pipelines.settings import GenerationSettings, recommended_settings
from galaxydit.profiles.registry import find_profile
from galaxydit.profiles.schema import ErrorPropagation

logger = logging.getLogger(__name__)


def prompt_limit(
    pipe: DiffusionPipeline,
    tuning: Sequence[str],
    prompts: Sequence[str],
    settings: GenerationSettings,
    counts: Sequence[int],
    propagation: ErrorPropagation,
) -> np.ndarray:
    """PSNR in dB `(counts, prompts, 2)` of the shared schedule and of each prompt's own, at `counts` full steps.

    Both are planned from recordings with the same error propagation, the profile's.
    """
    shared = best_schedules(
        ScheduleError([record_sample(pipe, one, settings, TUNING_SEED + i)[0] for i, one in enumerate(tuning)]),
        max(counts),
        propagation,
    )
    found = np.empty((len(counts), len(prompts), 2))
    for place, prompt in enumerate(prompts):
        recording = record_sample(pipe, prompt, settings, 0)[0]
        plain = generate(pipe, prompt, settings, 0)
        own = best_schedules(ScheduleError([recording]), max(counts), propagation)
        for row, count in enumerate(counts):
            for column, schedules in enumerate((shared, own)):
                with following(pipe, schedules[count][0], order=1):
                    video = generate(pipe, prompt, settings, 0)
                found[row, place, column] = psnr(video.frames, plain.frames)
            logger.info("%s, %d full steps: shared %.2f dB, own %.2f dB", prompt, count, *found[row, place])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=WITH_CAPTIONS)
    parser.add_argument("--prompts", default="8", help="a text file, or a number of unseen captions of wan-tiny")
    parser.add_argument("--calibration", type=Path, default=reserved_captions(), help="prompts of the shared schedule")
    parser.add_argument("--tune-prompts", type=int, default=4, help="how many of them")
    parser.add_argument("--full-steps", default="25,20", help="numbers of computed steps, with commas")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    reserved = tuple(read_prompts(arguments.calibration))
    prompts = read_or_draw_prompts(arguments.prompts, arguments.model, reserved)
    counts = [int(count) for count in arguments.full_steps.split(",")]
    pipe = load_pipeline(arguments.model, dtype=torch.bfloat16)
    profile = find_profile(pipe.transformer)[0]
    propagation = ErrorPropagation() if profile is None else profile.evidence.propagation
    tuning = reserved[: arguments.tune_prompts]
    found = prompt_limit(pipe, tuning, prompts, recommended_settings(pipe), counts, propagation)
    for count, pairs in zip(counts, found, strict=True):
        gain = pairs[:, 1] - pairs[:, 0]
        logger.info(
            "%d full steps: shared %.2f dB, own %.2f dB, limit %+.2f dB (standard error %.2f, %d prompts)",
            count,
            *pairs.mean(axis=0),
            gain.mean(),
            gain.std(ddof=1) / len(gain) ** 0.5,
            len(gain),
        )


if __name__ == "__main__":
    main()
