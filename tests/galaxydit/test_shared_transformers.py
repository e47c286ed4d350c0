"""Two pipelines that share one transformer and the prompt embeddings: each video is as if it were generated alone."""

import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tiny_parts import OFTEN, REUSED, Tiny
from tiny_table import PIPELINES
from torch import Tensor

import galaxydit
from galaxydit import FixedSteps, FullComputeWarning, GalaxyDiTConfig
from galaxydit.runtime.observed_scheduler import ObservedMethod

NAMES = ("Cosmos-Predict2 video", "Cosmos-Predict2.5", "HunyuanVideo image", "CogVideoX image", "LTX condition")
NAMES += ("Kandinsky 5", "SkyReels-V2", "SkyReels-V2 forcing", "Wan VACE", "Mochi")
LIMIT = 20.0  # seconds after which a thread no longer waits for the other
LEFT_AT = 5  # the step after which the first pipeline is left for the second one
THEN_IN_FULL = GalaxyDiTConfig(FixedSteps((0, 1, 2, *range(LEFT_AT, 12))))
"""As `OFTEN` until the first pipeline is left, and in full from there on."""
Run = Callable[..., Tensor]


def twins(tiny: Tiny) -> tuple[list[Any], list[Run]]:
    """Two pipelines with one transformer, and functions that run them with the same arguments, but other noise."""
    pipe, run = tiny.build()
    other = type(pipe)(**(pipe.components | {"scheduler": tiny.scheduler()}))
    other.set_progress_bar_config(disable=True)

    def run_other(**changes: Any) -> Tensor:
        arguments = {"num_inference_steps": 12, "output_type": "latent"} | tiny.arguments | changes
        return other(generator=torch.Generator().manual_seed(5), **arguments, return_dict=False)[0]

    return [pipe, other], [run, run_other]


def in_turns(runs: list[Run]) -> list[Tensor]:
    """Both in threads that hand over after each step."""
    turns = [threading.Semaphore(1), threading.Semaphore(0)]
    results: dict[int, Tensor] = {}

    def generate(index: int) -> None:
        def hand_over(pipe: Any, step: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
            turns[1 - index].release()
            if step < 11:
                assert turns[index].acquire(timeout=LIMIT)
            return tensors

        turns[index].acquire(timeout=LIMIT)
        results[index] = runs[index](callback_on_step_end=hand_over)

    threads = [threading.Thread(target=generate, args=(index,), daemon=True) for index in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(3 * LIMIT)
    return [results[0], results[1]]


def nested(runs: list[Run]) -> list[Tensor]:
    """The second as a whole in a callback of the first."""
    inner = []

    def begin_inner(pipe: Any, step: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        if step == LEFT_AT:
            inner.append(runs[1]())
        return tensors

    outer = runs[0](callback_on_step_end=begin_inner)
    return [outer, *inner]


def accelerated(pipe: Any, run: Run, config: GalaxyDiTConfig = OFTEN) -> Tensor:
    with galaxydit.accelerate(pipe, config=config):
        return run()


@pytest.mark.parametrize("name", NAMES)
def test_pipelines_with_one_transformer_are_not_mixed_in_threads(name: str) -> None:
    """The second one is computed in full if nobody named its scheduler."""
    pipes, runs = twins(PIPELINES[name])
    plain = [run() for run in runs]
    alone = [accelerated(pipe, run) for pipe, run in zip(pipes, runs, strict=True)]
    assert not any(map(torch.equal, alone, plain))
    for is_named in (True, False):
        schedulers = [pipes[1].scheduler] if is_named else []
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", FullComputeWarning)
            with galaxydit.accelerate(pipes[0], config=OFTEN, schedulers=schedulers):
                first, second = in_turns(runs)
        assert torch.equal(first, alone[0])
        assert torch.equal(second, alone[1] if is_named else plain[1])
        texts = [str(warning.message) for warning in warned if warning.category is FullComputeWarning]
        assert len(texts) == (not is_named)
        assert all("no observed scheduler has begun" in text for text in texts)


@pytest.mark.parametrize(("name", "is_named"), [(name, index % 2 == 0) for index, name in enumerate(NAMES)])
def test_a_pipeline_in_the_callback_of_another_is_not_mixed_with_it(name: str, is_named: bool) -> None:
    """The first one is computed in full from there on; the second one, too, if nobody named its scheduler."""
    pipes, runs = twins(PIPELINES[name])
    expected = [accelerated(pipes[0], runs[0], THEN_IN_FULL), runs[1]()]
    if is_named:
        expected[1] = accelerated(pipes[1], runs[1])
    schedulers = [pipes[1].scheduler] if is_named else []
    with galaxydit.accelerate(pipes[0], config=OFTEN, schedulers=schedulers) as acceleration:
        with pytest.warns(FullComputeWarning, match="computed in full"):
            latents = nested(runs)
        left, *others = acceleration.reports
        runs[0]()
        assert acceleration.report.reused_steps == len(REUSED), "the next loop is alone"
    assert all(map(torch.equal, latents, expected))
    assert {call.step for call in left.calls if call.reused} == {3, 4}
    assert [report.reused_steps for report in others] == [len(REUSED)] * is_named


@pytest.mark.parametrize("is_named", [True, False], ids=["both schedulers named", "one scheduler named"])
@pytest.mark.parametrize("name", ["Cosmos-Predict2 video", "HunyuanVideo image", "LTX image"])
def test_a_pipeline_that_fails_in_the_callback_of_another_is_not_mixed_with_it(name: str, is_named: bool) -> None:
    """The latents of two of these families are not compared."""
    pipes, runs = twins(PIPELINES[name])
    expected = accelerated(pipes[0], runs[0], THEN_IN_FULL)

    def fail(pipe: Any, step: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        if step == LEFT_AT:
            raise InterruptedError
        return tensors

    def run_and_fail() -> None:
        with pytest.raises(InterruptedError):
            runs[1](callback_on_step_end=fail)

    schedulers = [pipes[1].scheduler] if is_named else []
    with (
        galaxydit.accelerate(pipes[0], config=OFTEN, schedulers=schedulers),
        pytest.warns(FullComputeWarning, match="computed in full"),
    ):
        outer, _ = nested([runs[0], run_and_fail])
    assert torch.equal(outer, expected)


@pytest.mark.parametrize("is_named", [True, False], ids=["both schedulers named", "one scheduler named"])
def test_a_loop_that_another_one_interrupts_within_its_first_step_is_computed_in_full_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, is_named: bool
) -> None:
    """Diffusion forcing steps one frame after the other, each with its copy of the scheduler."""
    pipes, runs = twins(PIPELINES["SkyReels-V2 forcing"])
    expected = [run() for run in runs]
    if is_named:
        expected[1] = accelerated(pipes[1], runs[1])
    call, steps, inner = ObservedMethod.__call__, [], []

    def call_and_interrupt(method: ObservedMethod, *args: Any, **kwargs: Any) -> Any:
        result = call(method, *args, **kwargs)
        if method.name == "step":
            steps.append(method)
            if len(steps) == 1:
                inner.append(runs[1]())
        return result

    monkeypatch.setattr(ObservedMethod, "__call__", call_and_interrupt)
    schedulers = [pipes[1].scheduler] if is_named else []
    with galaxydit.accelerate(pipes[0], config=OFTEN, schedulers=schedulers) as acceleration:
        with pytest.warns(FullComputeWarning, match="another loop called|no observed scheduler has begun"):
            outer = runs[0]()
        left = acceleration.reports[0]
    if not is_named:
        assert any("another loop called the transformer between two steps" in note for note in left.notes)
    assert all(map(torch.equal, [outer, *inner], expected))
