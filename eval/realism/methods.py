"""Other projects' methods as published: the published setting, or the published number of computed steps."""

import math
from dataclasses import dataclass
from typing import Any

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

    def __init__(self, references: References, tuning: Cases, flow_shift: float, guidance: float) -> None:
        self.references, self.tuning = references, tuning
        self.shift = (flow_shift, guidance)
        self.settings = references.use(*self.shift)
        parts = measure_parts(references.pipe, tuning.prompts[0], self.settings)
        self.workload = Workload(references.pipe, self.settings, parts)

    def measure(self, row: dict[str, Any]) -> MethodRow:
        """One method of a published table, by its name in `row`, at the one of its published settings that `row` says.

        A threshold that belongs to another model's numbers does not carry over. It is replaced by one that computes
        the published number of steps, found by bisection on a tuning prompt.
        """
        method = METHODS[row["method"]]
        calibration, steps = None, self.references.steps
        if method.calibrate is not None:
            prompts = self.tuning.prompts[:CALIBRATION_PROMPTS]
            calibration = method.calibrate(self.references.pipe, prompts, self.settings, self.tuning.seeds[0])
        setting = dict(method.settings(steps)[row.get("setting", 0)])
        if row.get("computed_steps"):
            setting["threshold"] = self._threshold(method, setting, calibration, row["computed_steps"] / steps)
        found: list[float] = []
        fractions: list[float] = []
        trajectories, _ = self.references.at(*self.shift)
        plain = (frames for trajectory in trajectories for frames in trajectory.frames)
        cases = self.references.cases  # one prompt a call, because methods decide by it
        for frames, prompt, seed in zip(plain, cases.prompts, cases.seeds, strict=True):
            video, counter = self.workload.run(Case(prompt, seed), method, setting, calibration)
            found.append(psnr(video.frames, frames))
            fractions.append(self._fraction(counter))
        return MethodRow(row["name"], row["psnr"], tuple(found), sum(fractions) / len(fractions), setting)

    def _threshold(self, method: Method, setting: dict[str, Any], calibration: Any, wanted: float) -> float:
        """The threshold whose compute fraction on a tuning prompt is nearest to the wanted one."""
        low, high = (math.log(value) for value in THRESHOLD_RANGE)
        case = Case(self.tuning.prompts[0], self.tuning.seeds[0])
        fractions: dict[float, float] = {}
        for _ in range(TRIALS):
            middle = (low + high) / 2
            threshold = math.exp(middle)
            _, counter = self.workload.run(case, method, setting | {"threshold": threshold}, calibration)
            fractions[threshold] = self._fraction(counter)
            low, high = (middle, high) if fractions[threshold] > wanted else (low, middle)
        return min(fractions, key=lambda threshold: abs(fractions[threshold] - wanted))

    def _fraction(self, counter: ComputeCounter) -> float:
        """Operations done / those of the plain generation."""
        branches = 2 if (self.settings.guidance_scale or 1.0) > 1 else 1
        return counter.flops / (sum(part.flops for part in self.workload.parts) * branches * self.references.steps)
