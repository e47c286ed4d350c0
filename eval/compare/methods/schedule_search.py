"""Control: fixed schedules that dynamic programming finds on calibration prompts.

A schedule is the list of full steps. The search (`calibration/search.py`) finds the schedules with the least error on
recorded generations, under the assumption that reused steps are extrapolated linearly (order 1).
"""

from collections.abc import Sequence

from diffusers import DiffusionPipeline

from galaxydit.calibration.generation_observer import record_sample
from galaxydit.calibration.schedule_error import ScheduleError
from galaxydit.calibration.search import PLANNER_VERSION, best_schedules
from galaxydit.eval.compare.identity import prediction_identity
from galaxydit.eval.compare.method import Method
from galaxydit.eval.compare.methods.uniform_skip import even_schedule, following, full_step_counts
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.profiles.evidence import ErrorPropagation

ORDER = 1


def search(
    pipe: DiffusionPipeline, prompts: Sequence[str], settings: GenerationSettings, seed: int
) -> dict[str, tuple[int, ...]]:
    """By number of full steps, the best schedule as step indices; the numbers are strings, as JSON keys must be.

    If a number of full steps is so small that some gap must exceed `LONGEST_GAP` (of `calibration/search.py`), its
    schedule is evenly spaced instead. Errors at all noise levels count alike.
    """
    recordings = [record_sample(pipe, prompt, settings, seed + index)[0] for index, prompt in enumerate(prompts)]
    steps, counts = recordings[0].steps, full_step_counts(recordings[0].steps)
    schedules = best_schedules(ScheduleError(recordings), max(counts), ErrorPropagation())
    return {str(count): schedules[count][0] if count in schedules else even_schedule(steps, count) for count in counts}


def identity(pipe: DiffusionPipeline) -> str:
    """SHA-256 of the extrapolation code, and the version of the search: the code that the results depend on."""
    return f"{prediction_identity(pipe)} planner {PLANNER_VERSION}"


METHOD = Method(
    name="searched schedule",
    settings=lambda steps: [{"full_steps": count} for count in full_step_counts(steps)],
    attach=lambda pipe, setting, calibration: following(pipe, calibration[str(setting["full_steps"])], ORDER),
    calibrate=search,
    identity=identity,
)
