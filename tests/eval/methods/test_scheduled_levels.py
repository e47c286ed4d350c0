"""Plain steps at the noise levels that the plugin computes."""

from dataclasses import replace

import numpy as np
import pytest
from diffusers import FlowMatchEulerDiscreteScheduler

import galaxydit
from galaxydit import GalaxyDiTError
from galaxydit.eval.methods.registry import load_method
from galaxydit.pipelines.generate import generate

PROMPT, STEPS = "a red ball", 12
METHOD = load_method("plain at scheduled levels")


@pytest.mark.filterwarnings("ignore::galaxydit.ProfileWarning")
@pytest.mark.parametrize("flow_shift", [None, 2.5])
@pytest.mark.parametrize("speedup", [1.5, 2.0, 3.0])
def test_the_levels_are_those_of_the_plugins_full_steps(tiny_wan_pipeline, tiny_settings, speedup, flow_shift):
    settings = replace(tiny_settings, steps=STEPS, flow_shift=flow_shift)
    with galaxydit.accelerate(tiny_wan_pipeline, speedup=speedup, policy="schedule") as acceleration:
        generate(tiny_wan_pipeline, PROMPT, settings, seed=0, decode=False)
    computed = sorted({call.sigma for call in acceleration.report.calls if not call.reused}, reverse=True)
    levels, setting = [], {"speedup": speedup, "of": STEPS}

    def note_levels(done: int, total: int) -> None:
        levels.append(tiny_wan_pipeline.scheduler.sigmas[:-1])

    few = METHOD.generation(settings, setting)
    with METHOD.attach(tiny_wan_pipeline, setting, None):
        generate(tiny_wan_pipeline, PROMPT, few, seed=0, decode=False, on_step=note_levels)
    np.testing.assert_allclose(levels[0], computed, atol=1e-6)
    if flow_shift is None:
        np.testing.assert_allclose(
            galaxydit.noise_levels(tiny_wan_pipeline, speedup, STEPS).levels, computed, atol=1e-6
        )
    assert len(levels) == few.steps == len(computed) < STEPS


def test_a_scheduler_other_than_unipc_is_refused(tiny_wan_pipeline):
    tiny_wan_pipeline.scheduler = FlowMatchEulerDiscreteScheduler()
    with (
        pytest.raises(GalaxyDiTError, match="scheduler='FlowMatchEulerDiscreteScheduler' is not allowed"),
        METHOD.attach(tiny_wan_pipeline, {"speedup": 2.0, "of": STEPS}, None),
    ):
        pass
