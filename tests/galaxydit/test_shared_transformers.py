"""Two pipelines that share one transformer and the prompt embeddings: each video is as if it were generated alone."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import pytest
import torch
from tiny_parts import OFTEN, Tiny
from tiny_table import PIPELINES
from torch import Tensor

import galaxydit

NAMES = ("Cosmos-Predict2 video", "Cosmos-Predict2.5", "HunyuanVideo image", "CogVideoX image", "LTX condition")
NAMES += ("Kandinsky 5", "SkyReels-V2", "SkyReels-V2 forcing", "Wan VACE", "Mochi")
LIMIT = 20.0  # seconds after which a thread no longer waits for the other
pytestmark = pytest.mark.filterwarnings(
    "ignore:galaxydit. the step of this call is unknown",
    "ignore:galaxydit. another thread uses the scheduler",
    "ignore:galaxydit. the latent of a step does not continue",
)


@contextmanager
def after_each_step(scheduler: Any, act: Callable[[], None]) -> Iterator[None]:
    """Call `act` after each step of a scheduler of this class; the plugin's own scheduler computes in float64."""
    kind, step = type(scheduler), type(scheduler).step

    @wraps(step)
    def stepped(self: Any, output: Tensor, *arguments: Any, **named: Any) -> Any:
        result = step(self, output, *arguments, **named)
        if output.dtype != torch.float64:
            act()
        return result

    kind.step = stepped
    try:
        yield
    finally:
        kind.step = step


def twins(tiny: Tiny) -> tuple[Any, list[Callable[[], Tensor]]]:
    """A pipeline, and functions that run it and a second one with its transformer and arguments, but other noise."""
    pipe, run = tiny.build()
    other = type(pipe)(**(pipe.components | {"scheduler": tiny.scheduler()}))
    other.set_progress_bar_config(disable=True)

    def run_other() -> Tensor:
        arguments = {"num_inference_steps": 12, "output_type": "latent"} | tiny.arguments
        return other(generator=torch.Generator().manual_seed(5), **arguments, return_dict=False)[0]

    return pipe, [run, run_other]


def in_turns(pipe: Any, runs: list[Callable[[], Tensor]]) -> list[Tensor]:
    """Both in threads that hand over after each step."""
    turns, results, local = [threading.Semaphore(1), threading.Semaphore(0)], {}, threading.local()

    def hand_over() -> None:
        index = getattr(local, "index", None)
        if index is not None and len(results) == 0:
            turns[1 - index].release()
            turns[index].acquire(timeout=LIMIT)

    def generate(index: int) -> None:
        local.index = index
        turns[index].acquire(timeout=LIMIT)
        try:
            results[index] = runs[index]()
        finally:
            turns[1 - index].release()

    threads = [threading.Thread(target=generate, args=(index,), daemon=True) for index in (0, 1)]
    with after_each_step(pipe.scheduler, hand_over):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(3 * LIMIT)
    return [results[0], results[1]]


def nested(pipe: Any, runs: list[Callable[[], Tensor]], after: int = 5) -> list[Tensor]:
    """The second as a whole after so many steps of schedulers in the first."""
    steps, inner = [], []

    def begin_inner() -> None:
        steps.append(None)
        if len(steps) == after:
            inner.append(runs[1]())

    with after_each_step(pipe.scheduler, begin_inner):
        outer = runs[0]()
    return [outer, inner[0]]


@pytest.mark.parametrize("together", [in_turns, nested])
@pytest.mark.parametrize("name", NAMES)
def test_pipelines_with_one_transformer_are_not_mixed(name: str, together: Callable[..., list[Tensor]]) -> None:
    pipe, runs = twins(PIPELINES[name])
    plain = [run() for run in runs]
    with galaxydit.accelerate(pipe, config=OFTEN):
        alone = [run() for run in runs]
    with galaxydit.accelerate(pipe, config=OFTEN):
        first, second = together(pipe, runs)
    assert torch.equal(first, alone[0])
    assert not torch.equal(first, plain[0])
    assert torch.equal(second, alone[1]) or torch.equal(second, plain[1])


def test_a_loop_that_another_one_interrupts_within_its_first_step_begins_anew_with_a_warning() -> None:
    """Diffusion forcing steps one frame after the other, so the second loop looks like a window of the first."""
    pipe, runs = twins(PIPELINES["SkyReels-V2 forcing"])
    with galaxydit.accelerate(pipe, config=OFTEN):
        alone = [run() for run in runs]
    with (
        galaxydit.accelerate(pipe, config=OFTEN) as acceleration,
        pytest.warns(galaxydit.FullComputeWarning, match="another loop began"),
    ):
        assert torch.equal(nested(pipe, runs, after=1)[1], alone[1])
    assert any("another loop began" in note for note in acceleration.report.notes)
