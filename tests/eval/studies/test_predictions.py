"""The study's default variant is the plugin's own prediction."""

from dataclasses import replace

import pytest
import torch

import galaxydit
from galaxydit import FixedSteps, GalaxyDiTConfig
from galaxydit.eval.compare.rules.rule_engine import driven
from galaxydit.eval.studies.predictions import VARIANTS, Prediction, least_squares, line, repeated
from galaxydit.pipelines.generate import generate

FULL = (0, 1, 2, 4, 7, 11)


def test_the_default_variant_generates_what_the_plugin_does(tiny_wan_pipeline, tiny_settings):
    settings = replace(tiny_settings, steps=12)

    def latents():
        return generate(tiny_wan_pipeline, "a red ball", settings, 3, decode=False).latents

    plain = latents()
    with galaxydit.accelerate(
        tiny_wan_pipeline, config=GalaxyDiTConfig(FixedSteps(FULL), order=1, correction=False)
    ) as acceleration:
        expected = latents()
    assert acceleration.report.compute_fraction == pytest.approx(len(FULL) / 12)
    default = VARIANTS["order 1: the last slope, damped (the default)"]
    with driven(tiny_wan_pipeline, Prediction(FULL, default)):
        torch.testing.assert_close(latents(), expected, atol=1e-4, rtol=1e-4)
    assert (expected - plain).abs().max() > 1e-3


@pytest.mark.parametrize("weights", [repeated, line(1), line(2, 0.85), least_squares])
def test_weights_sum_to_1(weights):
    assert sum(weights([1.0, 0.8, 0.7], 0.5)) == pytest.approx(1.0)


def test_an_undamped_line_and_least_squares_continue_a_line():
    places, place = [1.0, 0.8, 0.7], 0.5
    for weights in (line(1), line(2), least_squares):
        found = weights(places, place)
        assert sum(w * p for w, p in zip(found, places[-len(found) :], strict=True)) == pytest.approx(place)
