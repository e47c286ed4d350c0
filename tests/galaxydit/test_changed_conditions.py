"""Every argument of every family's transformer, changed in mid-run: no step is predicted from before the change."""

import copy
import random
from collections.abc import Callable
from typing import Any

import diffusers
import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from torch import Tensor, nn

import galaxydit
from galaxydit import FixedSteps, GalaxyDiTConfig
from galaxydit.families import FAMILIES, SEPARATE
from galaxydit.runtime.placing import ALWAYS_MOVING
from tests.galaxydit.test_all_families import TINY, Tiny, denoise

STEPS = 9
FULL = (0, 1, 2, 6)
PLAN = {step: {step not in FULL} for step in range(STEPS)}
SOME = GalaxyDiTConfig(FixedSteps(FULL))
HANDED: dict[str, Callable[[Any], Any]] = {
    "the same objects": lambda value: value,
    "views": lambda value: value.view_as(value) if isinstance(value, Tensor) else value,
    "copies": copy.deepcopy,
}

WAYS = [("the same objects", True), ("the same objects", False), ("views", True), ("copies", True)]
REFUSED = ("audio_num_frames", "height", "num_frames", "timestep_indices", "width")


class Caller:
    """Calls a transformer with conditions of its own, and changes the one called `name` before step `at`.

    `calls` is the number of calls in a step, and `only` the call whose condition changes, by default all of them.
    `handed` says what a call receives: the same objects as the call before, views of them, or copies.
    """

    def __init__(
        self,
        transformer: nn.Module,
        tiny: Tiny,
        handed: str,
        name: str = "",
        at: int | None = None,
        in_place: bool = False,
        only: int | None = None,
    ) -> None:
        self.transformer, self.handed, self.name, self.at, self.in_place = transformer, handed, name, at, in_place
        self.moving = {*tiny.latents, *ALWAYS_MOVING, *FAMILIES[tiny.class_name].moving}
        self.calls, self.only, self.count = calls_of(tiny), only, 0
        self.kept: list[dict[str, Any]] = [{} for _ in range(self.calls)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transformer, name)

    def __call__(self, **arguments: Any) -> Any:
        (step, call), self.count = divmod(self.count, self.calls), self.count + 1
        kept = self.kept[call]
        for name in arguments.keys() - self.moving - kept.keys():
            value = arguments[name]
            kept[name] = value.clone() if isinstance(value, Tensor) else copy.deepcopy(value)
        if step == self.at and self.only in (None, call):
            kept[self.name] = changed(kept[self.name], self.in_place)
        return self.transformer(**arguments | {name: HANDED[self.handed](value) for name, value in kept.items()})


def changed(value: Any, in_place: bool) -> Any:
    """Another value of the same kind, which a transformer can take; the same object `in_place`."""
    if isinstance(value, list):
        value = value if in_place else list(value)
        value[0] = changed(value[0], in_place)
        return value
    if not isinstance(value, Tensor):
        return value + 1
    value = value if in_place else value.clone()
    first = value.view(-1)[:1]
    first.copy_(~first if value.dtype is torch.bool else first + 1)
    return value


def calls_of(tiny: Tiny) -> int:
    return 2 if tiny.branches == SEPARATE else 1


def run(transformer: nn.Module, tiny: Tiny, caller: Any, config: GalaxyDiTConfig = SOME) -> galaxydit.Report:
    scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
    with galaxydit.accelerate(transformer, config=config, scheduler=scheduler) as acceleration:
        denoise(caller, tiny, scheduler, STEPS)
    (report,) = acceleration.reports
    return report


def reused(report: galaxydit.Report) -> dict[int, set[bool]]:
    return {step: {call.reused for call in report.calls if call.step == step} for step in range(STEPS)}


@pytest.fixture(params=TINY)
def tiny(request: pytest.FixtureRequest) -> Tiny:
    return TINY[request.param]


@pytest.mark.parametrize("handed", HANDED)
def test_without_a_change_steps_are_reused_as_planned(tiny: Tiny, handed: str) -> None:
    transformer = tiny.build()
    report = run(transformer, tiny, Caller(transformer, tiny, handed))
    assert reused(report) == PLAN
    assert not report.notes


def test_the_step_after_a_change_is_computed(tiny: Tiny, exhaustive: bool) -> None:
    """Each argument is changed in the same object, and in one of the other ways; these take turns."""
    transformer, draw = tiny.build(), random.Random(tiny.class_name)
    moving = {*tiny.latents, *FAMILIES[tiny.class_name].moving}
    for index, name in enumerate(sorted({*tiny.conditions, *tiny.fixed, *tiny.others} - moving)):
        ways = WAYS if exhaustive else [WAYS[0], WAYS[1 + (index + len(tiny.class_name)) % 3]]
        if isinstance(tiny.others.get(name), int | float):
            ways = [("the same objects", False)]
        for handed, in_place in ways:
            at = draw.choice([step for step in range(3, STEPS - 1) if step not in FULL])
            caller = Caller(transformer, tiny, handed, name, at, in_place)
            if name in REFUSED:  # a model that refuses the value has not reused the step
                with pytest.raises((IndexError, RuntimeError)):
                    run(transformer, tiny, caller)
                assert caller.count == at * caller.calls + 1
                continue
            report = run(transformer, tiny, caller)
            assert reused(report) == PLAN | {at: {False}}, f"{name}, {handed}, {in_place=}"
            assert report.notes == (f"{name} changed between two steps, so the next step is computed",)


@pytest.mark.parametrize("name", ["WanTransformer3DModel", "CosmosTransformer3DModel", "LTXVideoTransformer3DModel"])
def test_a_change_in_place_is_seen_in_inference_mode(name: str) -> None:
    tiny = TINY[name]
    transformer = tiny.build()
    for handed in ("the same objects", "copies"):
        with torch.inference_mode():
            report = run(transformer, tiny, Caller(transformer, tiny, handed, "encoder_hidden_states", 5, True))
            assert reused(report) == PLAN | {5: {False}}


@pytest.mark.parametrize("only", [0, 1])
@pytest.mark.parametrize("name", [name for name, tiny in TINY.items() if calls_of(tiny) == 2])
def test_a_change_in_one_branch_computes_its_next_call(name: str, only: int) -> None:
    tiny = TINY[name]
    transformer = tiny.build()
    report = run(transformer, tiny, Caller(transformer, tiny, "copies", "encoder_hidden_states", 4, only=only))
    reused_calls = {step: [call.reused for call in report.calls if call.step == step] for step in range(STEPS)}
    assert reused_calls[4][only] is False
    assert all(len(set(calls)) == 1 for step, calls in reused_calls.items() if step != 4)
    assert [set(reused_calls[step]) for step in range(7, STEPS)] == [PLAN[step] for step in range(7, STEPS)]


CHANGES: dict[int, Callable[[Any], None]] = {
    3: lambda transformer: transformer.set_adapters(["style"], [0.5]),
    5: lambda transformer: add_to_adapters(transformer),
    7: lambda transformer: transformer.disable_adapters(),
}
"""What happens to the adapters before which step."""


def add_to_adapters(transformer: nn.Module) -> None:
    for name, weight in transformer.named_parameters():
        if "lora_A" in name:
            weight.add_(0.01)


class ChangedAdapters(Caller):
    """Changes the adapters of the transformer before some steps."""

    def __call__(self, **arguments: Any) -> Any:
        step, call = divmod(self.count, self.calls)
        if step in CHANGES and not call:
            CHANGES[step](self.transformer)
        return super().__call__(**arguments)


@pytest.mark.parametrize("name", [name for name in TINY if hasattr(getattr(diffusers, name), "add_adapter")])
def test_the_step_after_a_change_of_adapters_is_computed(name: str) -> None:
    peft = pytest.importorskip("peft")
    tiny = TINY[name]
    transformer = tiny.build()
    layers = [path for path, module in transformer.named_modules() if isinstance(module, nn.Linear) and "attn" in path]
    layers = layers or [path for path, module in transformer.named_modules() if path.endswith(("to_query", "to_value"))]
    transformer.add_adapter(peft.LoraConfig(r=2, target_modules=layers, init_lora_weights=False), "style")
    transformer.set_adapters(["style"], [0.1])
    caller = ChangedAdapters(transformer, tiny, "the same objects")
    assert reused(run(transformer, tiny, caller)) == PLAN | {step: {False} for step in CHANGES}
