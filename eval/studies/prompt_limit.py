"""How much a schedule of its own can win for a prompt, over one schedule for all: the limit of every adaptive rule.

`python -m galaxydit.eval.studies.prompt_limit --prompts 8 --full-steps 25` logs both on captions outside
training, with the mean difference and its standard error.

A prompt's own schedule is searched on its own full generation, which no rule can know beforehand, and the shared one by
the same search on calibration prompts. The search is exact for the linear response of a recording; a search over
finished videos could find more.
"""

import argparse
import logging
from collections.abc import Iterator, Sequence
from statistics import fmean, stdev

from diffusers import DiffusionPipeline

from galaxydit.calibration.prompt_files import WAN_TINY_PROMPTS, read_prompts
from galaxydit.eval.compare.methods.schedule_search import ORDER, search
from galaxydit.eval.compare.methods.uniform_skip import following
from galaxydit.eval.compare.plan import TUNING_SEED
from galaxydit.pipelines.generate import GeneratedVideo, generate
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.psnr import psnr
from galaxydit.pipelines.published_models import recommended_settings
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.wan_tiny.world import draw_prompts
from galaxydit.profiles.registry import load_profile
from galaxydit.profiles.schema import ErrorPropagation

logger = logging.getLogger(__name__)
SEED = 77
SHARED = 4  # captions of the calibration that the shared schedule is searched on


def prompt_limits(
    pipe: DiffusionPipeline,
    tuning: Sequence[str],
    prompts: Sequence[str],
    settings: GenerationSettings,
    count: int,
    propagation: ErrorPropagation,
) -> Iterator[tuple[float, float]]:
    """For each prompt the PSNR in dB of the shared schedule of `count` full steps and of the prompt's own.

    `count` is one of `full_step_counts(steps)`. All prompts start from the noise of seed 0.
    """
    shared = search(pipe, tuning, settings, TUNING_SEED, propagation)
    for prompt in prompts:
        plain = generate(pipe, prompt, settings, 0)
        own = search(pipe, [prompt], settings, 0, propagation)

        def quality(schedules: dict[str, tuple[int, ...]], plain: GeneratedVideo = plain) -> float:
            with following(pipe, schedules[str(count)], ORDER):
                return psnr(generate(pipe, plain.prompt, settings, plain.seed).frames, plain.frames)

        yield quality(shared), quality(own)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--full-steps", type=int, default=25)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    prompts, pipe = draw_prompts(arguments.prompts, SEED), load_pipeline("wan-tiny")
    pipe.set_progress_bar_config(disable=True)
    propagation = load_profile("wan-tiny").evidence.propagation
    shared = read_prompts(WAN_TINY_PROMPTS)[:SHARED]
    limits = prompt_limits(pipe, shared, prompts, recommended_settings(pipe), arguments.full_steps, propagation)
    found = []
    for prompt, pair in zip(prompts, limits, strict=True):
        found.append(pair)
        logger.info("%s: shared %.2f dB, own %.2f dB", prompt, *pair)
    gains = [own - shared for shared, own in found]
    error = stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else float("nan")
    logger.info("limit %+.2f dB, standard error %.2f", fmean(gains), error)


if __name__ == "__main__":
    main()
