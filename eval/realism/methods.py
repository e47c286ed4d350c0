"""Other projects' methods as published: the published setting, or the published number of computed steps."""

import math
from dataclasses import dataclass
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.eval.compare.bench import Workload
from galaxydit.eval.compare.compute_counter import ComputeCounter, measure_parts
from galaxydit.eval.compare.method import Method
from galaxydit.eval.compare.methods import dicache, faster_cache, ra_cfgcache, sea_cache, teacache
from galaxydit.eval.compare.plan import Case
from galaxydit.eval.realism.step_lists import Cases, References, Row
from galaxydit.pipelines.psnr import psnr

THRESHOLD_RANGE = (1e-3, 20.0)
TRIALS = 7
CALIBRATION_PROMPTS = 2
METHODS = {
    "TeaCache": teacache.METHODS[1],
    "DiCache": dicache.METHODS[1],
    "SeaCache": sea_cache.METHODS[-1],
    "RA-CFGCache": ra_cfgcache.METHODS[-1],
    "FasterCache": faster_cache.METHODS[1],
}


@dataclass(frozen=True)
class MethodRow(Row):
    """A method's published PSNR and ours; `compute` is block evaluations / those of the plain generation."""

    compute: float
    setting: dict[str, Any]


class MethodBench:
    """Measures methods at the flow shift and guidance scale of the published comparison."""

    def __init__(
        self, pipe: DiffusionPipeline, references: References, tuning: Cases, flow_shift: float, guidance: float
    ) -> None:
        self.pipe, self.references, self.tuning = pipe, references, tuning
        self.shift = (flow_shift, guidance)
        self.settings = references.use(*self.shift)
        self.steps = self.settings.steps or 50
        self.workload = Workload(pipe, self.settings, measure_parts(pipe, tuning.prompts[0], self.settings))

    def measure(self, row: dict[str, Any]) -> MethodRow:
        """One method of a published table, by its name in `row`, at the one of its published settings that `row` says.

        A threshold that belongs to another model's numbers does not carry over. It is replaced by one that computes
        the published number of steps, found by bisection on a tuning prompt.
        """
        method = METHODS[row["method"]]
        calibrated = (self.pipe, self.tuning.prompts[:CALIBRATION_PROMPTS], self.settings, self.tuning.seeds[0])
        calibration = method.calibrate(*calibrated) if method.calibrate else None
        setting = dict(method.settings(self.steps)[row.get("setting", 0)])
        if row.get("computed_steps"):
            setting["threshold"] = self._threshold(method, setting, calibration, row["computed_steps"] / self.steps)
        found: list[float] = []
        fractions: list[float] = []
        plain = (frames for trajectory in self.references.at(*self.shift) for frames in trajectory.frames)
        cases = self.references.cases  # one prompt a call, because methods decide by it
        for frames, prompt, seed in zip(plain, cases.prompts, cases.seeds, strict=True):
            video, counter = self.workload.run(Case(prompt, seed), method, setting, calibration)
            found.append(psnr(video.frames, frames))
            fractions.append(self._fraction(counter))
        return MethodRow(row["name"], row["psnr"], tuple(found), sum(fractions) / len(fractions), setting)

    def _threshold(self, method: Method, setting: dict[str, Any], calibration: Any, wanted: float) -> float:
        """The threshold whose compute fraction on a tuning prompt is nearest to the wanted one."""
        low, high = (math.log(value) for value in THRESHOLD_RANGE)
        best, distance = math.nan, math.inf
        for _ in range(TRIALS):
            middle = (low + high) / 2
            case = Case(self.tuning.prompts[0], self.tuning.seeds[0])
            _, counter = self.workload.run(case, method, setting | {"threshold": math.exp(middle)}, calibration)
            fraction = self._fraction(counter)
            if abs(fraction - wanted) < distance:
                best, distance = math.exp(middle), abs(fraction - wanted)
            low, high = (middle, high) if fraction > wanted else (low, middle)
        return best

    def _fraction(self, counter: ComputeCounter) -> float:
        """Operations done / those of the plain generation."""
        branches = 2 if (self.settings.guidance_scale or 1.0) > 1 else 1
        return counter.flops / (sum(part.flops for part in self.workload.parts) * branches * self.steps)
