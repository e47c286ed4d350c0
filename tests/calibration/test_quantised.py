"""Quantised layers compute as they are; their recordings are rid of an estimate of the rounding."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import WanPipeline
from quantised import QUANTISED

import galaxydit
from galaxydit.calibration.budget import Budget
from galaxydit.calibration.calibration import calibrate
from galaxydit.calibration.full_precision import is_rounded
from galaxydit.calibration.generation_observer import record_sample
from galaxydit.calibration.recording import Recording, estimated_rounding, rounding_between
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.published_models import WAN_TINY

SETTINGS = replace(WAN_TINY, height=32, width=32, num_frames=5, steps=25)
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")


def quantised_wan_tiny(name: str, dtype: torch.dtype) -> WanPipeline:
    pipe = load_pipeline("wan-tiny", dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)
    pipe.transformer.to(dtype)
    QUANTISED[name](pipe.transformer)
    return pipe


@cache
def recordings_of(name: str) -> tuple[Recording, Recording]:
    """One generation with quantised weights, in float32 and as bfloat16 rounds it."""
    exact, *_ = record_sample(quantised_wan_tiny(name, torch.float32), "a red ball", SETTINGS, 1)
    pipe = quantised_wan_tiny(name, torch.bfloat16)
    assert not is_rounded(pipe), "no layer is widened"
    own, *_ = record_sample(pipe, "a red ball", SETTINGS, 1)
    return exact, own


@pytest.mark.parametrize("name", QUANTISED)
def test_the_rounding_of_a_quantised_model_is_estimated(name: str) -> None:
    def changes(recording: Recording) -> np.ndarray:
        return np.diagonal(recording.products)

    exact, own = recordings_of(name)
    estimated = estimated_rounding(own)
    assert estimated == pytest.approx(rounding_between(own, exact), rel=0.3)
    before, after = (np.median(changes(one) / changes(exact)) for one in (own, own.without_rounding(estimated)))
    assert 0.5 < after < before / 2


def test_a_quantised_model_is_calibrated_without_its_rounding(tmp_path: Path) -> None:
    """Whichever quantisation it has, the calibration asks `is_rounded` alone."""
    name = next(iter(QUANTISED))
    _, own = recordings_of(name)
    pipe = quantised_wan_tiny(name, torch.bfloat16)
    options = {"budget": Budget((1, 1), check=False), "settings": SETTINGS, "full_size": True, "seed": 1}
    made = calibrate(pipe, ["a red ball"], resume_dir=tmp_path, speedups=(2.0,), **options)
    (recording,) = made.recordings
    assert recording.guided_products == own.without_rounding(estimated_rounding(own)).guided_products
    assert recording.rounding == estimated_rounding(own)

    with galaxydit.accelerate(pipe, speedup=2.0, profile=made.profile) as acceleration:
        generate(pipe, "a red ball", SETTINGS, 2)
    assert acceleration.report.compute_fraction == pytest.approx(0.5, abs=0.03)
    assert all("unverified" in note for note in acceleration.report.notes)
