"""Control: fixed schedules that dynamic programming (`calibration/search.py`) finds on calibration prompts.

It assumes that reused steps are extrapolated linearly, and that errors at all noise levels count alike.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.calibration.generation_observer import record_sample
from galaxydit.calibration.schedule_error import ScheduleError
from galaxydit.calibration.search import best_schedules
from galaxydit.eval.methods.method import Setting, method
from galaxydit.eval.methods.uniform_skip import even_schedule, following, full_step_counts
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.trial import Attached
from galaxydit.profiles.evidence import ErrorPropagation

ORDER = 1


def search(
    pipe: DiffusionPipeline, prompts: Sequence[str], settings: GenerationSettings, seed: int
) -> dict[str, tuple[int, ...]]:
    """By number of full steps, as text, the best schedule as step indices.

    Where some gap must exceed `LONGEST_GAP`, the schedule is evenly spaced instead.
    """
    recordings = [record_sample(pipe, prompt, settings, seed + index)[0] for index, prompt in enumerate(prompts)]
    steps, counts = recordings[0].steps, full_step_counts(recordings[0].steps)
    schedules = best_schedules(ScheduleError(recordings), max(counts), ErrorPropagation())
    return {str(count): schedules[count] if count in schedules else even_schedule(steps, count) for count in counts}


@method(
    "searched schedule",
    "control",
    lambda steps: [{"full_steps": count} for count in full_step_counts(steps)],
    calibrate=search,
)
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    return following(pipe, calibration[str(setting["full_steps"])], ORDER)
