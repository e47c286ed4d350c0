"""How often a generation makes the host wait for numbers of the device, because each wait drains the device's queue."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from diffusers import WanPipeline
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import galaxydit
from galaxydit.runtime.reuse import StepReuse
from galaxydit.runtime.transformer_state import HostCopy
from tests.galaxydit.test_acceleration import run

STEPS = 50
READS = ("_local_scalar_dense", "equal", "nonzero", "is_nonzero")
pytestmark = pytest.mark.filterwarnings("ignore::galaxydit.FullComputeWarning", "ignore::galaxydit.ProfileWarning")


class Reads(TorchDispatchMode):
    """Counts reads of tensors, apart from the errors of full steps, which the device copies long before."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.count, tolist, judge = 0, Tensor.tolist, StepReuse._judge_slopes

        def read(tensor: Tensor) -> list[Any]:
            self.count += 1
            return tolist(tensor)

        def judge_uncounted(*given: Any) -> None:
            before = self.count
            judge(*given)
            self.count = before

        monkeypatch.setattr(Tensor, "tolist", read)
        monkeypatch.setattr(StepReuse, "_judge_slopes", staticmethod(judge_uncounted))

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += function.name().removeprefix("aten::").split(".")[0] in READS
        return function(*args, **(kwargs or {}))


def reads_of(pipe: WanPipeline, **request: Any) -> int:
    """Reads of the second generation with these settings that the plugin adds to the pipeline's own."""
    counts = []
    for options in ({}, request):
        with galaxydit.accelerate(pipe, **options) if options else nullcontext():
            run(pipe, num_inference_steps=STEPS)
            with pytest.MonkeyPatch.context() as patched, Reads(patched) as reads:
                run(pipe, num_inference_steps=STEPS)
        counts.append(reads.count)
    return counts[1] - counts[0]


@pytest.mark.parametrize("speedup", [2.0, 3.0])
def test_a_schedule_waits_for_two_comparisons_of_latents_alone(tiny_wan_pipeline: WanPipeline, speedup: float) -> None:
    # Beside them, the scheduler's sigmas and timesteps are read, which this pipeline holds in host memory.
    assert reads_of(tiny_wan_pipeline, speedup=speedup) <= 2 + 2


@pytest.mark.parametrize("request_", [{"threshold": 0.1}, {"speedup": 2.0, "policy": "proxy"}, {"max_error": 0.1}])
def test_a_proxy_waits_once_in_a_step(tiny_wan_pipeline: WanPipeline, request_: dict[str, Any]) -> None:
    assert reads_of(tiny_wan_pipeline, **request_) <= (STEPS - 1) + 2 + 2


def test_a_loop_that_is_not_the_pipelines_waits_once_in_a_step(
    tiny_wan_pipeline: WanPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("galaxydit.runtime.session.Source.is_running", False)
    assert reads_of(tiny_wan_pipeline, speedup=2.0) <= (STEPS - 1) + 2


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
