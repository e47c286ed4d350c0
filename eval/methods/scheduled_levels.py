"""Control: plain steps at the noise levels of the full steps that the plugin's schedule plans for a speedup.

It shows what the choice of these noise levels achieves without the reused steps between them.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import replace
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.errors import check_count
from galaxydit.eval.methods.galaxydit_methods import AT_SPEEDUPS
from galaxydit.eval.methods.method import Setting, method
from galaxydit.eval.methods.optimised_noise_levels import at_noise_levels
from galaxydit.pipelines.trial import Attached
from galaxydit.policies.schedule import full_step_count
from galaxydit.profiles.noise_levels import planned_steps


def scheduled_steps(pipe: DiffusionPipeline, speedup: float, steps: int, profile: Any = None) -> Sequence[int]:
    """Indices of the full steps that the schedule plans for a speedup at the scheduler's noise levels for `steps`."""
    scheduler = deepcopy(pipe.scheduler)
    scheduler.set_timesteps(steps)
    return planned_steps(pipe, speedup, profile)(scheduler.sigmas[:-1].tolist())


@method(
    "plain at scheduled levels",
    "control",
    lambda steps: [{**setting, "of": steps} for setting in AT_SPEEDUPS],
    generation=lambda settings, setting: replace(settings, steps=full_step_count(setting["of"], setting["speedup"])),
    follows_profile=True,
)
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    check_count("of", setting["of"], minimum=1)
    return at_noise_levels(pipe, setting["of"], planned_steps(pipe, setting["speedup"], setting.get("profile")))
