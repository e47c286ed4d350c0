"""Part b: the default calibration of Wan2.1-T2V-1.3B at 480p, and what its own estimate promised."""

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from galaxydit.calibration.budget import DEFAULT, Budget, Costs
from galaxydit.calibration.calibration import KIND, SPEEDUPS
from galaxydit.calibration.step_times import StepTimes
from galaxydit.eval.gpu.calibration_stages import measure_stages
from galaxydit.eval.gpu.gpu_file import GpuFile
from galaxydit.eval.gpu.measured_video import Scale
from galaxydit.eval.gpu.pipeline_part import MODEL, BuiltPipeline
from galaxydit.eval.gpu.turns import MeasuredPart, OutOfTimeError, TimeLimit, Turn
from galaxydit.pipelines.runs import Store
from galaxydit.validation import parse

STEPS = 50
TINY_BUDGET = Budget(samples=(1, 2))  # with --tiny the part is tried, not measured
VARIANT = "default calibration"
H100_SECONDS = 260.0  # with 8 recordings (eval/results/gpu/calibration-H100.json)
LONGEST_STAGE = 70.0  # seconds on one H100: the plain video that checks the recordings
RECORDED = ("recording", "checking")  # stages that the estimate counts


def calibration_part(scale: Scale, file: GpuFile, limit: TimeLimit) -> MeasuredPart:
    """Part b, eager as `galaxydit calibrate` runs; its folder beside the file keeps the finished stages."""
    built = BuiltPipeline(scale, 20 if scale.tiny else STEPS)
    folder = file.path.with_suffix(".calibration")
    measure = partial(_calibrate, built, folder, file, limit)
    turns = (Turn(VARIANT, 1, H100_SECONDS, measure, least=LONGEST_STAGE),)
    return MeasuredPart("b", "the default calibration", partial(built.prepare, compiled=False), 8.0, turns)


def _calibrate(built: BuiltPipeline, folder: Path, file: GpuFile, limit: TimeLimit) -> dict[str, Any]:
    """The row of the calibration. Raises OutOfTimeError where the limit leaves no time for another stage."""
    earlier = file.find("b", VARIANT, 1)
    stages: list[dict[str, Any]] = [] if earlier is None else earlier["stages"]
    row = {"model": built.scale.model(MODEL), "compiled": False, "steps": built.settings.steps}

    def write(now: list[dict[str, Any]]) -> None:
        wall = sum(stage["seconds"] for stage in stages + now)
        file.add("b", VARIANT, 1, row | {"finished": False, "wall_seconds": wall, "stages": stages + now})

    def before(stage: str) -> None:
        if not limit.allows(LONGEST_STAGE):
            raise OutOfTimeError

    budget = TINY_BUDGET if built.scale.tiny else DEFAULT
    made = measure_stages(built.pipe, built.settings, budget, write, folder, before)
    stages = stages + made
    seconds = sum(stage["seconds"] for stage in stages)
    counted = [stage for stage in stages if stage["stage"] in RECORDED]
    measured = {
        "seconds": seconds,  # with the timing of steps and the planning
        "recorded_seconds": sum(stage["seconds"] for stage in counted),  # what the estimate counts
        "recorded_joules": _total([stage["joules"] for stage in counted]),
        "estimate": _estimate(folder, built.settings.steps or 0, budget),
        "peak_bytes": max((stage["peak_bytes"] or 0 for stage in stages), default=0) or None,
    }
    return row | {"stages": stages} | measured


def _total(joules: list[float | None]) -> float | None:
    known = [each for each in joules if each is not None]
    return sum(known) if known and len(known) == len(joules) else None


def _estimate(folder: Path, steps: int, budget: Budget) -> dict[str, Any]:
    """What the calibration said beforehand: seconds and joules for as many recordings as it made, and at most."""
    store = Store(folder).create(KIND, {})
    samples = 0
    timing: Any = None
    for unit in sorted(store.unit_ids()):
        if unit.startswith("sample-"):
            samples += 1
        elif unit.startswith("timing"):
            record = store.read(unit)
            timing = None if record is None else record.result
    costs = Costs(
        steps, SPEEDUPS, parse(StepTimes, timing["full"], "timing"), parse(StepTimes, timing["small"], "timing")
    )
    videos = costs.videos(budget, samples)
    return {
        "recordings": samples,
        "plain_videos": videos,
        "seconds": costs.seconds(videos),
        "joules": costs.joules(budget, samples),
        "most_seconds": costs.seconds(costs.videos(budget, budget.samples[1])),
        "plain_step": asdict(costs.plain),
        "recorded_step": asdict(costs.recorded),
    }
