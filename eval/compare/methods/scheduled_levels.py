"""Control: plain steps at the noise levels of the full steps that the plugin's schedule plans for a speedup.

The control shows what the choice of these noise levels achieves alone, without the plugin's reused steps between them.
A profile holds the plugin's calibration for a model.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.errors import check_count
from galaxydit.eval.compare.identity import code_identity
from galaxydit.eval.compare.method import Attached, Method, Setting
from galaxydit.eval.compare.methods import optimised_noise_levels
from galaxydit.eval.compare.methods.galaxydit_methods import AT_SPEEDUPS, profile_identity
from galaxydit.eval.compare.methods.optimised_noise_levels import Choose
from galaxydit.policies.budget import full_step_count
from galaxydit.policies.policy import Limits, Observation
from galaxydit.policies.schedule import Schedule
from galaxydit.profiles.resolve import resolve
from galaxydit.request import SCHEDULE, Request

LEVELS = Path(optimised_noise_levels.__file__)


def _placed(pipe: DiffusionPipeline, speedup: float, path: Path | None = None) -> Choose:
    """Return a function from the noise levels of all steps to the indices of the full steps for a speedup.

    The schedule that plans them follows the profile file `path`, by default the model's shipped profile. If none is
    shipped, it is the plugin's general schedule.
    """
    config = resolve(pipe, Request(speedup=speedup, policy=SCHEDULE, profile=path)).config
    schedule, limits = config.policy, Limits(config.warmup, config.keep_last, config.max_consecutive)
    assert isinstance(schedule, Schedule)  # of `policy=SCHEDULE`, with a profile and without
    return lambda levels: schedule.place(Observation(0, len(levels), None, False, sigmas=tuple(levels), limits=limits))


def scheduled_steps(pipe: DiffusionPipeline, speedup: float, steps: int) -> Sequence[int]:
    """Indices of the full steps that the schedule of the model's shipped profile plans for a speedup, at the noise
    levels of the pipeline's scheduler for `steps` steps; without such a profile, those of the general schedule.
    """
    scheduler = deepcopy(pipe.scheduler)
    scheduler.set_timesteps(steps)
    return _placed(pipe, speedup)(scheduler.sigmas[:-1].tolist())


def _method(path: Path | None = None, suffix: str = "") -> Method:
    """This control with the schedule of the profile file `path`, by default of the model's shipped profile.

    `suffix` is appended to the method's name.
    """

    def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
        check_count("of", setting["of"], minimum=1)
        return optimised_noise_levels.at_noise_levels(pipe, setting["of"], _placed(pipe, setting["speedup"], path))

    return Method(
        name="plain at scheduled levels" + suffix,
        settings=lambda steps: [{**setting, "of": steps} for setting in AT_SPEEDUPS],
        attach=attach,
        identity=lambda pipe: f"{profile_identity(pipe, path)} {code_identity([Path(__file__), LEVELS])}",
        generation=lambda settings, setting: replace(
            settings, steps=full_step_count(setting["of"], setting["speedup"])
        ),
        with_profile=_method,
    )


METHOD = _method()
