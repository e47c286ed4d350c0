"""How often a generation makes the host wait for numbers of the device, because each wait drains the device's queue."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from diffusers import WanPipeline
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import galaxydit
from galaxydit.runtime.engine import Engine
from galaxydit.runtime.latent_check import LatentCheck
from galaxydit.runtime.latents import HostCopy
from tests.galaxydit.test_acceleration import run

STEPS = 24
READS = ("_local_scalar_dense", "equal", "nonzero", "is_nonzero")
pytestmark = pytest.mark.filterwarnings("ignore::galaxydit.FullComputeWarning", "ignore::galaxydit.ProfileWarning")


class Reads(TorchDispatchMode):
    """Counts reads that wait for the device's queue to be empty.

    A `HostCopy` waits for nothing if the host has waited since it was made. Latents of full steps are read
    while the step's own forward pass is queued, so the device goes on.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.count = 0
        tolist, latents, weights = Tensor.tolist, LatentCheck.read, Engine._weights
        make, wait = HostCopy.__init__, HostCopy.tensor

        def read(tensor: Tensor) -> list[Any]:
            self.count += 1
            return tolist(tensor)

        def made(copy: HostCopy, tensor: Tensor) -> None:
            make(copy, tensor)
            copy.count_before = self.count

        def waited(copy: HostCopy) -> Tensor:
            self.waits += copy.count_before == self.count
            return wait(copy)

        def uncounted(function: Any, *given: Any) -> Any:
            before = self.count
            result = function(*given)
            self.count = before
            return result

        def of_latents(check: LatentCheck) -> Any:
            self.waits = 0
            result = uncounted(latents, check)
            self.count += self.waits > 0
            return result

        self.waits = 0
        monkeypatch.setattr(Tensor, "tolist", read)
        monkeypatch.setattr(HostCopy, "__init__", made)
        monkeypatch.setattr(HostCopy, "tensor", waited)
        monkeypatch.setattr(LatentCheck, "read", of_latents)
        monkeypatch.setattr(Engine, "_weights", lambda *given: uncounted(weights, *given))

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += function.name().removeprefix("aten::").split(".")[0] in READS
        return function(*args, **(kwargs or {}))


def reads_of(pipe: WanPipeline, **request: Any) -> tuple[int, int]:
    """Reads of the second generation with these settings that the plugin adds to the pipeline's own, and its reused
    steps."""
    counts, reused = [], 0
    for options in ({}, request):
        with galaxydit.accelerate(pipe, **options) if options else nullcontext() as acceleration:
            run(pipe, num_inference_steps=STEPS)
            with pytest.MonkeyPatch.context() as patched, Reads(patched) as reads:
                run(pipe, num_inference_steps=STEPS)
            reused = 0 if acceleration is None else acceleration.report.reused_steps
        counts.append(reads.count)
    return counts[1] - counts[0], reused


OF_A_LOOP = 4  # the scheduler's sigmas and timesteps, which this pipeline holds in host memory, and two at the end


@pytest.mark.parametrize("speedup", [2.0, 3.0])
def test_a_schedule_waits_at_most_once_in_a_reused_step(tiny_wan_pipeline: WanPipeline, speedup: float) -> None:
    waits, reused = reads_of(tiny_wan_pipeline, speedup=speedup)
    assert 0 < waits <= reused + OF_A_LOOP


@pytest.mark.parametrize("request_", [{"threshold": 0.1}, {"speedup": 2.0, "policy": "proxy"}, {"max_error": 0.1}])
def test_a_proxy_waits_once_in_a_step(tiny_wan_pipeline: WanPipeline, request_: dict[str, Any]) -> None:
    waits, _ = reads_of(tiny_wan_pipeline, **request_)
    assert waits <= (STEPS - 1) + OF_A_LOOP


def test_a_host_copy_keeps_what_the_tensor_held() -> None:
    tensor = torch.tensor([1.0, 2.0])
    assert HostCopy(tensor).tensor().tolist() == [1.0, 2.0]


def test_decoding_in_many_parts_does_not_ask_for_the_device(
    tiny_wan_pipeline: WanPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding the device walks all modules of the pipeline, and Wan's VAE decodes each latent frame in one call."""
    asked, of_pipe = [0], WanPipeline._execution_device

    def count(pipe: WanPipeline) -> torch.device:
        asked[0] += 1
        return of_pipe.fget(pipe)

    monkeypatch.setattr(WanPipeline, "_execution_device", property(count))

    def asked_by(frames: int) -> int:
        asked[0] = 0
        run(tiny_wan_pipeline, num_inference_steps=10, num_frames=frames, output_type="np")
        return asked[0]

    plain = asked_by(17)
    with galaxydit.accelerate(tiny_wan_pipeline, speedup=2.0):
        asked_by(17)
        assert asked_by(17) <= plain + 2  # for the prompt and the negative prompt
