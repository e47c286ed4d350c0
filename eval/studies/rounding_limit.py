"""The PSNR that rounding leaves to a method whose predictions are exact but for the rounding of the last full step.

`python -m galaxydit.eval.studies.rounding_limit --prompts 12` logs it at the schedules of the shipped
profile, on captions not used in training. Full steps are computed in bfloat16. At the others the model is computed in
float32 at the latent as it is, and the rounding error of the branch's last full step is added.

A method that computes one step of three gives each computed output three times the weight, and its rounding error with
it. The weights of any consistent prediction have the same sum, so the expected squared error of n steps with the
weights w grows from n to the sum of w squared, however the prediction is made; the plain video has an error of its own.
"""

import argparse
import logging
from collections.abc import Collection
from typing import Any

import torch
from diffusers.hooks.hooks import HookRegistry, ModelHook
from torch import Tensor, nn

from galaxydit.eval.studies.rounding import SEED, SPEEDUPS, Rounding, report
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.wan_tiny.world import draw_prompts

HOOK = "exact_prediction"


class ExactPrediction(ModelHook):
    """Predicts reused steps by the same transformer in float32, plus the rounding error of the last full step.

    `repeats_rounding=False` leaves the rounding error out. Calls are those of one pipeline at a time: conditional and
    unconditional in turns.
    """

    def __init__(self, exact: nn.Module, full_steps: Collection[int], steps: int, *, repeats_rounding: bool) -> None:
        super().__init__()
        self.exact, self.full_steps, self.steps, self.repeats_rounding = exact, full_steps, steps, repeats_rounding
        self.calls = 0
        self.rounding: dict[int, Tensor] = {}

    def new_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> tuple[Tensor]:
        step, branch = self.calls // 2 % self.steps, self.calls % 2
        self.calls += 1
        floats = {name: value.float() if isinstance(value, Tensor) else value for name, value in kwargs.items()}
        output: Tensor
        if step not in self.full_steps:
            output = self.exact(**floats)[0]
            return ((output + self.rounding[branch] if self.repeats_rounding else output).bfloat16(),)
        (output,) = self.fn_ref.original_forward(*args, **kwargs)
        if step + 1 < self.steps and step + 1 not in self.full_steps:
            self.rounding[branch] = output.float() - self.exact(**floats)[0]
        return (output,)


def measure(prompts: int, speedups: Collection[float]) -> None:
    """Log the PSNR at each speedup, with the rounding error of the last full step and without."""
    exact = load_pipeline("wan-tiny", dtype=torch.float32).transformer
    pipe = load_pipeline("wan-tiny", dtype=torch.bfloat16)
    pipe.set_progress_bar_config(disable=True)
    bench = Rounding(pipe, draw_prompts(prompts, SEED))
    plain = bench.videos()
    sigmas = bench.profile.conditions.sigmas
    registry = HookRegistry.check_if_exists_or_initialize(pipe.transformer)
    for speedup in speedups:
        full = {sigmas.index(sigma) for sigma in bench.profile.target_for(speedup).sigmas}
        for name, repeats in (("rounding repeated", True), ("no rounding", False)):
            registry.register_hook(ExactPrediction(exact, full, len(sigmas), repeats_rounding=repeats), HOOK)
            report(f"{speedup:g}x, exact predictions, {name}", bench.videos(), plain)
            registry.remove_hook(HOOK)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--speedups", type=float, nargs="+", default=SPEEDUPS)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    with torch.no_grad():
        measure(arguments.prompts, arguments.speedups)


if __name__ == "__main__":
    main()
