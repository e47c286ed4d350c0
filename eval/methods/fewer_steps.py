"""Controls: plain sampling in fewer steps, the alternatives without a plugin.

The noise levels are the pipeline's own for so many steps; those of another flow shift, or a subset that dynamic
programming chooses on recorded generations (compare Align Your Steps, arXiv 2404.14507); or those of the full steps
that the plugin's schedule plans for a speedup, which shows what their choice achieves without reused steps between.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
from diffusers import DiffusionPipeline, UniPCMultistepScheduler

from galaxydit.errors import check_choice, check_count, check_number, refusal
from galaxydit.eval.methods.fixed_schedules import full_step_counts, search
from galaxydit.eval.methods.galaxydit_methods import AT_SPEEDUPS
from galaxydit.eval.methods.method import Context, Setting, method
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.trial import Attached, plain
from galaxydit.policies.schedule import full_step_count
from galaxydit.profiles.noise_levels import planned_steps

SHIFT_RATIOS = (0.25, 0.4, 0.6, 1.5, 2.5, 4.0)
PLANNED = "planned"
Choose = Callable[[Sequence[float]], Sequence[int]]
"""Function from the noise levels of all steps, falling, to the indices of the kept levels."""


class NoiseLevelSubset(UniPCMultistepScheduler):
    """UniPC on a subset of its noise levels; ignores the number of steps that the pipeline passes.

    The configuration entry `_choice` holds `of`, `kept` and `ratio` of `at_noise_levels`, so that a copy of the
    scheduler with another flow shift chooses from its own levels. `from_config` warns of public entries.
    """

    sigmas: torch.Tensor

    def set_timesteps(self, num_inference_steps: int | None = None, device: Any = None, **kwargs: Any) -> None:
        choice = self.config._choice
        super().set_timesteps(choice["of"])
        levels = self.sigmas[:-1].double()
        kept = choice["kept"]
        ratio = choice["ratio"]
        if callable(kept):
            kept = kept(levels.tolist())
        levels = levels[list(kept)]
        super().set_timesteps(len(levels), device=device, **kwargs)
        # A flow shift s makes sigma s sigma / (1 + (s - 1) sigma), and two shifts multiply.
        levels = ratio * levels / (1 + (ratio - 1) * levels)
        self.sigmas = torch.cat([levels, levels.new_zeros(1)]).float()
        self.timesteps = (self.sigmas[:-1] * self.config.num_train_timesteps).to(device=device, dtype=torch.int64)
        self.set_begin_index(0)  # else diffusers starts at the second of two levels rounded to the same timestep


@contextmanager
def at_noise_levels(
    pipe: DiffusionPipeline, of: int, kept: Sequence[int] | Choose, ratio: float = 1.0
) -> Iterator[Attached]:
    """Within the context, the pipeline samples at a subset of its noise levels, in as many steps as are kept.

    `kept` are indices among the levels of `of` steps, or a function from these levels; `ratio` multiplies their flow
    shift. Raises GalaxyDiTError for a scheduler other than UniPC.
    """
    original = pipe.scheduler
    if not isinstance(original, UniPCMultistepScheduler):
        expected = "UniPCMultistepScheduler, whose noise levels can be replaced"
        raise refusal("scheduler", type(original).__name__, expected, "leave this method out")
    pipe.scheduler = NoiseLevelSubset.from_config(original.config)
    pipe.scheduler.register_to_config(_choice={"of": of, "kept": kept, "ratio": ratio})
    try:
        yield Attached(lambda: 0)
    finally:
        pipe.scheduler = original


def scheduled_steps(pipe: DiffusionPipeline, speedup: float, steps: int, profile: Any = None) -> Sequence[int]:
    """Indices of the full steps that the schedule plans for a speedup at the scheduler's noise levels for `steps`."""
    scheduler = deepcopy(pipe.scheduler)
    scheduler.set_timesteps(steps)
    return planned_steps(pipe, speedup, profile)(scheduler.sigmas[:-1].tolist())


def _in_fewer(settings: GenerationSettings, setting: Setting) -> GenerationSettings:
    return replace(settings, steps=setting["steps"])


def _settings(steps: int) -> list[Setting]:
    grid: list[Setting] = []
    for count in full_step_counts(steps):
        for levels in (PLANNED, *SHIFT_RATIOS):
            grid.append({"steps": count, "levels": levels, "of": steps})
    return grid


@method(
    "fewer steps",
    "control",
    lambda steps: [{"steps": count} for count in full_step_counts(steps)],
    generation=_in_fewer,
)
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Context:
    return plain(pipe)


@method("optimised noise levels", "control", _settings, calibrate=search, generation=_in_fewer)
def attach_optimised(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Context:
    count = setting["steps"]
    levels = setting["levels"]
    if levels != PLANNED:
        check_number("levels", levels, 0.01, 100.0)
        return at_noise_levels(pipe, count, range(count), ratio=levels)
    check_choice("steps", str(count), tuple(calibration))
    kept = calibration[str(count)]
    check_count("of", setting["of"], minimum=max(kept) + 1)
    return at_noise_levels(pipe, setting["of"], kept)


@method(
    "plain at scheduled levels",
    "control",
    lambda steps: [{**setting, "of": steps} for setting in AT_SPEEDUPS],
    generation=lambda settings, setting: replace(settings, steps=full_step_count(setting["of"], setting["speedup"])),
    follows_profile=True,
)
def attach_scheduled(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Context:
    check_count("of", setting["of"], minimum=1)
    return at_noise_levels(pipe, setting["of"], planned_steps(pipe, setting["speedup"], setting.get("profile")))
