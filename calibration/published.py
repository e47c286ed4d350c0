"""Published measurements of Wan2.1-T2V-1.3B, read by calibration/ and eval/."""

import json
from dataclasses import dataclass
from importlib import resources
from typing import Any

from galaxydit.validation import parse

NAME = "wan2.1-t2v-1.3b"


@dataclass(frozen=True)
class StepList:
    """A published PSNR together with the steps that were computed for it.

    Attributes:
        name: unique among the published step lists.
        flow_shift, guidance: flow shift and guidance scale of the published run.
        psnr: dB against the same seed with all 50 steps computed.
        steps: indices of the computed steps; empty for plain sampling with fewer steps.
        plain_steps: number of steps of plain sampling; None if `steps` are given.
        method: name of the method that predicts the other steps; None if the residual of the block stack is reused, and
            for plain sampling.
        conditional_only: further steps, which are computed in the conditional branch alone.
    """

    name: str
    flow_shift: float
    guidance: float
    psnr: float
    steps: tuple[int, ...] = ()
    plain_steps: int | None = None
    method: str | None = None
    conditional_only: tuple[int, ...] = ()


@dataclass(frozen=True)
class Published:
    """All published numbers of Wan2.1-T2V-1.3B.

    Attributes:
        data: content of `wan2.1-t2v-1.3b.json` beside this module, by section; steps are indices from 0. All
            sections but the first two have the key "source", a text on where the numbers were published, and most have
            "flow_shift" and "guidance" of the measurement.

            - "model", "conditions": name of the model; size, steps, scheduler and dtype of the generations.
            - "step_lists": "rows", which the attribute `step_lists` holds as objects.
            - "methods_shift_3", "methods_shift_5": "rows", one for each method, with the keys "name" and "psnr" (dB),
              and "row" (the name of its step list) or else "method" and the method's setting (`MethodBench.measure`).
            - "curvature": for each of the "steps", "rho2", the second derivative by sigma of the guided trajectory
              divided by the length of its chord, and "change_per_step", rho2 times the step's length in sigma.
            - "optimal_schedules": "rows", one for each schedule, with its computed "steps" and its "cost".
            - "released_list": the computed "steps" of a released script, without a published PSNR.
            - "propagation": "a", "b" and "c", the constants of `gain`.
            - "residual": change of what the block stack adds to its input since the step before: lists by step of the
              ratio of magnitudes, "conditional" and "unconditional", and "cosine_distance", by step as text.
        step_lists: one for each published PSNR whose computed steps are known.
    """

    data: dict[str, Any]
    step_lists: tuple[StepList, ...]

    def step_list(self, name: str) -> StepList:
        """The step list whose `StepList.name` is `name`, such as "24 steps, shift 8": a published PSNR and its steps.

        Raises StopIteration if there is none.
        """
        return next(row for row in self.step_lists if row.name == name)

    def gain(self, step: int) -> float:
        """Published growth of an error made at `step` (index 0 to 49) until the final latent (arXiv 2609.36433).

        It is the deviation of the final latent / the error of the prediction, up to an unknown factor.
        """
        law = self.data["propagation"]
        return float(law["a"] * ((49 - step) / 49) ** law["b"] + law["c"])


def load_published() -> Published:
    """The published numbers of Wan2.1-T2V-1.3B: PSNRs of step lists and of other methods, schedules, curvature of the
    guided trajectory, error propagation, and changes of the block stack's residual.
    """
    data = json.loads(resources.files(__package__).joinpath(f"{NAME}.json").read_text(encoding="utf-8"))
    return Published(data, parse(tuple[StepList, ...], data["step_lists"]["rows"], "step_lists"))
