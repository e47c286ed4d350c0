"""What 2x costs on wan-tiny under each scheduler that draws noise in every step.

`python -m galaxydit.eval.drawn_noise --prompts 16 --out DIR` generates each caption plain from two draws of the
noise, and accelerated from the first, by the profile that was measured with UniPC. It resumes an interrupted run.
"""

import argparse
import copy
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import diffusers
import torch
from torch import Tensor, nn

import galaxydit
from galaxydit.calibration.prompt_files import WAN_TINY_PROMPTS, read_prompts
from galaxydit.errors import check_count
from galaxydit.eval.measured_rows import resumed
from galaxydit.eval.methods.ablations import shipped
from galaxydit.eval.metrics.registry import measure, select
from galaxydit.pipelines.generate import GeneratedVideo, generate
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.own_files import check_replaceable, own_json
from galaxydit.pipelines.psnr import psnr
from galaxydit.pipelines.published_models import recommended_settings
from galaxydit.pipelines.wan_tiny.world import draw_prompts
from galaxydit.pipelines.written_by import DRAWN_NOISE, write_own_json
from galaxydit.runtime.guidance import guide

SPEEDUP, SHIFT, SEED = 2.0, 1.5, 700
METRICS = ("caption_colours", "caption_motions", "temporal_flickering")
FLOW = {"prediction_type": "flow_prediction", "use_flow_sigmas": True, "flow_shift": SHIFT}
SCHEDULERS: dict[str, Callable[[], Any]] = {
    "FlowMatchEuler": lambda: diffusers.FlowMatchEulerDiscreteScheduler(shift=SHIFT, stochastic_sampling=True),
    "DPM++ SDE": lambda: diffusers.DPMSolverMultistepScheduler(**FLOW, algorithm_type="sde-dpmsolver++"),
    "SA-Solver": lambda: diffusers.SASolverScheduler(**FLOW),
    "LTX Euler ancestral RF": lambda: diffusers.LTXEulerAncestralRFScheduler(),
    "DPM++ SDE singlestep": lambda: diffusers.DPMSolverSinglestepScheduler(**FLOW, algorithm_type="sde-dpmsolver++"),
}


def relative_errors(calls: Sequence[tuple[bool, Tensor, Tensor]], guidance: float) -> list[float]:
    """Relative L2 error of the guided prediction at each reused step.

    `calls` alternate between the branches: whether reused, the output used, the output computed from the same latent.
    """
    errors = []
    for (reused, *conditional), (_, *unconditional) in zip(calls[::2], calls[1::2], strict=True):
        if reused:
            used, computed = (guide(*pair, guidance) for pair in zip(conditional, unconditional, strict=True))
            errors.append(float((used - computed).norm() / computed.norm()))
    return errors


def measure_caption(pipe: Any, make: Callable[[], Any], prompt: str) -> dict[str, Any]:
    """Measurements of one caption under the scheduler that `make` returns, plain and accelerated."""
    settings = replace(recommended_settings(pipe), flow_shift=None)  # each scheduler has its own
    reference, metrics = copy.deepcopy(pipe.transformer), select(METRICS)

    def video(seed: int) -> GeneratedVideo:
        pipe.scheduler = make()
        torch.manual_seed(seed)  # WanPipeline passes no generator to the scheduler's step
        return generate(pipe, prompt, settings, seed)

    plain, other = video(0), video(1)
    rows: dict[str, Any] = {"prompt": prompt, "psnr_two_plain_draws": psnr(plain.frames, other.frames)}
    rows["plain"] = [measure(one.frames, None, prompt, metrics)[0] for one in (plain, other)]
    calls: list[tuple[bool, Tensor, Tensor]] = []
    with galaxydit.accelerate(pipe, config=shipped(pipe, speedup=SPEEDUP)) as acceleration:

        def compare(module: nn.Module, args: Any, kwargs: dict[str, Any], output: tuple[Tensor, ...]) -> None:
            reused = acceleration.report.calls[-1].reused
            computed = reference(*args, **kwargs)[0] if reused else output[0]
            calls.append((reused, output[0].float(), computed.float()))

        handle = pipe.transformer.register_forward_hook(compare, with_kwargs=True)
        fast = video(0)
        handle.remove()
    rows["accelerated"] = measure(fast.frames, None, prompt, metrics)[0] | {
        "compute_fraction": acceleration.report.compute_fraction,
        "step_errors": relative_errors(calls, settings.guidance_scale or 1.0),
        "psnr_same_draw": psnr(fast.frames, plain.frames),
        "psnr_other_draw": psnr(fast.frames, other.frames),
    }
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--out", type=Path, required=True, help="folder of results.json, written after each caption")
    parser.add_argument("--force", action="store_true", help="go on in a file that this command did not write")
    given = parser.parse_args()
    check_count("--prompts", given.prompts, 2)
    check_replaceable(given.out / "results.json", "--out", own_json(DRAWN_NOISE), force=given.force)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    pipe, path = load_pipeline("wan-tiny", dtype=torch.bfloat16), given.out / "results.json"
    pipe.set_progress_bar_config(disable=True)
    captions = draw_prompts(given.prompts, SEED, apart_from=read_prompts(WAN_TINY_PROMPTS))
    content: dict[str, Any] = {"captions": {}, "speedup": SPEEDUP} | resumed(path, pipe)
    rows = content["captions"]
    for name, make in SCHEDULERS.items():
        done = rows.setdefault(name, [])
        for prompt in captions[len(done) :]:
            done.append(measure_caption(pipe, make, prompt))
            write_own_json(path, DRAWN_NOISE, content)
            logging.info("%s, %d captions: %s", name, len(done), done[-1])


if __name__ == "__main__":
    main()
