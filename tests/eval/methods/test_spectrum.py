"""Spectrum's full steps and forecasts, worked out by hand or by NumPy's own fit."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from diffusers import WanPipeline
from numpy.polynomial.chebyshev import Chebyshev
from torch import Tensor

from galaxydit.eval.methods.method_registry import load_method
from galaxydit.eval.methods.spectrum import DEGREE, RIDGE, forecast_weights, full_steps

METHOD, PUBLISHED = load_method("Spectrum"), load_method("Spectrum published")


@pytest.mark.parametrize(("growth", "count"), [(0.75, 14), (3.0, 10)])
def test_the_published_windows_compute_as_many_of_50_steps_as_the_authors_say(growth: float, count: int) -> None:
    assert len(full_steps(50, first=5, window=2.0, growth=growth)) == count


def test_the_window_grows_at_each_full_step_and_is_rounded_down() -> None:
    assert full_steps(20, first=3, window=2.0, growth=0.5) == [0, 1, 2, 4, 6, 9, 12, 16]


def test_published_settings_hold_the_weights_of_the_paper_and_of_the_repository() -> None:
    listed = [(one["weight"], one["growth"], one["first"], one["window"]) for one in PUBLISHED.settings(50)]
    assert listed == [(0.5, 0.75, 5, 2.0), (0.5, 3.0, 5, 2.0), (1.0, 0.75, 5, 2.0), (1.0, 3.0, 5, 2.0)]


def test_the_weight_1_is_a_ridge_fit_of_chebyshev_polynomials() -> None:
    full = [0, 1, 2, 3, 4, 6, 8, 11]
    values = np.sin(np.array(full) / 7)
    x = np.stack([Chebyshev.basis(n)(2 * np.array(full) / 50 - 1) for n in range(DEGREE + 1)], axis=1)
    # A ridge fit is a least-squares fit with rows sqrt(lambda) I, whose targets are 0.
    rows = np.concatenate([x, RIDGE**0.5 * np.eye(DEGREE + 1)])
    targets = np.concatenate([values, np.zeros(DEGREE + 1)])
    coefficients = np.linalg.lstsq(rows, targets, rcond=None)[0]
    expected = Chebyshev(coefficients)(2 * 14 / 50 - 1)
    assert np.dot(forecast_weights(full, 14, 50, weight=1.0), values) == pytest.approx(expected)


def test_the_weight_0_extrapolates_the_last_two_full_steps_linearly() -> None:
    assert forecast_weights([0, 4, 6], 9, 50, weight=0.0) == pytest.approx([0.0, -1.5, 2.5])
    assert forecast_weights([0], 9, 50, weight=0.0) == [1.0]


def test_a_reused_step_runs_no_block_and_forecasts_the_last_hidden_state_of_its_branch(
    tiny_wan_pipeline: WanPipeline, latents: Callable[..., Tensor], blocks_run: list[list[int]]
) -> None:
    out: list[Tensor] = []
    setting = {"steps": 6, "first": 3, "window": 2.0, "growth": 1.0, "weight": 0.5}
    with METHOD.attach(tiny_wan_pipeline, setting, None):
        hook = tiny_wan_pipeline.transformer.blocks[-1].register_forward_hook(
            lambda _, args, output: out.append(output)
        )
        latents(num_inference_steps=6)
        latents(num_inference_steps=6)  # the generation before must leave nothing behind
    hook.remove()
    assert blocks_run[:12] == [[0, 1, 2]] * 6 + [[]] * 2 + [[0, 1, 2]] * 2 + [[]] * 2  # 0, 1, 2 and 4 in full
    for generation in (0, 12):
        for branch in (0, 1):
            states = [out[generation + 2 * step + branch] for step in range(6)]
            for step, full in ((3, [0, 1, 2]), (5, [0, 1, 2, 4])):
                weights = forecast_weights(full, step, 6, weight=0.5)
                expected = sum(weight * states[at] for weight, at in zip(weights, full, strict=True))
                torch.testing.assert_close(states[step], expected)
