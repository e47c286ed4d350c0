"""Accelerators without float64 (Apple silicon), and a default device other than the CPU."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import WanPipeline
from tiny_table import PIPELINES
from torch import Tensor
from torch.overrides import TorchFunctionMode

import galaxydit
from galaxydit import GalaxyDiTConfig, Threshold
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.profiles.fingerprint import project_weights
from galaxydit.runtime.scheduler_response import scheduler_response

SOURCE = str(Path(galaxydit.__file__).parent)
FACTORIES = {"tensor", "zeros", "ones", "empty", "full", "arange", "linspace", "eye", "rand", "randn", "fftfreq"}
PROXY = GalaxyDiTConfig(Threshold(0.3), proxy="block_residual", max_consecutive=2)


class Accelerator(TorchFunctionMode):
    """Tensors stand for those of an accelerator without float64, and every tensor that the plugin makes names a device.

    What `cpu()` returns may become float64, and so may what is made with `device="cpu"`.
    """

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, frame = kwargs or {}, sys._getframe(1)
        while frame.f_back is not None and "/torch/" in frame.f_code.co_filename:
            frame = frame.f_back
        if not frame.f_code.co_filename.startswith(SOURCE):
            return function(*args, **kwargs)
        name = getattr(function, "__name__", "")
        assert name not in FACTORIES or "device" in kwargs, f"{name} on the default device"
        result, given = function(*args, **kwargs), [item for item in args if isinstance(item, Tensor)]
        if isinstance(result, Tensor):
            result.is_copy = name == "cpu"  # type: ignore[attr-defined]
            may = any(item.dtype == torch.float64 or getattr(item, "is_copy", False) for item in given)
            assert result.dtype != torch.float64 or may or str(kwargs.get("device")) == "cpu", f"{name} makes float64"
        return result


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PIPELINES)
def test_every_pipeline_runs_without_float64_and_without_a_default_device(name: str) -> None:
    """That a watched generation equals another one is tested with a batch, below."""
    pipe, run = PIPELINES[name].build()
    for request in ({"speedup": 2.0}, {"config": PROXY}):
        with Accelerator(), galaxydit.accelerate(pipe, **request) as watched:
            assert run().isfinite().all()
        assert watched.report.calls


@pytest.mark.parametrize("config", [PROXY, GalaxyDiTConfig(Threshold(0.3), reuse="residual", max_consecutive=2)])
def test_a_batch_whose_samples_are_decided_apart_runs_there_too(tiny_wan: Any, config: GalaxyDiTConfig) -> None:
    prompts = ["a red ball", "a blue square and a green ring"]
    with galaxydit.accelerate(tiny_wan.pipe, config=config) as acceleration:
        expected = tiny_wan.run(prompt=prompts)
    with Accelerator(), galaxydit.accelerate(tiny_wan.pipe, config=config) as watched:
        assert torch.equal(tiny_wan.run(prompt=prompts), expected)
    assert watched.report.calls == acceleration.report.calls


def test_a_profile_is_found_whatever_the_default_device() -> None:
    pipe = load_pipeline("wan-tiny", dtype=torch.float32)
    with torch.device("meta"), galaxydit.accelerate(pipe, speedup=2.0) as acceleration:
        assert acceleration.profile is not None


def test_weights_and_responses_are_measured_on_the_cpu_whatever_the_default_device(
    tiny_wan_pipeline: WanPipeline,
) -> None:
    scheduler = tiny_wan_pipeline.scheduler
    scheduler.set_timesteps(12)
    sigmas = scheduler.sigmas[:12].tolist()

    def found() -> tuple[Any, Any]:
        with Accelerator():
            return project_weights(tiny_wan_pipeline.transformer), scheduler_response(scheduler, sigmas)

    expected = found()
    with torch.device("meta"):
        assert found() == expected
