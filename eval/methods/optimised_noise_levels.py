"""Control: fewer steps of the plain pipeline at optimised noise levels, the strongest alternative without a plugin.

The noise levels of a setting are either those of another flow shift, or a subset of the pipeline's own levels that
dynamic programming chooses on recorded generations (compare Align Your Steps, arXiv 2404.14507).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

import torch
from diffusers import DiffusionPipeline, UniPCMultistepScheduler

from galaxydit.errors import check_choice, check_count, check_number, refusal
from galaxydit.eval.methods.method import Setting, method
from galaxydit.eval.methods.schedule_search import search
from galaxydit.eval.methods.uniform_skip import full_step_counts
from galaxydit.pipelines.trial import Attached

SHIFT_RATIOS = (0.25, 0.4, 0.6, 1.5, 2.5, 4.0)
PLANNED = "planned"
Choose = Callable[[Sequence[float]], Sequence[int]]
"""Function from the noise levels of all steps, falling, to the indices of the kept levels."""


class NoiseLevelSubset(UniPCMultistepScheduler):
    """UniPC on a subset of its noise levels; ignores the number of steps that the pipeline passes.

    The configuration entry `_choice` holds the arguments of `at_noise_levels`: `of`, a number of steps; `kept`, indices
    into the noise levels that the scheduler has for so many steps, or a function from these levels to the indices; and
    `ratio`, flow shift of the resulting levels / flow shift of the scheduler. So a copy of the scheduler with another
    flow shift chooses from its own levels. The entry's name starts with an underscore, because `from_config` warns of
    public entries that `__init__` does not take.
    """

    sigmas: torch.Tensor

    def set_timesteps(self, num_inference_steps: int | None = None, device: Any = None, **kwargs: Any) -> None:
        """Set the kept noise levels with the changed flow shift, and their timesteps; ignore `num_inference_steps`."""
        choice = self.config._choice
        super().set_timesteps(choice["of"])
        levels, kept, ratio = self.sigmas[:-1].double(), choice["kept"], choice["ratio"]
        levels = levels[list(kept(levels.tolist()) if callable(kept) else kept)]
        super().set_timesteps(len(levels), device=device, **kwargs)
        levels = ratio * levels / (1 + (ratio - 1) * levels)
        self.sigmas = torch.cat([levels, levels.new_zeros(1)]).float()
        self.timesteps = (self.sigmas[:-1] * self.config.num_train_timesteps).to(device=device, dtype=torch.int64)
        self.set_begin_index(0)  # else diffusers starts at the second of two levels rounded to the same timestep


@contextmanager
def at_noise_levels(
    pipe: DiffusionPipeline, of: int, kept: Sequence[int] | Choose, ratio: float = 1.0
) -> Iterator[Attached]:
    """Within the context, the pipeline samples at a subset of its noise levels.

    The caller must run the pipeline with as many steps as levels are kept. Yields an `Attached`, from which a
    comparison reads the bytes that a method keeps: here `bytes_held` returns 0, because no tensors are kept.

    Args:
        pipe: a pipeline with a UniPC scheduler; raises GalaxyDiTError for another scheduler.
        of: number of steps; the subset is taken from the scheduler's noise levels for so many steps.
        kept: indices of the kept levels among these, or a function from the levels to the indices.
        ratio: factor by which the flow shift of the kept levels is multiplied.
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


def _settings(steps: int) -> list[Setting]:
    levels = (PLANNED, *SHIFT_RATIOS)
    return [{"steps": count, "levels": level, "of": steps} for count in full_step_counts(steps) for level in levels]


@method(
    "optimised noise levels",
    "control",
    _settings,
    calibrate=search,
    generation=lambda settings, setting: replace(settings, steps=setting["steps"]),
)
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    count, levels = setting["steps"], setting["levels"]
    if levels != PLANNED:
        check_number("levels", levels, 0.01, 100.0)
        return at_noise_levels(pipe, count, range(count), ratio=levels)
    check_choice("steps", str(count), tuple(calibration))
    kept = calibration[str(count)]
    check_count("of", setting["of"], minimum=max(kept) + 1)
    return at_noise_levels(pipe, setting["of"], kept)
