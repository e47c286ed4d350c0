"""Measures other projects' methods on a model, at their published setting or their published number of computed steps.

A plain generation computes every step. The compute fraction of a method is the operations of its blocks / those of a
plain generation.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from numpy.typing import NDArray

from galaxydit.eval.compare.bench import Workload
from galaxydit.eval.compare.compute_counter import measure_parts
from galaxydit.eval.compare.method import Method, Setting
from galaxydit.eval.compare.plan import Case
from galaxydit.eval.realism.step_lists import Cases, PublishedRow, References, published_method
from galaxydit.pipelines.psnr import psnr

THRESHOLD_RANGE = (1e-3, 20.0)
TRIALS = 7
CALIBRATION_PROMPTS = 2


@dataclass(frozen=True)
class MethodRow(PublishedRow):
    """Published and measured PSNR of a method, with the setting that was measured and its compute fraction.

    Attributes:
        compute: compute fraction at this setting, mean over the prompts.
        setting: parameters of the method, such as {"threshold": 0.08}.
    """

    compute: float
    setting: dict[str, Any]


class MethodBench:
    """Measures methods on a model, to compare them with a published table.

    Args:
        references: the plain generations that the methods are compared with.
        tuning: prompts to calibrate methods and to choose thresholds on, which are not scored.
        flow_shift, guidance: as published with the table; `references` multiplies the flow shift by its `factor` (flow
            shift of this model / published flow shift).
    """

    def __init__(self, references: References, tuning: Cases, flow_shift: float, guidance: float) -> None:
        self.references, self.tuning = references, tuning
        trajectories, self.settings = references.at(flow_shift, guidance)
        self.plain = [frames for trajectory in trajectories for frames in trajectory.frames]
        parts = measure_parts(references.pipe, tuning.prompts[0], self.settings)
        self.workload = Workload(references.pipe, self.settings, parts)

    def measure(self, row: dict[str, Any]) -> MethodRow:
        """Measure the method of one row of a published table.

        `row` has the keys "name", "method" (the method's name in `galaxydit compare`) and "psnr" (published, dB), and
        optionally "setting", an index into the method's published settings (by default 0), and "computed_steps". A
        threshold chosen on another model does not carry over, so for a row with "computed_steps" bisection on a tuning
        prompt finds a threshold that computes this number of steps.
        """
        method, steps = published_method(row["method"]), self.references.steps
        calibration = None
        if method.calibrate is not None:
            prompts = self.tuning.prompts[:CALIBRATION_PROMPTS]
            calibration = method.calibrate(self.references.pipe, prompts, self.settings, self.tuning.seeds[0])
        run = partial(self._run, method, calibration)
        setting = dict(method.settings(steps)[row.get("setting", 0)])
        if "computed_steps" in row:
            case = Case(self.tuning.prompts[0], self.tuning.seeds[0])
            wanted = row["computed_steps"] / steps
            setting["threshold"] = nearest(lambda value: run(setting | {"threshold": value}, case)[1], wanted)
        psnrs, fractions = [], []
        cases = self.references.cases  # one prompt per call, because methods decide per batch
        for plain, prompt, seed in zip(self.plain, cases.prompts, cases.seeds, strict=True):
            frames, fraction = run(setting, Case(prompt, seed))
            psnrs.append(psnr(frames, plain))
            fractions.append(fraction)
        return MethodRow(row["name"], row["psnr"], tuple(psnrs), sum(fractions) / len(fractions), setting)

    def _run(self, method: Method, calibration: Any, setting: Setting, case: Case) -> tuple[NDArray[Any], float]:
        """Return the frames of one video, and its compute fraction.

        `calibration` is the result of `method.calibrate`, None if the method has no `calibrate`. `case` is the prompt
        and the seed of the video.
        """
        video, counter = self.workload.run(case, method, setting, calibration)
        branches = 2 if (self.settings.guidance_scale or 1.0) > 1 else 1
        operations = sum(part.flops for part in self.workload.parts) * branches * self.references.steps
        return video.frames, counter.flops / operations


def nearest(fraction: Callable[[float], float], wanted: float) -> float:
    """The threshold of a method whose compute fraction is nearest to `wanted`, by bisection in seven trials.

    `fraction` measures the compute fraction at a threshold; it must fall as the threshold rises.
    """
    low, high = (math.log(value) for value in THRESHOLD_RANGE)
    fractions: dict[float, float] = {}
    for _ in range(TRIALS):
        middle = (low + high) / 2
        threshold = math.exp(middle)
        fractions[threshold] = fraction(threshold)
        low, high = (middle, high) if fractions[threshold] > wanted else (low, middle)
    return min(fractions, key=lambda threshold: abs(fractions[threshold] - wanted))
