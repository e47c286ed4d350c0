"""The study of expected fidelity and of the guard: its units, its failures and its tables."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import WanPipeline
from torch import Tensor

from galaxydit import FixedSteps, GalaxyDiTConfig
from galaxydit.eval.studies.expected_fidelity import Variant, cost, units_of, unseen_captions, variants
from galaxydit.eval.studies.fidelity_tables import Result, fit_scale, tables
from galaxydit.eval.studies.injected_failures import FAILURES, NONE, Failure
from tests.galaxydit.test_acceleration import run

CONFIG = GalaxyDiTConfig(FixedSteps((0, 1, 2, 3, 5, 7, 9, 11)))


def result(caption: int, speedup: float, value: float, error: float, **changes: Any) -> Result:
    made = Result(f"caption {caption}", caption, "", speedup, "guarded", "none", value, error, 0.5, [], [])
    return replace(made, **changes)


def measured(captions: int, noise: float) -> list[Result]:
    """PSNR = 20 - 15 log10(error), with noise, and the same without the guard and with a failure."""
    drawn = np.random.default_rng(0)
    found = []
    for caption in range(captions):
        for speedup in (2.0, 3.0):
            error = float(10 ** drawn.uniform(-2, 0))
            value = float(20 - 15 * np.log10(error) + drawn.normal(0, noise))
            made = result(caption, speedup, value, error)
            found += [made, replace(made, kind="unguarded", psnr=value - 0.25)]
        found += [result(caption, 2.0, 25.0, 1.0, kind=kind, failure="noise") for kind in ("guarded", "unguarded")]
        found.append(result(caption, 2.0, 24.0, 1.0, kind="order 0", failure="noise"))
    return found


def test_the_scale_tells_the_psnr() -> None:
    scale = fit_scale(measured(32, noise=1.0))
    assert scale.offset == pytest.approx(20, abs=1.0)
    assert scale.slope == pytest.approx(1.5, abs=0.1)
    assert scale.spread == pytest.approx(1.96, abs=0.4)
    assert scale.rho > 0.95
    assert scale.rho_by_speedup.keys() == {"2", "3"}
    assert 0.85 < scale.coverage <= 1.0
    assert fit_scale(measured(32, noise=30.0)).rho < 0.5


def test_the_table_shows_the_scale_the_guard_and_the_failures() -> None:
    results = measured(32, noise=1.0)
    scale = fit_scale(results)
    text = tables(results, scale)
    assert f"Over all speedups rho is {scale.rho:.2f}" in text
    assert "| +0.25 (+0.25 to +0.25) | 0 of 32 |" in text
    assert "| noise | 25.00 | 25.00 | 24.00 | +1.00 (+1.00 to +1.00) |" in text


def test_failures_are_injected_at_the_first_speedup_with_every_kind() -> None:
    made = variants([2.0, 3.0])
    assert [one for one in made if one.failure == NONE.name] == [
        Variant(speedup, kind) for speedup in (2.0, 3.0) for kind in ("guarded", "unguarded")
    ]
    assert len(made) == 4 + 3 * len(FAILURES)
    assert {one.speedup for one in made if one.failure != NONE.name} == {2.0}
    assert cost([2.0, 3.0], 10) == pytest.approx(10 * (1 + 1 / 2 + 1 / 3 + 3 * (1 / 2 + 1 / 2 + 18 / 50)))


def test_units_share_a_worker_by_caption() -> None:
    captions = unseen_captions(2)
    units = units_of(captions, [2.0], "conditions")
    assert len({unit.id for unit in units}) == len(units) == 2 * len(variants([2.0]))
    assert [unit.group for unit in units] == sorted(unit.group for unit in units)


@pytest.mark.parametrize("failure", FAILURES[:2], ids=lambda failure: failure.name)
def test_a_failure_harms_the_video(tiny_wan_pipeline: WanPipeline, failure: Failure) -> None:
    def error(chosen: Failure) -> float:
        with chosen.attach(tiny_wan_pipeline, CONFIG, guarded=False):
            return float((run(tiny_wan_pipeline) - plain).norm())

    plain: Tensor = run(tiny_wan_pipeline)
    assert error(failure) > 1.05 * error(NONE)


def test_a_list_of_steps_takes_the_place_of_the_schedule(tiny_wan_pipeline: WanPipeline) -> None:
    steps = FAILURES[2]
    assert len(steps.steps) == 18
    with steps.attach(tiny_wan_pipeline, CONFIG, guarded=True) as acceleration:
        run(tiny_wan_pipeline)
    full = sorted({call.step for call in acceleration.report.calls if not call.reused})
    assert full == [step for step in steps.steps if step < 12]


def test_the_noise_differs_from_call_to_call(tiny_wan_pipeline: WanPipeline) -> None:
    found: list[Tensor] = []
    handle = tiny_wan_pipeline.transformer.register_forward_hook(lambda *call: found.append(call[2][0]))
    with FAILURES[1].attach(tiny_wan_pipeline, GalaxyDiTConfig(FixedSteps(tuple(range(12)))), guarded=True):
        run(tiny_wan_pipeline)
    handle.remove()
    clean: list[Tensor] = []
    handle = tiny_wan_pipeline.transformer.register_forward_hook(lambda *call: clean.append(call[2][0]))
    run(tiny_wan_pipeline)
    handle.remove()
    first, second = (found[call] - clean[call] for call in (0, 1))  # both branches of the first step
    assert first.norm() > 0
    assert abs(torch.nn.functional.cosine_similarity(first.flatten(), second.flatten(), dim=0)) < 0.5
