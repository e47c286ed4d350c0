"""One generated video as a row: seconds and joules of its stages, memory, and how much was computed."""

import sys
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from diffusers import WanPipeline

from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.model_names import EXAMPLE_CAPTION
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.trial import Attach, accelerated, plain

PLAIN = "plain"
SPEEDUPS = {PLAIN: None, "2x": 2.0, "3x": 3.0}
"""The `speedup=` of a variant, which without a profile follows the general schedule."""


@dataclass(frozen=True)
class Scale:
    """Which model and size the parts measure: Wan2.1's, or with `tiny` a model and a video for tests."""

    device: torch.device
    tiny: bool

    def model(self, name: str) -> str:
        return "tiny" if self.tiny else name

    def size(self, name: str) -> str:
        return "32x32x5" if self.tiny else name


def attach_for(variant: str) -> Attach:
    speedup = SPEEDUPS[variant]
    return plain if speedup is None else partial(accelerated, speedup=speedup)


def video_row(pipe: WanPipeline, settings: GenerationSettings, variant: str, *, decode: bool = True) -> dict[str, Any]:
    """The row of one video of seed 0; without `decode` nothing is decoded, and whole seconds end with denoising."""
    device = pipe._execution_device
    reset_peak(device)
    graphs = graphs_compiled()
    with attach_for(variant)(pipe) as attached:
        video = generate(pipe, EXAMPLE_CAPTION, settings, 0, decode=decode)
        report = attached.report() if attached.report else None
    text = video.text_seconds or 0.0
    steps = settings.steps or 0
    return {
        "speedup": SPEEDUPS[variant],
        "seconds": {
            "text_encoding": text,
            "denoising": video.denoise_seconds,
            "decoding": video.end_to_end_seconds - video.denoise_seconds - text,
            "whole": video.end_to_end_seconds,
        },
        "joules": {"denoising": video.energy.denoise, "whole": video.energy.end_to_end, "note": video.energy.note},
        "peak_bytes": peak_bytes(device),
        "steps": steps,
        "full_steps": steps - (report.reused_steps if report else 0),
        "compute_fraction": report.compute_fraction if report else 1.0,
        "graphs_compiled": graphs_compiled() - graphs,  # 0, or the seconds hold a compilation
        "load": video.load,
    }


def reset_peak(device: torch.device) -> None:
    """Begin a new count of `peak_bytes`."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_bytes(device: torch.device) -> int | None:
    """The most memory of a GPU that was in use since `reset_peak`; None on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return None


def graphs_compiled() -> int:
    """Graphs that torch.compile has made in this process."""
    utils = sys.modules.get("torch._dynamo.utils")  # there once something was compiled
    return 0 if utils is None else int(utils.counters["stats"]["unique_graphs"])
