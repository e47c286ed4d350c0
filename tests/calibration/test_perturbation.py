import numpy as np
import pytest
import torch
from diffusers import WanPipeline

from galaxydit.calibration.disturb import ZONES, disturb, disturbed_schedule, propagation_of
from galaxydit.calibration.drift import Drift
from galaxydit.calibration.record import record_sample
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.propagation import Propagation


@pytest.mark.parametrize("steps", [10, 12, 50])
@pytest.mark.parametrize("zone", ZONES)
def test_single_steps_are_reused_and_never_the_first_two_or_the_last(steps: int, zone: tuple[float, float]) -> None:
    schedule = disturbed_schedule(steps, zone)
    assert {0, 1, steps - 1} <= set(schedule)
    assert max(np.diff(schedule)) == 2
    assert len(schedule) < steps


def test_the_gain_turns_the_drift_into_the_error_at_the_end(
    tiny_wan_pipeline: WanPipeline, settings: GenerationSettings, prompts: list[str]
) -> None:
    recording, plain = record_sample(tiny_wan_pipeline, prompts[0], settings, 0)
    zone, sigma, gain = disturb(tiny_wan_pipeline, recording, plain, 1, "output")
    again = disturb(tiny_wan_pipeline, recording, plain, 1, "output")
    assert (zone, sigma, gain) == again
    assert recording.sigmas[-1] < sigma < recording.sigmas[0]
    full = disturbed_schedule(recording.steps, ZONES[1])
    made = Drift([recording]).at_the_end(full, Propagation())[0]
    assert made > 0
    assert 0.01 < gain < 100
    assert torch.isfinite(plain.latents).all()


def test_levels_of_one_zone_are_averaged_and_sorted_from_noise_to_video_where_nothing_can_grow_any_more() -> None:
    found = propagation_of([(2, 0.2, 1.0), (0, 0.9, 4.0), (0, 0.8, 1.0)])
    assert found.sigmas == pytest.approx((0.85, 0.2, 0.0))
    assert found.gains == pytest.approx((2.0, 1.0, 1.0))
