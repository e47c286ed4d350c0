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
        method: name of the method that predicts the other steps; None if the residual of the block stack is reused.
        conditional_only: steps that are computed in the conditional branch alone.
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
    """All published numbers of the model; `data` is the file's content with the source of each section."""

    data: dict[str, Any]
    step_lists: tuple[StepList, ...]

    def step_list(self, name: str) -> StepList:
        """The step list of this name."""
        return next(row for row in self.step_lists if row.name == name)

    def gain(self, step: int) -> float:
        """Normalised deviation of the final latent / error of the prediction at `step`, 0 to 49 (arXiv 2609.36433)."""
        law = self.data["propagation"]
        return float(law["a"] * ((49 - step) / 49) ** law["b"] + law["c"])


def load_published() -> Published:
    """The published numbers of Wan2.1-T2V-1.3B."""
    data = json.loads(resources.files(__package__).joinpath(f"{NAME}.json").read_text(encoding="utf-8"))
    return Published(data, parse(tuple[StepList, ...], data["step_lists"]["rows"], "step_lists"))
