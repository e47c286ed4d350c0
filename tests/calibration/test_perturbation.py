import math

import numpy as np
import pytest
import torch
from diffusers import WanPipeline

import galaxydit
from galaxydit import FixedSteps, GalaxyDiTConfig
from galaxydit.calibration.generation_observer import record_sample
from galaxydit.calibration.perturbation import (
    INTERVALS,
    PRIOR,
    PRIOR_SAMPLES,
    perturb,
    perturbed_schedule,
    propagation_of,
)
from galaxydit.calibration.search import ScheduleError
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.profiles.evidence import ErrorPropagation


@pytest.mark.parametrize("steps", [10, 12, 50])
@pytest.mark.parametrize("interval", INTERVALS)
def test_single_steps_are_reused_and_never_the_first_two_or_the_last(steps: int, interval: tuple[float, float]) -> None:
    schedule = perturbed_schedule(steps, interval)
    assert {0, 1, steps - 1} <= set(schedule)
    assert max(np.diff(schedule)) == 2
    assert len(schedule) < steps


def test_the_sensitivity_turns_the_introduced_error_into_the_final_error(
    tiny_wan_pipeline: WanPipeline, settings: GenerationSettings, prompts: list[str]
) -> None:
    recording, plain, outputs = record_sample(tiny_wan_pipeline, prompts[0], settings, 0)
    interval, sigma, sensitivity = perturb(tiny_wan_pipeline, recording, plain, outputs, 1)
    again = perturb(tiny_wan_pipeline, recording, plain, outputs, 1)
    assert (interval, sigma, sensitivity) == again
    assert recording.sigmas[-1] < sigma < recording.sigmas[0]
    full = perturbed_schedule(recording.steps, INTERVALS[1])
    introduced = ScheduleError([recording], corrects=False).final_error(full, ErrorPropagation())[0]
    with galaxydit.accelerate(tiny_wan_pipeline, config=GalaxyDiTConfig(FixedSteps(full), order=1, correction=False)):
        changed = generate(tiny_wan_pipeline, prompts[0], settings, 0, decode=False).latents
    final = torch.linalg.vector_norm(changed - plain.latents) / math.sqrt(changed.numel())
    assert sensitivity * math.sqrt(introduced) == pytest.approx(float(final), rel=1e-4)


def test_the_median_of_an_interval_counts_shrunk_to_the_prior_and_the_sensitivity_at_the_end_is_1() -> None:
    found = propagation_of([(2, 0.2, 1.0), (0, 0.9, 4.0), (0, 0.8, 5.0), (0, 0.7, 500.0)])
    assert found.sigmas == pytest.approx((0.8, 0.2, 0.0))
    early = (5.0**3 * PRIOR[0] ** PRIOR_SAMPLES) ** (1 / (3 + PRIOR_SAMPLES))
    late = PRIOR[2] ** (PRIOR_SAMPLES / (1 + PRIOR_SAMPLES))
    assert found.sensitivities == pytest.approx((early, late, 1.0), rel=1e-4)


def test_two_intervals_at_one_noise_level_count_as_one_as_in_short_generations() -> None:
    found = propagation_of([(0, 0.7, 5.0), (1, 0.7, 50.0)])
    assert found.sigmas == (0.7, 0.0)
