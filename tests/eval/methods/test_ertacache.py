"""ERTACache's schedule and corrections, worked out by hand."""

from dataclasses import replace

import pytest
import torch

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.methods.ertacache import (
    OfflineSchedule,
    slope_through_origin,
    sources_for,
    sources_under,
)
from galaxydit.eval.methods.method_registry import load_method
from galaxydit.eval.methods.trajectory import at, over_pairs, record_each
from galaxydit.pipelines.generate import generate

METHOD, PUBLISHED = load_method("ERTACache (guessed)"), load_method("ERTACache (guessed) published")
# The error grows by 0.1 per step of gap, and twice as fast from step 4 on.
ERRORS = over_pairs(8, lambda earlier, step: (step - earlier) * (0.2 if step >= 4 else 0.1))


def test_a_step_is_reused_while_the_error_of_the_cached_residual_is_below_the_threshold():
    assert sources_under(ERRORS, 0.25) == [0, 0, 0, 3, 3, 5, 5, 7]


def test_threshold_zero_computes_every_step():
    assert sources_under(over_pairs(4, lambda earlier, step: 0.0), 0.0) == [0, 1, 2, 3]


def test_a_residual_older_than_the_table_is_not_reused():
    assert sources_under([[], [0.0], [0.0], [0.0]], 1.0) == [0, 0, 2, 2]


@pytest.mark.parametrize("full_steps", [1, 2, 4, 8])
def test_a_number_of_full_steps_is_met_where_a_threshold_gives_it(full_steps):
    assert len(set(sources_for(ERRORS, full_steps))) == full_steps


def test_the_rule_follows_the_schedule_and_refuses_another_number_of_steps(decided):
    rule = OfflineSchedule((0, 0, 2, 2), 4)
    assert decided(rule, [None] * 4) == [False, True, False, True]
    with pytest.raises(GalaxyDiTError, match="steps=5 is not allowed: expected 4"):
        decided(rule, [None] * 5)


def test_the_factor_is_that_of_least_squares_over_all_pairs():
    pairs = [(torch.tensor([2.0, 0.0]), torch.tensor([1.0, 1.0])), (torch.tensor([3.0]), torch.tensor([2.0]))]
    assert slope_through_origin(pairs) == pytest.approx((2 + 6) / (2 + 4))


def test_a_reused_step_is_the_rectified_residual_on_the_latent_shortened(tiny_wan_pipeline, settings):
    """Step 1 reuses step 0 in both branches; the expected guided prediction follows from a plain recording."""
    settings = replace(settings, steps=4)
    (plain,) = record_each(tiny_wan_pipeline, ["a red ball"], settings, 0)
    calibration = {
        "errors": over_pairs(4, lambda earlier, step: 0.0 if step == 1 else 9.0),
        "factors": {branch: over_pairs(4, lambda *_, k=k: k) for branch, k in (("cond", 0.25), ("uncond", -0.5))},
        "scales": [over_pairs(4, lambda *_: 0.9), over_pairs(4, lambda *_: 0.8)],
    }
    latent = plain.latents[1]
    for adjust, rectify, scale in ((True, True, 0.8), (True, False, 0.9), (False, True, 1.0), (False, False, 1.0)):
        outputs = []
        hook = tiny_wan_pipeline.transformer.register_forward_hook(
            lambda _, __, output, kept=outputs: kept.append(output[0])
        )
        with METHOD.attach(tiny_wan_pipeline, {"full_steps": 3, "adjust": adjust, "rectify": rectify}, calibration):
            generate(tiny_wan_pipeline, "a red ball", settings, 0)
        hook.remove()
        for reused, (branch, factor) in zip(outputs[2:4], (("cond", 0.25), ("uncond", -0.5)), strict=True):
            expected = scale * (latent + (1 + factor * rectify) * plain.residual(0, branch))
            torch.testing.assert_close(reused, expected)


def test_calibrated_corrections_bring_the_guided_prediction_nearer_to_the_true_one(tiny_wan_pipeline, settings):
    """By least squares on the calibration's own recording, so for each pair of steps alone."""
    calibration = METHOD.calibrate(tiny_wan_pipeline, ["a red ball"], settings, 0)
    (plain,) = record_each(tiny_wan_pipeline, ["a red ball"], settings, 0)
    step, earlier = 8, 5
    error = {}
    for corrected in (False, True):
        parts = {}
        for branch, factors in calibration["factors"].items():
            factor = at(factors, earlier, step) if corrected else 0.0
            parts[branch] = plain.latents[step] + (1 + factor) * plain.residual(earlier, branch)
        guided = parts["uncond"] + settings.guidance_scale * (parts["cond"] - parts["uncond"])
        scale = at(calibration["scales"][1], earlier, step) if corrected else 1.0
        assert 0 <= scale <= 1
        error[corrected] = float((scale * guided - plain.guided(step)).norm())
    assert error[True] < error[False]
    expected = (plain.guided(earlier) - plain.latents[earlier]) - (plain.guided(step) - plain.latents[step])
    relative = expected.abs().mean() / (plain.guided(step) - plain.latents[step]).abs().mean()
    assert at(calibration["errors"], earlier, step) == pytest.approx(float(relative), rel=1e-4)


def test_the_published_rows_compute_as_many_steps_as_the_published_speedup_allows():
    assert [setting["full_steps"] for setting in PUBLISHED.settings(50)] == [23, 23, 23]
    assert [(one["adjust"], one["rectify"]) for one in PUBLISHED.settings(50)] == [
        (False, False),
        (True, False),
        (True, True),
    ]
