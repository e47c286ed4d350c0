"""The study of the guard: its units, its failures and its tables."""

import pytest
import torch
from diffusers import WanPipeline
from torch import Tensor

from galaxydit import FixedSteps, GalaxyDiTConfig
from galaxydit.eval.studies.guard_under_failures import (
    KINDS,
    Result,
    Variant,
    cost,
    tables,
    units_of,
    unseen_captions,
    variants,
)
from galaxydit.eval.studies.injected_failures import FAILURES, NONE, Failure
from tests.galaxydit.test_acceleration import run

CONFIG = GalaxyDiTConfig(FixedSteps((0, 1, 2, 3, 5, 7, 9, 11)))


def result(caption: int, psnr: float, kind: str = "guarded", failure: str = NONE.name) -> Result:
    return Result(f"caption {caption}", caption, "", 2.0, kind, failure, psnr, 0.5, False)


def test_the_table_shows_the_guard_with_and_without_failures() -> None:
    results = []
    for caption in range(8):
        results += [result(caption, 30.25), result(caption, 30.0, "unguarded")]
        results += [result(caption, psnr, kind, "noise") for kind, psnr in zip(KINDS, (25.0, 25.0, 24.0), strict=True)]
    text = tables(results)
    assert "| 2x | 30.25 | 30.00 | +0.25 (+0.25 to +0.25) | 0 of 8 |" in text
    assert "| noise | 25.00 | 25.00 | 24.00 | +1.00 (+1.00 to +1.00) |" in text


def test_failures_are_injected_at_the_first_speedup_with_every_kind() -> None:
    made = variants([2.0, 3.0])
    assert [variant for variant in made if variant.failure == NONE.name] == [
        Variant(speedup, kind) for speedup in (2.0, 3.0) for kind in ("guarded", "unguarded")
    ]
    assert len(made) == 4 + 3 * len(FAILURES)
    assert {variant.speedup for variant in made if variant.failure != NONE.name} == {2.0}
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
    noisy: list[Tensor] = []
    handle = tiny_wan_pipeline.transformer.register_forward_hook(lambda *call: noisy.append(call[2][0]))
    with FAILURES[1].attach(tiny_wan_pipeline, GalaxyDiTConfig(FixedSteps(tuple(range(12)))), guarded=True):
        run(tiny_wan_pipeline)
    handle.remove()
    clean: list[Tensor] = []
    handle = tiny_wan_pipeline.transformer.register_forward_hook(lambda *call: clean.append(call[2][0]))
    run(tiny_wan_pipeline)
    handle.remove()
    first, second = (noisy[call] - clean[call] for call in (0, 1))  # both branches of the first step
    assert first.norm() > 0
    assert abs(torch.nn.functional.cosine_similarity(first.flatten(), second.flatten(), dim=0)) < 0.5
