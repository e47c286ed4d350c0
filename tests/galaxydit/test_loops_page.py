"""Every example of the page on loops runs as it stands; each mistake of its table is computed, with the warning."""

import copy
import re
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from torch import Tensor
from two_streams import FAMILY, TwoStreams
from two_streams import latents as noise

import galaxydit
from galaxydit import schedulers
from galaxydit.families import FAMILIES
from galaxydit.schedulers import Noise, kind_of, noise_of

PAGE = (Path(galaxydit.__file__).parent / "loops.md").read_text(encoding="utf-8")
EXAMPLE = re.compile(r"^##+ ([^\n]*)$(?:(?!^#).)*?^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
EXAMPLES = {heading: code for heading, code in EXAMPLE.findall(PAGE)}
FRACTIONS = {
    "A pipeline": [0.5],
    "A transformer with a scheduler": [0.5],
    "Two schedulers on one transformer": [0.5, 0.5],
    "Picture and sound with a scheduler each": [0.5],
    "Windows or tiles": [0.5],
    "A loop without a scheduler": [0.7, 0.5],  # the first one is given up after ten of 20 steps
}
STEPS = 20
LEFT_AT = 5


class Parts(SimpleNamespace):
    """What the examples and mistakes work with."""

    def call(self, latents: Tensor, t: Tensor) -> Tensor:
        return self.transformer(latents, t.expand(len(latents)), self.text, return_dict=False)[0]

    def steps_of(self, scheduler: Any) -> Tensor:
        scheduler.set_timesteps(STEPS)
        return scheduler.timesteps

    def denoise(self, scheduler: Any) -> Tensor:
        latents = self.latents
        for t in self.steps_of(scheduler):
            latents = scheduler.step(self.call(latents, t), t, latents, return_dict=False)[0]
        self.transformer._reset_stateful_cache()
        return latents


@pytest.fixture
def parts(tiny_wan: Any, monkeypatch: pytest.MonkeyPatch) -> Parts:
    monkeypatch.setitem(FAMILIES, FAMILY.class_name, FAMILY)

    class Pipe(type(tiny_wan.pipe)):  # type: ignore[misc]
        """The tiny pipeline, called with a prompt."""

        def __call__(self, prompt: str, **settings: Any) -> Any:
            latent = {"output_type": "latent", "num_inference_steps": STEPS}
            return super().__call__(**tiny_wan.arguments | latent | {"prompt": prompt} | settings)

    tiny_wan.pipe.__class__ = Pipe
    generator = torch.Generator().manual_seed(0)
    text = torch.randn(1, 8, 128, generator=generator)
    return Parts(
        pipe=tiny_wan.pipe,
        transformer=tiny_wan.pipe.transformer,
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
        latents=torch.randn(1, 16, 4, 4, 4, generator=generator),
        text=text,
        empty_text=0 * text,
        two_streams=TwoStreams(),
        sound_scheduler=FlowMatchEulerDiscreteScheduler(shift=2.0),
    )


def run_example(heading: str, parts: Parts) -> dict[str, Any]:
    names = vars(parts) | {"galaxydit": galaxydit, "torch": torch}
    if "two_streams" in EXAMPLES[heading]:
        names["latents"], names["sound"] = noise()
    exec(EXAMPLES[heading], names)
    return names


def test_every_example_of_the_page_is_run() -> None:
    assert PAGE.count("```python") == len(EXAMPLES)
    assert EXAMPLES.keys() == {*FRACTIONS, "A server with threads", "Adding a scheduler"}


@pytest.mark.filterwarnings("error::galaxydit.FullComputeWarning")
@pytest.mark.parametrize("heading", FRACTIONS)
def test_a_declared_loop_is_accelerated(heading: str, parts: Parts) -> None:
    reports = run_example(heading, parts)["acceleration"].reports
    assert [report.compute_fraction for report in reports] == FRACTIONS[heading]


@pytest.mark.filterwarnings("error::galaxydit.FullComputeWarning")
def test_each_thread_of_a_server_is_accelerated_by_the_settings_of_its_request(parts: Parts) -> None:
    replies = run_example("A server with threads", parts)["replies"]
    saved = [1 / report.compute_fraction for _, report in replies]
    assert saved == pytest.approx([1.5, 2.0, 2.0, 1.5], rel=0.05)


def test_a_scheduler_is_one_row(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    class MyNoisyFlowScheduler(SimpleNamespace):
        pass

    monkeypatch.setattr(schedulers, "TABLE", schedulers.TABLE)  # undone at the end
    assert noise_of(MyNoisyFlowScheduler()) is Noise.NONE
    run_example("Adding a scheduler", parts)
    assert noise_of(MyNoisyFlowScheduler()) is Noise.DRAWN
    assert kind_of(MyNoisyFlowScheduler()).is_flow


def test_the_page_names_the_families_whose_latents_are_not_compared() -> None:
    names = {family.name for family in FAMILIES.values() if not family.compares_latent}
    listed = re.search(r"the families (.*?)\. Their input", PAGE)
    assert listed is not None
    assert set(re.split(", | and ", listed[1])) == names


# The mistakes of the table


def another_scheduler(parts: Parts) -> None:
    parts.denoise(copy.deepcopy(parts.unobserved))


def windows_of_one_name(parts: Parts, name: str | None = "cond") -> None:
    latents = parts.latents
    for t in parts.steps_of(parts.scheduler):
        total = torch.zeros_like(latents)
        for frames in (slice(0, 3), slice(1, 4)):
            if name is None:
                total[:, :, frames] += parts.call(latents[:, :, frames], t) / 2
            else:
                with parts.transformer.cache_context(name):
                    total[:, :, frames] += parts.call(latents[:, :, frames], t) / 2
        latents = parts.scheduler.step(total, t, latents, return_dict=False)[0]


def unnamed_windows(parts: Parts) -> None:
    windows_of_one_name(parts, None)


def scaled_by_hand(parts: Parts) -> None:
    latents = parts.latents
    for t in parts.steps_of(parts.scheduler):
        latents = parts.scheduler.step(parts.call(0.99 * latents, t), t, latents, return_dict=False)[0]


def rolled(parts: Parts, at: range = range(STEPS)) -> None:
    latents = parts.latents
    for step, t in enumerate(parts.steps_of(parts.scheduler)):
        latents = parts.scheduler.step(parts.call(latents, t), t, latents, return_dict=False)[0]
        if step in at:
            latents = latents.roll(1, 2)


def in_turns(parts: Parts) -> None:
    first, second = parts.latents, -parts.latents
    timesteps = parts.steps_of(parts.scheduler)
    parts.second.set_timesteps(STEPS)
    for t in timesteps:
        first = parts.scheduler.step(parts.call(first, t), t, first, return_dict=False)[0]
        second = parts.second.step(parts.call(second, t), t, second, return_dict=False)[0]


def later_in_turns(parts: Parts) -> None:
    first, second = parts.latents, -parts.latents
    for step, t in enumerate(parts.steps_of(parts.scheduler)):
        velocity = parts.call(first, t)
        if step == 0:
            parts.second.set_timesteps(STEPS)
        second = parts.second.step(parts.call(second, t), t, second, return_dict=False)[0]
        first = parts.scheduler.step(velocity, t, first, return_dict=False)[0]


def after_an_error(parts: Parts) -> None:
    latents = parts.latents
    for step, t in enumerate(parts.steps_of(parts.scheduler)):
        if step == 1:
            with pytest.raises(RuntimeError):
                parts.call(latents[:, :1], t)
        latents = parts.scheduler.step(parts.call(latents, t), t, latents, return_dict=False)[0]


def window_of_every_second_step(parts: Parts) -> None:
    latents = parts.latents
    for step, t in enumerate(parts.steps_of(parts.scheduler)):
        with parts.transformer.cache_context(f"window {step % 2}"):
            velocity = parts.call(latents, t)
        latents = parts.scheduler.step(velocity, t, latents, return_dict=False)[0]


def moved_by_hand(parts: Parts) -> None:
    latents = parts.latents
    for step, t in enumerate(parts.steps_of(parts.scheduler)):
        difference = parts.scheduler.sigmas[step + 1] - parts.scheduler.sigmas[step]
        latents = latents + difference * parts.call(latents, t)


def two_threads(parts: Parts) -> None:
    latents, timesteps = parts.latents, parts.steps_of(parts.scheduler)
    for step, t in enumerate(timesteps):
        velocity = parts.call(latents, t)
        step_now = lambda t=t, velocity=velocity, latents=latents: parts.scheduler.step(velocity, t, latents)  # noqa: E731
        if step == 0:
            with ThreadPoolExecutor(1) as pool:
                latents = pool.submit(step_now).result().prev_sample
        else:
            latents = step_now().prev_sample


def one_set_timesteps(parts: Parts) -> None:
    parts.steps_of(parts.scheduler)
    for _ in range(2):
        latents = parts.latents
        parts.scheduler._step_index = None
        for t in parts.scheduler.timesteps:
            latents = parts.scheduler.step(parts.call(latents, t), t, latents, return_dict=False)[0]


def in_a_context(parts: Parts, steps: int = STEPS, **left_out: Any) -> None:
    latents = parts.latents
    for step in range(steps):
        where = {"step_index": step, "num_inference_steps": STEPS, "sigma": 1 - step / STEPS} | left_out
        with parts.transformer.cache_context("cond", **where):
            latents = latents - parts.call(latents, torch.tensor(1000 - 50 * step)) / STEPS


def without_sigma(parts: Parts) -> None:
    in_a_context(parts, sigma=None)


def not_given_up(parts: Parts) -> None:
    in_a_context(parts, steps=LEFT_AT)
    in_a_context(parts)


def with_a_scheduler(parts: Parts) -> dict[str, Any]:
    return {"schedulers": [parts.scheduler, parts.second]}


def without_a_scheduler(parts: Parts) -> dict[str, Any]:
    return {}


MISTAKES: tuple[tuple[str, Callable[[Parts], None], Callable[[Parts], dict[str, Any]]], ...] = (
    ("no observed scheduler has begun its loop", another_scheduler, with_a_scheduler),
    ("nothing tells the step of a call", without_sigma, without_a_scheduler),
    ("nothing tells the step of a call", another_scheduler, without_a_scheduler),
    ("was called twice in one step", windows_of_one_name, with_a_scheduler),
    ("no value of the transformer's input is one", scaled_by_hand, with_a_scheduler),
    ("no value of the transformer's input is one", rolled, with_a_scheduler),
    ("the next call is not of the step after it", in_turns, with_a_scheduler),
    ("the next call is not of the step after it", window_of_every_second_step, with_a_scheduler),
    ("another scheduler stepped between its calls", later_in_turns, with_a_scheduler),
    ("raised an error", after_an_error, with_a_scheduler),
    ("the step advanced, but no observed scheduler", moved_by_hand, with_a_scheduler),
    ("another thread used its scheduler", two_threads, with_a_scheduler),
    ("its last step was taken", one_set_timesteps, with_a_scheduler),
    ("an earlier loop without a scheduler was left", not_given_up, without_a_scheduler),
)

DECLARED_BEFORE = {one_set_timesteps: STEPS, not_given_up: LEFT_AT}  # calls of a first loop, which is declared


TOLD = set(re.findall(r"^\| `([^`]*)` \|", PAGE.split("## What a warning means")[1], re.MULTILINE))


def test_every_warning_of_the_table_is_tested() -> None:
    elsewhere = {"between two steps of the pipeline", "the latent of a step does not continue"}
    elsewhere |= {"it is not told which scheduler steps which output", "larger than the output that it is paired with"}
    elsewhere |= {"no observed scheduler stepped one of the transformer's outputs", "different numbers of steps"}
    assert {text for text, *_ in MISTAKES} | elsewhere == TOLD


@pytest.mark.parametrize(("text", "mistake", "given"), MISTAKES, ids=[mistake.__name__ for _, mistake, _ in MISTAKES])
def test_a_mistake_is_computed_in_full_with_the_warning_of_the_page(
    text: str, mistake: Callable[[Parts], None], given: Callable[[Parts], dict[str, Any]], parts: Parts
) -> None:
    parts.second, parts.unobserved = copy.deepcopy(parts.scheduler), copy.deepcopy(parts.scheduler)
    with (
        torch.no_grad(),
        galaxydit.accelerate(parts.transformer, speedup=2.0, **given(parts)) as acceleration,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        mistake(parts)
    said = [str(warning.message) for warning in caught if warning.category is galaxydit.FullComputeWarning]
    assert len([message for message in said if text in message]) == 1, said
    calls = [call for report in acceleration.reports for call in report.calls]
    assert not any(call.reused for call in calls[DECLARED_BEFORE.get(mistake, 0) :])


def test_windows_without_names_are_computed_with_a_warning_of_the_page(parts: Parts) -> None:
    with (
        torch.no_grad(),
        galaxydit.accelerate(parts.transformer, speedup=2.0, scheduler=parts.scheduler) as acceleration,
        pytest.warns(galaxydit.FullComputeWarning, match="|".join(map(re.escape, TOLD))),
    ):
        unnamed_windows(parts)
    assert acceleration.report.compute_fraction == 1.0


def test_a_step_after_a_latent_that_was_rolled_once_is_computed_and_the_loop_goes_on(parts: Parts) -> None:
    full = galaxydit.FixedSteps([0, 1, 2, 18])
    config = galaxydit.GalaxyDiTConfig(full, few_steps=0)
    with (
        torch.no_grad(),
        galaxydit.accelerate(parts.transformer, config=config, scheduler=parts.scheduler) as acceleration,
        pytest.warns(galaxydit.FullComputeWarning, match="the latent of a step does not continue"),
    ):
        rolled(parts, at=range(8, 9))
    computed = [call.step for call in acceleration.report.calls if not call.reused]
    assert {0, 1, 2, 9, 18} <= set(computed)
    assert len(computed) < STEPS / 2


def test_a_pipeline_in_a_callback_leaves_the_outer_loop_undeclared(parts: Parts) -> None:
    pipe = parts.pipe
    other = type(pipe)(**pipe.components | {"scheduler": copy.deepcopy(pipe.scheduler)})

    def run_other(pipe: Any, step: int, t: Tensor, arguments: dict[str, Any]) -> dict[str, Any]:
        if step == 0:
            other("a blue square turns")
        return arguments

    with (
        galaxydit.accelerate(pipe, speedup=2.0) as acceleration,
        pytest.warns(galaxydit.FullComputeWarning, match="between two steps of the pipeline"),
    ):
        pipe("a red ball", callback_on_step_end=run_other)
    assert acceleration.report.compute_fraction == 1.0
