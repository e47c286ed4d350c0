"""The solver that a schedule with its predictions and corrections amounts to."""

from dataclasses import replace

import torch

import galaxydit
from galaxydit import FixedSteps, GalaxyDiTConfig
from galaxydit.eval.studies.learned_solver import Solver, fit
from galaxydit.pipelines.generate import generate

FULL = (0, 1, 2, 4, 7, 11)


def test_with_the_default_shares_it_is_what_the_plugin_generates(tiny_wan_pipeline, tiny_settings):
    settings = replace(tiny_settings, steps=12, guidance_scale=4.0)
    solver = Solver(tiny_wan_pipeline, settings, FULL)
    plain = solver.generate("a red ball", 3)
    config = GalaxyDiTConfig(FixedSteps(FULL), order=1)
    expected = generate(tiny_wan_pipeline, "a red ball", settings, 3, decode=False).latents
    torch.testing.assert_close(plain.final, expected, atol=1e-4, rtol=1e-4)
    with galaxydit.accelerate(tiny_wan_pipeline, config=config):
        expected = generate(tiny_wan_pipeline, "a red ball", settings, 3, decode=False).latents
    found = solver.final(solver.coefficients(solver.default_shares()), plain)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    assert (found - plain.final).abs().max() > 1e-3


def test_fitting_lowers_the_error_of_the_fitted_generation(tiny_wan_pipeline, tiny_settings):
    settings = replace(tiny_settings, steps=12, guidance_scale=4.0)
    tiny_wan_pipeline.transformer.requires_grad_(False)
    solver = Solver(tiny_wan_pipeline, settings, FULL)
    plain = solver.generate("a red ball", 3)
    before = solver.error(solver.coefficients(solver.default_shares()), plain)
    after = solver.error(solver.coefficients(fit(solver, [plain], 12)), plain)
    assert after < before - 0.5
