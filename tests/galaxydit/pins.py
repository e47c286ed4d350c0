"""Generations whose latents and decisions are kept, so that a change of the engine shows whatever it changes.

Latents differ between kinds of processors, so where another processor made the pins, decisions alone are compared.

    python -m tests.galaxydit.pins          # writes pins.json anew: only for a change that is meant
    python -m tests.galaxydit.pins --show   # prints it
"""

import hashlib
import json
import os
import platform
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from diffusers import (
    DPMSolverMultistepScheduler,
    FlowMatchEulerDiscreteScheduler,
    UniPCMultistepScheduler,
    WanPipeline,
    WanTransformer3DModel,
)
from torch import Tensor

import galaxydit
from galaxydit.policies.general_schedule import general_schedule
from galaxydit.policies.proxy_threshold import ProxyThreshold
from galaxydit.report import Report

sys.path.insert(0, str(Path(__file__).parent / "tiny"))
from tiny_parts import Tiny, embedding
from tiny_table import PIPELINES

PINS = Path(__file__).with_suffix(".json")
STEPS = 20
FLOW = {"prediction_type": "flow_prediction", "use_flow_sigmas": True, "flow_shift": 3.0}
SCHEDULERS: Mapping[str, Callable[[], Any]] = {
    "UniPC": lambda: UniPCMultistepScheduler(**FLOW),
    "Euler": lambda: FlowMatchEulerDiscreteScheduler(shift=3.0),
    "DPM++": lambda: DPMSolverMultistepScheduler(**FLOW),
}
# Every pair of values of scheduler, reuse, policy and speedup occurs.
CASES = (
    ("UniPC", "output", "schedule", 2.0),
    ("UniPC", "residual", "proxy", 3.0),
    ("UniPC", "output", "threshold", 3.0),
    ("UniPC", "residual", "paper", 2.0),
    ("UniPC", "output", "proxy", 2.0),
    ("Euler", "residual", "schedule", 3.0),
    ("Euler", "output", "proxy", 2.0),
    ("Euler", "residual", "threshold", 2.0),
    ("Euler", "output", "paper", 3.0),
    ("Euler", "output", "schedule", 2.0),
    ("DPM++", "output", "schedule", 3.0),
    ("DPM++", "residual", "proxy", 2.0),
    ("DPM++", "residual", "threshold", 3.0),
    ("DPM++", "output", "paper", 2.0),
    ("DPM++", "residual", "schedule", 2.0),
)
THRESHOLDS = {"threshold": {2.0: 0.15, 3.0: 0.3}, "paper": {2.0: 0.15, 3.0: 0.3}}
WAN_TINY = {"num_attention_heads": 7, "attention_head_dim": 32, "text_dim": 128, "freq_dim": 128, "ffn_dim": 896}
WAN_TINY |= {"num_layers": 10, "in_channels": 16, "out_channels": 16, "rope_max_seq_len": 128}

Pin = dict[str, Any]
"""A hash of the latents, and for each call "step branch full" or "step branch reused"."""


def processor() -> str:
    """The processor's name, for which latents are equal from run to run."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    kinds = {line.split(":")[1].strip() for line in lines if line.startswith(("model name", "model\t", "stepping"))}
    threads = os.environ.get("OMP_NUM_THREADS", "any")  # libraries choose other kernels for other numbers
    kernels = torch.backends.cpu.get_cpu_capability()
    return f"{' '.join(sorted(kinds))}, {kernels}, torch {torch.__version__}, OMP_NUM_THREADS {threads}"


def pin(latents: Tensor, report: Report) -> Pin:
    calls = []
    for call in report.calls:
        done = "reused" if call.reused else "full"
        calls.append(f"{call.step} {call.transformer} {call.branch} {done}")
    digest = hashlib.sha256(latents.float().contiguous().numpy().tobytes()).hexdigest()
    return {"latents": digest, "calls": calls}


def config_of(reuse: str, policy: str, speedup: float) -> galaxydit.GalaxyDiTConfig:
    schedule = general_schedule(speedup)
    common = {"reuse": reuse, "few_steps": 0, "proxy": "block_residual"}
    if policy == "schedule":
        return galaxydit.GalaxyDiTConfig(schedule, warmup=0.04, **common)
    if policy == "proxy":
        return galaxydit.GalaxyDiTConfig(ProxyThreshold(schedule), warmup=0.04, **common)
    plain = {"order": 0, "correction": False} if policy == "paper" else {}
    return galaxydit.GalaxyDiTConfig(galaxydit.Threshold(THRESHOLDS[policy][speedup]), **common, **plain)


@cache
def wan_tiny_transformer() -> WanTransformer3DModel:
    """A transformer of wan-tiny's shape with random weights; attaching and removing the plugin leaves it as it was."""
    torch.manual_seed(0)
    return WanTransformer3DModel(**WAN_TINY).eval()


def run_case(scheduler: str, reuse: str, policy: str, speedup: float) -> Pin:
    """A small video of a transformer of wan-tiny's shape with random weights."""
    transformer = wan_tiny_transformer()
    parts = {"tokenizer": None, "text_encoder": None, "vae": None}
    pipe = WanPipeline(**parts, scheduler=SCHEDULERS[scheduler](), transformer=transformer)
    pipe.set_progress_bar_config(disable=True)
    with galaxydit.accelerate(pipe, config=config_of(reuse, policy, speedup)) as acceleration:
        latents = pipe(
            prompt_embeds=embedding(8, 128),
            negative_prompt_embeds=embedding(8, 128, seed=1),
            height=64,
            width=64,
            num_frames=5,
            num_inference_steps=STEPS,
            generator=torch.Generator().manual_seed(0),
            output_type="latent",
        ).frames
    return pin(latents, acceleration.report)


def run_tiny(tiny: Tiny) -> Pin:
    """A tiny pipeline at 2x, by the general schedule."""
    pipe, run = tiny.build()
    config = galaxydit.GalaxyDiTConfig(general_schedule(2.0), warmup=0.04, few_steps=0)
    with galaxydit.accelerate(pipe, config=config) as acceleration:
        latents = run(steps=STEPS)
    return pin(latents, acceleration.report)


def make() -> dict[str, Any]:
    """All pins of this state of the code."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    cases = {" ".join(map(str, case)): run_case(*case) for case in CASES}
    tiny = {name: run_tiny(replace(each)) for name, each in PIPELINES.items()}
    return {"processor": processor(), "wan-tiny": cases, "tiny": tiny}


if __name__ == "__main__":
    made = make()
    if "--show" in sys.argv:
        print(json.dumps(made))  # noqa: T201
    else:
        PINS.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
