"""Plain steps at the planned noise levels, without the plugin."""

from typing import Any

import numpy as np
import pytest
from diffusers import CogVideoXDDIMScheduler, FlowMatchEulerDiscreteScheduler, UniPCMultistepScheduler

import galaxydit
from galaxydit import GalaxyDiTError


def test_a_pipeline_without_sigmas_samples_at_the_levels_of_its_full_steps(tiny_wan: Any) -> None:
    with galaxydit.accelerate(tiny_wan.pipe, speedup=2.0, policy="schedule") as acceleration:
        tiny_wan.run()
    planned = galaxydit.noise_levels(tiny_wan.pipe, 2.0, 12)
    computed = sorted({call.step for call in acceleration.report.calls if not call.reused})
    assert planned.full_steps == tuple(computed)
    tiny_wan.pipe.scheduler = planned.scheduler
    tiny_wan.run(num_inference_steps=len(planned.levels))
    np.testing.assert_allclose(tiny_wan.pipe.scheduler.sigmas[:-1], planned.levels, atol=2e-6)
    assert tuple(tiny_wan.pipe.scheduler.timesteps.tolist()) == planned.timesteps


@pytest.mark.parametrize("shift", [1.0, 7.0])
def test_a_scheduler_that_takes_sigmas_shifts_them_to_the_levels(tiny_wan: Any, shift: float) -> None:
    tiny_wan.pipe.scheduler = FlowMatchEulerDiscreteScheduler(shift=shift)
    planned = galaxydit.noise_levels(tiny_wan.pipe, 3.0, 30)
    tiny_wan.pipe.scheduler.set_timesteps(sigmas=list(planned.sigmas))
    np.testing.assert_allclose(tiny_wan.pipe.scheduler.sigmas[:-1], planned.levels, atol=1e-6)
    assert len(planned.levels) == 10


@pytest.mark.parametrize(
    "scheduler",
    [
        CogVideoXDDIMScheduler(),
        UniPCMultistepScheduler(),
        FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True),
    ],
)
def test_other_schedulers_are_refused(tiny_wan: Any, scheduler: Any) -> None:
    tiny_wan.pipe.scheduler = scheduler
    with pytest.raises(GalaxyDiTError, match=f"scheduler='{type(scheduler).__name__}' is not allowed"):
        galaxydit.noise_levels(tiny_wan.pipe)
