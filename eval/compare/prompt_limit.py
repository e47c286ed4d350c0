"""How much a schedule of its own can win for a prompt, over one schedule for all: the limit of every adaptive rule.

A prompt's own schedule is searched on its own full generation, which no rule can know beforehand, and the shared one by
the same search on calibration prompts. The search is exact for the linear response of a recording; a search over
finished videos could find more.
"""

from collections.abc import Iterator, Sequence

from diffusers import DiffusionPipeline

from galaxydit.eval.compare.methods.schedule_search import ORDER, search
from galaxydit.eval.compare.methods.uniform_skip import following
from galaxydit.eval.compare.plan import TUNING_SEED
from galaxydit.pipelines.generate import Generation, generate
from galaxydit.pipelines.psnr import psnr
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.profiles.schema import ErrorPropagation


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

        def quality(schedules: dict[str, tuple[int, ...]], plain: Generation = plain) -> float:
            with following(pipe, schedules[str(count)], ORDER):
                return psnr(generate(pipe, plain.prompt, settings, plain.seed).frames, plain.frames)

        yield quality(shared), quality(own)
