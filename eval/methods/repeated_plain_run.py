"""Control: compute every step, but round the first step's output differently, to measure the PSNR of rounding alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from diffusers import DiffusionPipeline
from torch import Tensor

from galaxydit import GalaxyDiTConfig, Observer, Threshold
from galaxydit.acceleration import Acceleration
from galaxydit.eval.methods.method import Setting, method
from galaxydit.pipelines.trial import Attached
from galaxydit.runtime.call import Call


class PerturbedRounding(Observer):
    """Multiplies the first step's outputs by 1 + eps u, u uniform in [-0.5, 0.5), eps of their dtype."""

    def __init__(self) -> None:
        self.generator = torch.Generator()

    def on_output(self, call: Call, output: Tensor) -> None:
        if call.info.step == 0:
            draws = torch.rand(output.shape, generator=self.generator).to(output.device)
            output.copy_(output.double() * (1 + torch.finfo(output.dtype).eps * (draws - 0.5)))


@method("repeated plain run", "control", lambda steps: [{"steps": steps}], tuned=False)
@contextmanager
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Iterator[Attached]:
    with Acceleration(pipe, GalaxyDiTConfig(Threshold(0)), observer=PerturbedRounding()):
        yield Attached(lambda: 0)
