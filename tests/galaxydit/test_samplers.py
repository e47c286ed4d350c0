"""Schedulers, starts in the middle, and pipelines that take turns on one transformer: state is never mixed."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch
from diffusers import (
    DPMSolverMultistepScheduler,
    DPMSolverSinglestepScheduler,
    FlowMatchEulerDiscreteScheduler,
    FlowMatchHeunDiscreteScheduler,
    UniPCMultistepScheduler,
    WanPipeline,
)
from torch import Tensor

import galaxydit
from galaxydit import FixedSteps, FullComputeWarning, GalaxyDiTConfig, Threshold
from galaxydit.policies.policy import Reason
from galaxydit.runtime.generation import Generation

OFTEN = GalaxyDiTConfig(Threshold(50.0), max_consecutive=2)
NEVER = GalaxyDiTConfig(FixedSteps(tuple(range(60))))
FLOW = {"prediction_type": "flow_prediction", "use_flow_sigmas": True, "flow_shift": 5.0}
SCHEDULERS: dict[str, Callable[[], Any]] = {
    "Euler": lambda: FlowMatchEulerDiscreteScheduler(shift=5.0),
    "Heun": lambda: FlowMatchHeunDiscreteScheduler(shift=5.0),
    "UniPC": lambda: UniPCMultistepScheduler(**FLOW),
    "UniPC order 3": lambda: UniPCMultistepScheduler(**FLOW, solver_order=3),
    "DPM++": lambda: DPMSolverMultistepScheduler(**FLOW),
    "DPM++ singlestep": lambda: DPMSolverSinglestepScheduler(**FLOW),
    "DPM++ SDE": lambda: DPMSolverMultistepScheduler(**FLOW, algorithm_type="sde-dpmsolver++"),
}
pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:galaxydit. a generation begins at step"),
]


@pytest.mark.parametrize("name", SCHEDULERS)
def test_every_sampler_is_followed_call_by_call(tiny_wan: Any, name: str) -> None:
    pipe = tiny_wan.pipe
    pipe.scheduler = SCHEDULERS[name]()
    plain = tiny_wan.run()
    calls = 23 if name == "Heun" else 12
    for reuse in ("output", "residual"):
        with galaxydit.accelerate(pipe, config=replace(NEVER, reuse=reuse)):
            assert torch.equal(tiny_wan.run(), plain)
    with galaxydit.accelerate(pipe, config=OFTEN) as acceleration:
        latents = tiny_wan.run()
        tiny_wan.run(num_inference_steps=17)
        assert torch.equal(tiny_wan.run(), latents)
    assert [len(report.calls) for report in acceleration.reports] == [
        2 * calls,
        66 if name == "Heun" else 34,
        2 * calls,
    ]
    assert [call.step for call in acceleration.report.calls[::2]] == list(range(calls))
    assert acceleration.report.reused_steps >= calls // 2
    assert latents.isfinite().all()
    assert not torch.equal(latents, plain)


def test_a_sample_of_a_batch_knows_nothing_of_the_others(tiny_wan: Any) -> None:
    prompts = ["a red ball moves left over a plain background", "a blue square grows over a dotted background"]
    latents = torch.cat([noise(0), noise(1)])
    with galaxydit.accelerate(tiny_wan.pipe, config=GalaxyDiTConfig(FixedSteps((0, 1, 2, 5, 8, 11)))):
        together = tiny_wan.run(prompt=prompts, latents=latents)
        alone = [tiny_wan.run(prompt=prompts[index], latents=latents[index : index + 1]) for index in (0, 1)]
        repeated = tiny_wan.run(prompt=prompts[0], num_videos_per_prompt=2, latents=latents)
    assert torch.allclose(together, torch.cat(alone), atol=1e-4)
    assert torch.allclose(repeated[:1], alone[0], atol=1e-4)


def test_a_list_of_generators_gives_each_sample_its_noise(tiny_wan: Any) -> None:
    prompts = ["a red ball moves left over a plain background", "a blue square grows over a dotted background"]

    def generators(*seeds: int) -> list[torch.Generator]:
        return [torch.Generator().manual_seed(seed) for seed in seeds]

    with galaxydit.accelerate(tiny_wan.pipe, config=GalaxyDiTConfig(FixedSteps((0, 1, 2, 5, 8, 11)))) as acceleration:
        together = tiny_wan.run(prompt=prompts, generator=generators(3, 4))
        assert torch.equal(tiny_wan.run(prompt=prompts, generator=generators(3, 4)), together)
        alone = [
            tiny_wan.run(prompt=text, generator=generators(seed)) for text, seed in zip(prompts, (3, 4), strict=True)
        ]
    assert torch.allclose(together, torch.cat(alone), atol=1e-4)
    assert [report.reused_steps for report in acceleration.reports] == [6] * 4


def noise(seed: int) -> Tensor:
    return torch.randn(1, 16, 2, 4, 4, generator=torch.Generator().manual_seed(seed))


def texts(seed: int) -> list[Tensor]:
    return list(torch.randn(2, 1, 8, 128, generator=torch.Generator().manual_seed(seed)))


def loop(
    transformer: Callable[..., Any], scheduler: Any, text: list[Tensor], latents: Tensor, steps: range
) -> Iterator[Tensor]:
    """A denoising loop by hand that hands over after every step."""
    for index in steps:
        timestep = scheduler.timesteps[index]
        predictions = [transformer(latents, timestep.expand(1), branch, return_dict=False)[0] for branch in text]
        guided = predictions[1] + 3.0 * (predictions[0] - predictions[1])
        latents = scheduler.step(guided, timestep, latents, return_dict=False)[0]
        yield latents


def test_a_loop_that_copies_the_latent_for_each_call_is_one_generation(tiny_wan: Any) -> None:
    transformer, euler = tiny_wan.pipe.transformer, SCHEDULERS["Euler"]()
    alive = []

    def copying(latents: Tensor, *arguments: Any, **named: Any) -> Any:
        alive.append(latents.clone())
        return transformer(alive[-1], *arguments, **named)

    with torch.no_grad(), galaxydit.accelerate(transformer, config=OFTEN, scheduler=euler) as acceleration:
        for call in (transformer, copying):
            euler.set_timesteps(12)
            list(loop(call, euler, texts(1), noise(1), range(12)))
    assert [report.reused_steps for report in acceleration.reports] == [6, 6]


@pytest.mark.parametrize("begin", [4, 6, 8])
def test_a_generation_begun_again_at_a_later_index_starts_without_history(tiny_wan: Any, begin: int) -> None:
    """Stopped after step 5, then begun anew from other noise at an earlier, the next and a later step."""
    transformer, euler = tiny_wan.pipe.transformer, SCHEDULERS["Euler"]()

    def later() -> Tensor:
        euler.set_timesteps(12)
        euler.set_begin_index(begin)
        return list(loop(transformer, euler, texts(2), noise(2), range(begin, 12)))[-1]

    with torch.no_grad(), galaxydit.accelerate(transformer, config=OFTEN, scheduler=euler):
        expected = later()
    with torch.no_grad(), galaxydit.accelerate(transformer, config=OFTEN, scheduler=euler) as acceleration:
        euler.set_timesteps(12)
        list(loop(transformer, euler, texts(1), noise(1), range(6)))
        assert torch.equal(later(), expected)
    assert len(acceleration.reports) == 2
    assert [call.step for call in acceleration.report.calls[::2]] == list(range(begin, 12))
    assert acceleration.report.calls[0].reason is Reason.WARM_UP
    assert acceleration.report.reused_steps > 0


class TwoLoops:
    """Two denoising loops by hand on one transformer, each with its scheduler, its noise and its text tensors."""

    def __init__(self, transformer: Any, *, have_own_texts: bool = True) -> None:
        self.transformer = transformer
        self.schedulers = [SCHEDULERS["Euler"]() for _ in range(2)]
        self.texts = [texts(1), texts(2 if have_own_texts else 1)]

    def begin(self, index: int) -> Iterator[Tensor]:
        scheduler = self.schedulers[index]
        scheduler.set_timesteps(12)
        return loop(self.transformer, scheduler, self.texts[index], noise(index), range(12))

    def take_turns(self, offset: int) -> list[Tensor]:
        """The latents of all steps; the second loop is so many steps ahead."""
        first, second = self.begin(0), self.begin(1)
        latents = [next(second) for _ in range(offset)]
        for _ in range(12 - offset):
            latents += [next(first), next(second)]
        return latents


@pytest.mark.matrix(own_texts=[True, False], offset=[0, 1], is_named=[True, False])
def test_two_loops_that_take_turns_on_one_transformer_are_computed_in_full_with_a_warning(
    tiny_wan: Any, own_texts: bool, offset: int, is_named: bool
) -> None:
    """The other's steps come at the same index, or look like the next one."""
    both = TwoLoops(tiny_wan.pipe.transformer, have_own_texts=own_texts)
    named = {"scheduler": both.schedulers[0], "schedulers": both.schedulers[1:] if is_named else []}
    with torch.no_grad():
        plain = both.take_turns(offset)
        with galaxydit.accelerate(both.transformer, config=OFTEN, **named) as acceleration:
            with pytest.warns(FullComputeWarning, match="computed in full|nothing before it is reused"):
                together = both.take_turns(offset)
            assert not any(call.reused for report in acceleration.reports for call in report.calls)
            list(both.begin(0))
            assert acceleration.report.reused_steps == 6, "the next loop is alone"
    assert all(map(torch.equal, together, plain))


@pytest.mark.filterwarnings("error::galaxydit.FullComputeWarning")
@pytest.mark.parametrize("own_texts", [True, False], ids=["texts of its own", "the same words"])
def test_two_loops_with_named_schedulers_are_accelerated_one_after_the_other_and_in_threads(
    tiny_wan: Any, own_texts: bool
) -> None:
    both = TwoLoops(tiny_wan.pipe.transformer, have_own_texts=own_texts)

    @torch.no_grad()
    def advance(one: Iterator[Tensor]) -> Tensor:
        return next(one)

    def alone(index: int) -> list[Tensor]:
        with galaxydit.accelerate(both.transformer, config=OFTEN, scheduler=both.schedulers[index]), torch.no_grad():
            return list(both.begin(index))

    expected = [alone(0), alone(1)]
    with galaxydit.accelerate(both.transformer, config=OFTEN, schedulers=both.schedulers) as acceleration:
        with torch.no_grad():
            one_after_the_other = [list(both.begin(index)) for index in (0, 1)]
        with ThreadPoolExecutor(1) as thread:
            first, second = both.begin(0), thread.submit(both.begin, 1).result()
            in_turns = [(advance(first), thread.submit(advance, second).result()) for _ in range(12)]
    for index in (0, 1):
        assert all(map(torch.equal, one_after_the_other[index], expected[index]))
        assert all(map(torch.equal, [pair[index] for pair in in_turns], expected[index]))
    assert [report.reused_steps for report in acceleration.reports] == [6] * 4


@pytest.mark.filterwarnings("ignore:galaxydit. no observed scheduler has begun")
def test_two_threads_that_share_a_transformer_are_not_mixed(tiny_wan: Any) -> None:
    """The second thread's whole step happens while the first is inside a block of its conditional call."""
    transformer = tiny_wan.pipe.transformer
    schedulers = [SCHEDULERS["Euler"]() for _ in range(2)]

    def take_turns(config: GalaxyDiTConfig) -> tuple[Tensor, list[Tensor]]:
        for scheduler in schedulers:
            scheduler.set_timesteps(12)
        results: list[Tensor] = []
        calls: list[int] = []
        main = threading.get_ident()
        second = loop(transformer, schedulers[1], texts(2), noise(2), range(12))

        def step() -> None:
            with torch.no_grad():
                results.append(next(second))

        def interrupt(*_: Any) -> None:
            if threading.get_ident() != main:
                return
            calls.append(1)
            if len(calls) % 2:
                thread = threading.Thread(target=step)
                thread.start()
                thread.join()

        handle = transformer.blocks[0].attn1.register_forward_hook(interrupt)
        with torch.no_grad(), galaxydit.accelerate(transformer, config=config, scheduler=schedulers[0]):
            first = list(loop(transformer, schedulers[0], texts(1), noise(1), range(12)))[-1]
        handle.remove()
        return first, results

    schedulers[0].set_timesteps(12)
    with torch.no_grad(), galaxydit.accelerate(transformer, config=OFTEN, scheduler=schedulers[0]):
        alone = list(loop(transformer, schedulers[0], texts(1), noise(1), range(12)))[-1]
    (accelerated, second), (_, plain) = take_turns(OFTEN), take_turns(NEVER)
    assert torch.equal(accelerated, alone)
    assert len(second) > 2
    assert all(map(torch.equal, second, plain)), "its scheduler is not the one that is known"


def test_two_pipelines_whose_steps_alternate_are_not_mixed(tiny_wan: Any) -> None:
    """The same words and another seed, so that only the tensors themselves tell the two apart."""
    other = WanPipeline(**(tiny_wan.pipe.components | {"scheduler": SCHEDULERS["UniPC"]()}))
    other.set_progress_bar_config(disable=True)
    tinies = [tiny_wan, replace(tiny_wan, pipe=other)]

    def alternate(config: GalaxyDiTConfig) -> list[Tensor]:
        turns = [threading.Semaphore(1), threading.Semaphore(0)]
        results: dict[int, Tensor] = {}

        def generate(index: int) -> None:
            def hand_over(pipe: Any, step: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
                turns[1 - index].release()
                if step < 11:
                    turns[index].acquire(timeout=20)
                return tensors

            turns[index].acquire(timeout=20)
            results[index] = tinies[index].run(latents=noise(index), callback_on_step_end=hand_over)

        with galaxydit.accelerate(tiny_wan.pipe, config=config):
            threads = [threading.Thread(target=generate, args=(index,)) for index in (0, 1)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        return [results[0], results[1]]

    with galaxydit.accelerate(tiny_wan.pipe, config=OFTEN) as acceleration:
        alone = [tiny.run(latents=noise(index)) for index, tiny in enumerate(tinies)]
    assert all(report.reused_steps > 0 for report in acceleration.reports)
    assert all(map(torch.equal, alternate(OFTEN), alone))


@pytest.mark.filterwarnings("error::galaxydit.FullComputeWarning")
def test_a_pipeline_may_end_while_a_call_of_another_begins(tiny_wan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pipelines reset the transformer at their end; the other one is in a thread of its own."""
    with galaxydit.accelerate(tiny_wan.pipe, config=OFTEN):
        alone = tiny_wan.run()
    enter, ended = Generation.enter, []

    def enter_as_another_ends(generation: Generation, call: Any, window: Any) -> Any:
        found = enter(generation, call, window)
        if call.info.step == 5:
            thread = threading.Thread(target=tiny_wan.pipe.transformer._reset_stateful_cache)
            thread.start()
            thread.join()
            ended.append(call.branch)
        return found

    monkeypatch.setattr(Generation, "enter", enter_as_another_ends)
    with galaxydit.accelerate(tiny_wan.pipe, config=OFTEN) as acceleration:
        assert torch.equal(tiny_wan.run(), alone)
    assert ended == ["cond", "uncond"]
    (report,) = acceleration.reports
    assert (len(report.calls), report.reused_steps, report.notes) == (24, 6, ())


def inside_of(tiny: Any, scheduler: Any) -> Any:
    """A second pipeline with all parts of a tiny one but its scheduler."""
    pipe = WanPipeline(**(tiny.pipe.components | {"scheduler": scheduler}))
    pipe.set_progress_bar_config(disable=True)
    return replace(tiny, pipe=pipe)


@pytest.mark.parametrize("is_named", [True, False], ids=["named scheduler", "scheduler that nobody named"])
def test_a_pipeline_run_from_the_callback_of_another_is_not_mixed(tiny_wan: Any, is_named: bool) -> None:
    """The outer loop is computed in full from there on."""
    inner = inside_of(tiny_wan, SCHEDULERS["Euler"]())
    schedulers = [inner.pipe.scheduler] if is_named else []
    inner_latents = []

    def stop(pipe: Any, index: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        if index == 5:
            raise InterruptedError
        return tensors

    def nest(pipe: Any, index: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        if index == 5:
            with pytest.raises(InterruptedError):
                inner.run(callback_on_step_end=stop)
        if index == 8:
            inner_latents.append(inner.run())
        return tensors

    plain = inner.run()
    with galaxydit.accelerate(tiny_wan.pipe, config=GalaxyDiTConfig(FixedSteps((0, 1, 2, *range(5, 12))))):
        expected = tiny_wan.run()
    with galaxydit.accelerate(inner.pipe, config=OFTEN):
        alone = inner.run()
    with galaxydit.accelerate(tiny_wan.pipe, config=OFTEN, schedulers=schedulers) as acceleration:
        with pytest.warns(FullComputeWarning, match="as in a callback|no observed scheduler has begun"):
            nested = tiny_wan.run(callback_on_step_end=nest)
        reports = acceleration.reports
        tiny_wan.run()
        assert acceleration.report.reused_steps == 6, "the next loop is alone"
    assert torch.equal(nested, expected)
    assert torch.equal(inner_latents[0], alone if is_named else plain)
    assert not torch.equal(alone, plain)
    assert reports[0].reused_steps == 2
    assert [report.reused_steps for report in reports[1:]] == ([2, 6] if is_named else [])


def test_a_pipeline_that_shares_the_scheduler_is_accelerated_in_a_callback(tiny_wan: Any) -> None:
    """It sets the timesteps anew, so the outer pipeline cannot go on."""
    inner, latents = inside_of(tiny_wan, tiny_wan.pipe.scheduler), []

    def take_over(pipe: Any, index: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        if index == 5:
            latents.append(inner.run())
            pipe._interrupt = True
        return tensors

    with galaxydit.accelerate(tiny_wan.pipe, config=OFTEN) as acceleration:
        alone = inner.run()
        tiny_wan.run(callback_on_step_end=take_over)
        assert torch.equal(inner.run(), alone)
    assert torch.equal(latents[0], alone)
    assert [report.reused_steps for report in acceleration.reports] == [6, 2, 6, 6]
