"""The injected failures, under which `test_guard.py` tests the guard, do what they are meant to do."""

from collections.abc import Callable

import pytest
import torch
from diffusers import WanPipeline
from torch import Tensor

from galaxydit import FixedSteps, GalaxyDiTConfig
from tests.galaxydit.injected_failures import FAILURES, NONE, Failure
from tests.galaxydit.test_acceleration import run

CONFIG = GalaxyDiTConfig(FixedSteps((0, 1, 2, 3, 5, 7, 9, 11)))


@pytest.fixture
def tiny_wan_pipeline(tiny_wan_builder: Callable[..., WanPipeline]) -> WanPipeline:
    """With other random weights, to which the failures do harm: to many random models they do not."""
    return tiny_wan_builder(16)


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
