"""Which loop, step, branch and latent a call belongs to, as schedulers and cache contexts tell it."""

import copy
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from diffusers import (
    DDIMScheduler,
    EulerDiscreteScheduler,
    FlowMatchEulerDiscreteScheduler,
    FlowMatchHeunDiscreteScheduler,
    PNDMScheduler,
    UniPCMultistepScheduler,
)
from diffusers.hooks.hooks import CacheContext
from torch import Tensor

import galaxydit
from galaxydit import FixedSteps, GalaxyDiTConfig
from galaxydit.adapters import adapter_states
from galaxydit.runtime.first_step import first_step
from galaxydit.runtime.latent_check import Latent
from galaxydit.runtime.loop import Loop
from galaxydit.runtime.loop_watch import LoopWatch
from galaxydit.runtime.undeclared import UndeclaredError
from galaxydit.runtime.window import Window, window_of
from tests.galaxydit.random_loops import SHAPE, WanTransformer3DModel

STEPS = 6
KINDS: dict[str, Callable[[], Any]] = {
    "Euler": lambda: FlowMatchEulerDiscreteScheduler(shift=3.0),
    "UniPC": UniPCMultistepScheduler,
    "Heun": lambda: FlowMatchHeunDiscreteScheduler(shift=3.0),
    "DDIM without a counter": DDIMScheduler,
    "PNDM with another counter": lambda: PNDMScheduler(skip_prk_steps=True),
}
with_every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
TEXT, OTHER_TEXT = torch.ones(1, 3), torch.zeros(1, 3)


def drawn(seed: int = 0) -> Tensor:
    return torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed))


def move(scheduler: Any, latent: Tensor, index: int) -> Tensor:
    """The latent after a step of a scheduler."""
    moved: Tensor = scheduler.step(torch.sin(latent), scheduler.timesteps[index], latent, return_dict=False)[0]
    return moved


@dataclass(frozen=True)
class Placed:
    """Where a call belongs."""

    loop: Loop
    window: Window
    branch: str
    step: int
    changed: tuple[str, ...]

    def latent(self) -> Latent:
        return self.window.check.read()[1]


class Calls:
    """Asks for the place of calls, as the hook on a transformer does."""

    def __init__(self, *given: Any, pipe: Any = None) -> None:
        self.watch = LoopWatch(pipe or SimpleNamespace(), given)

    def __call__(
        self,
        name: str | None = None,
        latent: Tensor | None = None,
        *,
        timestep: Any = None,
        component: str = "transformer",
        text: Tensor = TEXT,
        **told: Any,
    ) -> Placed:
        context = None if name is None else CacheContext(name, **told)
        loop = self.watch.find(context)
        given = drawn() if latent is None else latent
        window, branch, info, changed = loop.call(component, context, timestep, [given], {"text": text}, 1.0, None)
        return Placed(loop, window, branch, info.step, changed)

    def refuse(self, match: str, name: str | None = None, latent: Tensor | None = None, **told: Any) -> None:
        with pytest.raises(UndeclaredError, match=match):
            self(name, latent, **told)


def begun(kind: Callable[[], Any] = UniPCMultistepScheduler) -> tuple[Calls, Any]:
    scheduler = kind()
    calls = Calls(scheduler)
    scheduler.set_timesteps(STEPS)
    return calls, scheduler


# Declared loops


@with_every_kind
@pytest.mark.parametrize("names", [("cond", "uncond"), ("cond",), (None,)])
def test_each_call_of_a_loop_has_its_step_its_branch_and_the_latent_of_step(
    kind: Callable[[], Any], names: tuple[str | None, ...]
) -> None:
    calls, scheduler = begun(kind)
    for _ in range(2):  # the second loop begins with its set_timesteps
        latent = drawn()
        loops = set()
        for index in range(len(scheduler.timesteps)):
            for name in names:
                placed = calls(name, latent)
                assert (placed.step, placed.branch) == (index, name or "call 0")
                assert placed.latent() is Latent.EXPECTED
                loops.add(id(placed.loop))
            latent = move(scheduler, latent, index)
        assert not placed.loop.had_other_latents()
        assert len(loops) == 1
        scheduler.set_timesteps(STEPS)


def test_before_set_timesteps_a_call_has_no_place() -> None:
    calls = Calls(UniPCMultistepScheduler())
    calls.refuse("no observed scheduler has begun its loop")


def test_after_the_last_step_a_call_has_no_place() -> None:
    calls, scheduler = begun()
    latent = drawn()
    for index in range(STEPS):
        calls("cond", latent)
        latent = move(scheduler, latent, index)
    calls.refuse("its last step was taken", "cond", latent)


def test_a_reset_ends_the_loop() -> None:
    calls, scheduler = begun()
    loop = calls("cond").loop
    calls.watch.end()
    assert loop.is_over
    calls.refuse("no observed scheduler has begun", "cond")
    scheduler.set_timesteps(STEPS)
    assert calls("cond").loop is not loop


# A told step advances by one


def test_an_advance_without_a_step_is_undeclared() -> None:
    calls, _ = begun()
    calls("cond", step_index=0, num_inference_steps=STEPS)
    calls.refuse("the step advanced, but", "cond", step_index=1)


def test_a_step_without_an_advance_is_undeclared() -> None:
    calls, scheduler = begun()
    calls("cond", step_index=0)
    move(scheduler, drawn(), 0)
    calls.refuse("the next call is not of the step after it", "cond", step_index=0)


@with_every_kind
def test_two_steps_between_two_calls_are_undeclared(kind: Callable[[], Any]) -> None:
    calls, scheduler = begun(kind)
    latent = drawn()
    for index in range(2):
        calls("cond", latent)
        latent = move(scheduler, latent, index)
    latent = move(scheduler, latent, 2)
    for _ in range(2):  # it stays undeclared, and says the same
        calls.refuse("the next call is not of the step after it", "cond", latent)
        latent = move(scheduler, latent, 3)


def test_a_second_call_of_a_branch_in_one_step_is_undeclared() -> None:
    calls, _ = begun()
    calls("cond")
    calls("uncond")
    calls.refuse("cond was called twice in one step", "cond")


def test_an_undeclared_loop_is_followed_by_a_declared_one() -> None:
    calls, scheduler = begun()
    calls("cond")
    calls.refuse("twice", "cond")
    scheduler.set_timesteps(STEPS)
    assert calls("cond").step == 0


def test_two_transformers_of_one_pipeline_are_called_in_one_step() -> None:
    calls, scheduler = begun()
    latent = drawn()
    for index in range(3):
        for component in ("transformer", "transformer_2"):
            assert calls("cond", latent, component=component).step == index
        latent = move(scheduler, latent, index)


def test_windows_without_names_that_own_a_copied_scheduler_each_are_undeclared() -> None:
    calls, scheduler = begun()
    own, latents = [copy.deepcopy(scheduler) for _ in range(2)], [drawn(1), drawn(2)]
    for window in range(2):
        calls("cond", latents[window])
        latents[window] = move(own[window], latents[window], 0)
    for window in range(2):
        calls.refuse("the next call is not of the step after it", "cond", latents[window])


def test_copies_that_are_at_different_steps_are_undeclared() -> None:
    calls, scheduler = begun()
    own = [copy.deepcopy(scheduler) for _ in range(2)]
    calls("cond")
    for twin in own:
        move(twin, drawn(), 0)
    calls("cond")
    move(own[0], drawn(), 1)
    calls.refuse("its schedulers are at different steps", "cond")


def test_where_only_copies_step_their_common_step_counts() -> None:
    """As where single frames of a video are stepped, each by its own copy."""
    calls, scheduler = begun()
    own, video = [copy.deepcopy(scheduler) for _ in range(SHAPE[2])], drawn()
    for index in range(4):
        placed = calls("cond", video)
        assert placed.step == index
        assert placed.latent() is Latent.EXPECTED
        frames = [move(twin, video[:, :, place], index) for place, twin in enumerate(own)]
        video = torch.stack(frames, dim=2)
    assert calls("cond", video.roll(1, -1)).latent() is Latent.BROKEN


def test_a_second_step_from_the_same_index_replaces_the_first() -> None:
    """Cosmos steps for its clean prediction, sets the index back, and steps the latent."""
    scheduler = EulerDiscreteScheduler()
    calls = Calls(scheduler)
    scheduler.set_timesteps(STEPS)
    latent = drawn()
    for index in range(4):
        placed = calls("cond", latent)
        assert placed.step == index
        assert placed.latent() is Latent.EXPECTED
        move(scheduler, drawn(9), index)
        scheduler._step_index -= 1
        latent = move(scheduler, latent, index)
        assert placed.loop.trajectories[id(scheduler)].steps == index + 1


# Threads and errors


@pytest.fixture
def other_thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def test_a_call_of_another_thread_has_no_place_and_the_loop_goes_on(other_thread: ThreadPoolExecutor) -> None:
    calls, scheduler = begun()
    calls("cond")
    with pytest.raises(UndeclaredError, match="no observed scheduler has begun"):
        other_thread.submit(calls, "cond").result()
    latent = move(scheduler, drawn(), 0)
    assert calls("cond", latent).step == 1


def test_a_step_of_another_thread_is_undeclared(other_thread: ThreadPoolExecutor) -> None:
    calls, scheduler = begun()
    calls("cond")
    latent = other_thread.submit(move, scheduler, drawn(), 0).result()
    calls.refuse("another thread", "cond", latent)


def test_timesteps_that_another_thread_sets_are_undeclared(other_thread: ThreadPoolExecutor) -> None:
    calls, scheduler = begun()
    calls("cond")
    other_thread.submit(scheduler.set_timesteps, STEPS).result()
    calls.refuse("another thread", "cond")
    assert other_thread.submit(calls, "cond").result().step == 0


def test_loops_of_two_threads_with_a_scheduler_each_are_declared(other_thread: ThreadPoolExecutor) -> None:
    first, second = UniPCMultistepScheduler(), UniPCMultistepScheduler()
    calls = Calls(first, second)
    first.set_timesteps(STEPS)
    other_thread.submit(second.set_timesteps, STEPS).result()
    latents = [drawn(1), drawn(2)]
    for index in range(4):
        ours = calls("cond", latents[0])
        theirs = other_thread.submit(calls, "cond", latents[1]).result()
        assert ours.step == theirs.step == index
        assert ours.loop is not theirs.loop
        assert ours.latent() is theirs.latent() is Latent.EXPECTED
        latents[0] = move(first, latents[0], index)
        latents[1] = other_thread.submit(move, second, latents[1], index).result()


def test_a_step_that_raises_is_undeclared() -> None:
    calls, scheduler = begun(KINDS["Euler"])
    calls("cond")
    with pytest.raises(ValueError, match="integer indices"):
        scheduler.step(drawn(), 3, drawn())
    calls.refuse("step of its scheduler raised an error", "cond")


def test_a_step_that_returns_no_tensor_is_undeclared() -> None:
    class Other(UniPCMultistepScheduler):
        def step(self, *args: Any, **kwargs: Any) -> Any:
            return (None,)

    calls, scheduler = begun(Other)
    calls("cond")
    scheduler.step(drawn(), 3, drawn())
    calls.refuse("its scheduler returned no tensor", "cond")


def denoise(model: Any, scheduler: Any, fails_at: int | None = None) -> None:
    """Twelve steps on the toy; at one step a first call raises, and is tried again."""
    scheduler.set_timesteps(12)
    latent, text = drawn(), torch.ones(1, 1, drawn().numel())
    for index, t in enumerate(scheduler.timesteps):
        if index == fails_at:
            with pytest.raises(RuntimeError):
                model(latent, t.expand(1), text[..., :-1])
        with torch.no_grad(), model.cache_context("cond"):
            output = model(latent, t.expand(1), text)[0]
        latent = scheduler.step(output, t, latent)[0]


def test_after_an_error_in_a_call_the_loop_is_computed_in_full() -> None:
    model, scheduler = WanTransformer3DModel(), FlowMatchEulerDiscreteScheduler(shift=3.0)
    config = GalaxyDiTConfig(FixedSteps((0, 3, 6, 9)), few_steps=0)
    with galaxydit.accelerate(model, config=config, scheduler=scheduler) as accelerated:
        with pytest.warns(galaxydit.FullComputeWarning, match="a call of the transformer raised an error"):
            denoise(model, scheduler, fails_at=5)
        steps = [call.step for call in accelerated.report.calls if call.reused]
        assert steps == [1, 2, 4]
        denoise(model, scheduler)
        steps = [call.step for call in accelerated.report.calls if call.reused]
        assert steps == [1, 2, 4, 5, 7, 8, 10, 11][: len(steps)]
        assert len(steps) > 6


# Where a loop begins


def test_set_timesteps_twice_before_the_first_call_is_one_loop() -> None:
    calls, scheduler = begun()
    scheduler.set_timesteps(2 * STEPS)
    loop = calls("cond").loop
    assert loop._steps(None) == 2 * STEPS
    move(scheduler, drawn(), 0)
    assert not loop.reason


def test_set_timesteps_after_a_call_begins_another_loop() -> None:
    calls, scheduler = begun()
    first = calls("cond").loop
    move(scheduler, drawn(), 0)
    scheduler.set_timesteps(STEPS)
    second = calls("cond")
    assert second.loop is not first
    assert first.is_over
    assert second.step == 0


@pytest.mark.parametrize("is_main_last", [False, True])
def test_two_schedulers_whose_timesteps_are_set_before_the_first_call_are_one_loop(*, is_main_last: bool) -> None:
    """A pipeline of video and sound, for example; the main one tells the step."""
    main, sound = UniPCMultistepScheduler(), DDIMScheduler()
    pipe = SimpleNamespace(
        scheduler=main, sound_scheduler=sound, components={"scheduler": main, "sound_scheduler": sound}
    )
    calls = Calls(pipe=pipe)
    for scheduler in (sound, main) if is_main_last else (main, sound):
        scheduler.set_timesteps(STEPS)
    latent = drawn()
    for index in range(4):
        placed = calls("cond", latent)
        assert placed.step == index
        assert placed.loop.scheduler is main
        assert placed.latent() is not Latent.BROKEN
        latent = move(main, latent, index)
        move(sound, drawn(index), index)


@with_every_kind
def test_a_loop_that_begins_in_the_middle_is_told_by_its_timestep(kind: Callable[[], Any]) -> None:
    """Video-to-video. Heun has most timesteps twice, the first of both at odd places."""
    calls, scheduler = begun(kind)
    latent = drawn()
    if isinstance(scheduler, FlowMatchHeunDiscreteScheduler):
        scheduler.set_begin_index(3)
    for index in range(3, 5):
        placed = calls("cond", latent, timestep=scheduler.timesteps[index].expand(2))
        assert placed.step == index
        assert placed.window.first == 3
        latent = move(scheduler, latent, index)


def test_a_loop_that_begins_in_the_middle_is_told_by_the_begin_index() -> None:
    calls, scheduler = begun()
    scheduler.set_begin_index(3)
    placed = calls("cond", timestep=torch.tensor(0.5))
    assert (placed.step, placed.window.first) == (3, 3)


def test_a_first_step_that_a_scaled_timestep_does_not_show_is_corrected_by_the_second() -> None:
    calls, scheduler = begun()
    latent = drawn()
    assert calls("cond", latent, timestep=torch.tensor(0.5)).step == 0
    latent = move(scheduler, latent, 3)
    placed = calls("cond", latent, timestep=torch.tensor(0.4))
    assert (placed.step, placed.window.first) == (4, 3)
    assert placed.latent() is Latent.EXPECTED
    latent = move(scheduler, latent, 4)
    assert calls("cond", latent).step == 5


def test_the_first_step_is_the_counters_then_the_begin_index_then_the_timesteps() -> None:
    scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
    scheduler.set_timesteps(5)
    t = scheduler.timesteps[3]
    assert first_step(scheduler, None, t) == 3
    assert first_step(scheduler, None, t.expand(2)) == 3
    assert first_step(scheduler, None, torch.tensor([0.0, float(t)])) == 3, "given tokens have a smaller timestep"
    assert first_step(scheduler, None, t / 1000) == 0, "the start is assumed where the timestep is scaled"
    assert first_step(scheduler, CacheContext("cond", timestep=t), t / 1000) == 3
    assert first_step(scheduler, CacheContext("cond", timestep=float(t)), None) == 3
    assert first_step(None, None, t) == 0
    scheduler.set_begin_index(2)
    assert first_step(scheduler, None, t) == 2
    move(scheduler, drawn(), 2)
    assert first_step(scheduler, None, t) == 3


# Loops that share a transformer


def test_an_observed_scheduler_of_another_loop_that_steps_in_between_ends_the_first_loop() -> None:
    first, second = UniPCMultistepScheduler(), UniPCMultistepScheduler()
    calls = Calls(first, second)
    latents = [drawn(1), drawn(2)]
    first.set_timesteps(STEPS)
    outer = calls("cond", latents[0]).loop
    latents[0] = move(first, latents[0], 0)
    second.set_timesteps(STEPS)
    inner = calls("cond", latents[1])
    assert inner.step == 0
    assert inner.loop is not outer
    latents[1] = move(second, latents[1], 0)
    latents[0] = move(first, latents[0], 1)
    calls.refuse("another scheduler stepped between its calls", "cond", latents[1])


def test_a_pipeline_that_is_called_in_a_callback_undeclares_the_loop() -> None:
    scheduler = UniPCMultistepScheduler()
    pipe = SimpleNamespace(scheduler=scheduler, _current_timestep=None)
    calls = Calls(pipe=pipe)
    scheduler.set_timesteps(STEPS)
    latent = drawn()
    for index in range(2):
        pipe._current_timestep = scheduler.timesteps[index]
        assert calls("cond", latent).step == index
        latent = move(scheduler, latent, index)
    calls.refuse("between two steps of the pipeline", "cond", drawn(9))
    pipe._current_timestep = scheduler.timesteps[2]
    calls.refuse("between two steps of the pipeline", "cond", latent)


def test_a_named_loop_that_begins_in_a_callback_is_declared_and_the_outer_one_is_lost() -> None:
    scheduler, other = UniPCMultistepScheduler(), UniPCMultistepScheduler()
    pipe = SimpleNamespace(scheduler=scheduler, _current_timestep=None)
    calls = Calls(other, pipe=pipe)
    scheduler.set_timesteps(STEPS)
    pipe._current_timestep = scheduler.timesteps[0]
    latent, inner = drawn(), drawn(1)
    outer = calls("cond", latent).loop
    latent = move(scheduler, latent, 0)
    other.set_timesteps(STEPS)
    for index in range(STEPS):
        assert calls("cond", inner).step == index
        inner = move(other, inner, index)
    pipe._current_timestep = scheduler.timesteps[1]
    calls.refuse("another loop called the transformer", "cond", latent)
    assert outer.is_over


# Loops without a scheduler


def told(step: int, steps: int = STEPS) -> dict[str, Any]:
    return {"step_index": step, "num_inference_steps": steps, "sigma": 1 - step / steps}


def test_a_loop_without_a_scheduler_is_told_by_contexts_and_compares_nothing() -> None:
    calls = Calls()
    for _ in range(2):
        loops = []
        for index in range(STEPS):
            for name in ("cond", "uncond"):
                placed = calls(name, drawn(index), **told(index))
                assert (placed.step, placed.branch) == (index, name)
                assert placed.latent() is Latent.EXPECTED
                loops.append(placed.loop)
        assert all(loop is loops[0] for loop in loops)


@pytest.mark.parametrize("missing", ["step_index", "num_inference_steps", "sigma"])
def test_a_context_that_does_not_say_all_has_no_place(missing: str) -> None:
    said = told(0)
    del said[missing]
    Calls().refuse("nothing tells .* without a scheduler, call the transformer inside cache_context", "cond", **said)
    Calls().refuse("nothing tells")


def test_a_loop_without_a_scheduler_that_leaves_out_a_step_is_undeclared() -> None:
    calls = Calls()
    calls("cond", **told(0))
    calls("cond", **told(1))
    calls.refuse("the step advanced, but", "cond", **told(3))


def test_a_loop_without_a_scheduler_that_begins_in_the_middle_is_declared() -> None:
    calls = Calls()
    for index in range(2, STEPS):
        placed = calls("cond", **told(index))
        assert (placed.step, placed.window.first) == (index, 2)


def test_a_loop_without_a_scheduler_that_was_left_early_may_go_on_until_a_reset() -> None:
    """Two loops in turns look alike: so the next one is undeclared, too, until the transformer's cache is reset."""
    calls = Calls()
    for index in range(3):
        calls("cond", **told(index))
    calls.refuse("an earlier loop without a scheduler was left before its last step", "cond", **told(0))
    calls.refuse("an earlier loop without a scheduler was left", "cond", **told(1))
    calls.watch.end()
    for index in range(STEPS):
        assert calls("cond", **told(index)).step == index
    assert calls("cond", **told(0)).step == 0, "a loop that has ended needs no reset"


def test_two_loops_without_a_scheduler_that_take_turns_are_undeclared() -> None:
    calls = Calls()
    calls("cond", **told(0))
    calls("cond", **told(1))
    for index in range(STEPS):
        calls.refuse("an earlier loop without a scheduler|twice in one step", "cond", **told(index))


def test_two_loops_without_a_scheduler_in_step_are_undeclared() -> None:
    calls = Calls()
    calls("cond", drawn(1), **told(0))
    calls.refuse("twice in one step", "cond", drawn(2), **told(0))


# Windows and tiles


@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("cond", ""),
        ("window 2", "window 2"),
        ("window 2/cond", "window 2"),
        ("tile 1/2/cond", "tile 1/2"),
        ("a/cond", "a"),
    ],
)
def test_a_name_holds_window_and_branch(name: str, window: str) -> None:
    assert window_of(name) == window


PLACES = ((0, 2), (1, 3), (2, 4))


@pytest.mark.parametrize("branches", [("",), ("/cond", "/uncond")])
def test_named_windows_of_one_latent_are_compared_with_their_part_of_it(branches: tuple[str, ...]) -> None:
    calls, scheduler = begun()
    latent = drawn()
    for index in range(5):
        windows = []
        for number, (low, high) in enumerate(PLACES):
            for branch in branches:
                placed = calls(f"window {number}{branch}", latent[:, :, low:high])
                assert (placed.step, placed.branch) == (index, f"window {number}{branch}")
                assert placed.latent() is Latent.EXPECTED
            windows.append(placed.window)
        assert len({id(window) for window in windows}) == len(PLACES)
        latent = move(scheduler, latent, index)
    swapped = calls("window 0" + branches[0], latent[:, :, 1:3])
    assert swapped.latent() is Latent.BROKEN


def test_named_windows_with_a_copied_scheduler_each_have_their_own_latents() -> None:
    calls, scheduler = begun()
    own, latents = [copy.deepcopy(scheduler) for _ in range(2)], [drawn(1), drawn(2)]
    for index in range(5):
        for window in range(2):
            placed = calls(f"window {window}", latents[window])
            assert placed.step == index
            assert placed.latent() is Latent.EXPECTED
            assert placed.window.schedulers == ([id(own[window])] if index else [])
            latents[window] = move(own[window], latents[window], index)
    assert calls("window 0", latents[1]).latent() is Latent.BROKEN


def test_unnamed_windows_are_undeclared_or_broken() -> None:
    calls, scheduler = begun()
    latent = drawn()
    calls("cond", latent[:, :, :2])
    calls.refuse("twice in one step", "cond", latent[:, :, 2:])
    move(scheduler, latent, 0)
    calls.refuse("twice in one step", "cond", latent[:, :, :2])


# Branches without names


def test_unnamed_calls_are_named_by_their_order() -> None:
    calls, scheduler = begun()
    latent = drawn()
    for index in range(3):
        assert calls(None, latent, text=TEXT).branch == "call 0"
        assert calls(None, latent, text=OTHER_TEXT).branch == "call 1"
        latent = move(scheduler, latent, index)


@pytest.mark.parametrize("are_copies", [False, True])
def test_unnamed_calls_that_change_their_order_are_known_by_their_conditions(*, are_copies: bool) -> None:
    calls, scheduler = begun()
    latent, texts = drawn(), {"call 0": TEXT, "call 1": OTHER_TEXT}
    for index in range(5):
        order = list(texts)[:: -1 if index % 2 else 1]
        for branch in order:
            text = texts[branch].clone() if are_copies else texts[branch]
            placed = calls(None, latent, text=text)
            assert placed.branch == branch
            assert not placed.changed
        latent = move(scheduler, latent, index)


def test_an_unnamed_batch_whose_rows_are_swapped_has_changed_conditions() -> None:
    calls, scheduler = begun()
    latent, texts = drawn(), torch.cat([TEXT, OTHER_TEXT])
    both = torch.cat([latent, latent])
    assert calls(None, both, text=texts).changed == ()
    move(scheduler, latent, 0)
    placed = calls(None, both, text=texts.flip(0))
    assert (placed.branch, placed.changed) == ("call 0", ("text",))


def test_a_condition_that_changes_between_two_steps_is_named() -> None:
    calls, scheduler = begun()
    text = TEXT.clone()
    calls("cond", text=text)
    move(scheduler, drawn(), 0)
    assert calls("cond", text=text.clone()).changed == ()
    move(scheduler, drawn(), 1)
    calls("cond", text=text)
    move(scheduler, drawn(), 2)
    text.add_(1)
    assert calls("cond", text=text).changed == ("text",)


def test_scaling_and_unscaling_an_adapter_leaves_its_scale() -> None:
    assert 0.85 * 0.6 / 0.6 != 0.85
    layer: Any = torch.nn.Linear(2, 2)
    layer.active_adapters, layer.disable_adapters, layer.merged = ["style"], False, False
    transformer: Any = torch.nn.Sequential(layer)
    transformer._hf_peft_config_loaded = True
    states = []
    for value in (0.85, 0.85 * 0.6 / 0.6, 0.86):
        layer.scaling = {"style": value}
        states.append(adapter_states(transformer))
    assert states[0] == states[1] != states[2]


# Latents


def test_a_latent_that_is_not_the_one_of_step_is_broken_and_the_next_ones_are_read_with_it() -> None:
    calls, scheduler = begun()
    latent = drawn()
    for index in range(3):
        assert calls("cond", latent).latent() is Latent.EXPECTED
        latent = move(scheduler, latent, index)
    calls("cond", latent.roll(1, -1))
    latent = move(scheduler, latent.roll(1, -1), 3)
    after = calls("cond", latent)
    assert after.window.check.read() == (True, Latent.EXPECTED), "an earlier call had another one"
    assert after.window.check.read() == (False, Latent.EXPECTED), "nothing is left to read"
    latent = move(scheduler, latent, 4)
    calls("cond", latent.roll(1, -1))
    assert after.loop.had_other_latents()


def test_a_latent_that_shares_no_value_with_the_input_is_unknown_and_its_steps_are_compared() -> None:
    """As where the transformer gets tokens: then `step` has to be given what it returned."""
    for is_edited in (False, True):
        calls, scheduler = begun()
        latent = drawn()
        for index in range(4):
            placed = calls("cond", latent.flatten(2).transpose(1, 2))
            assert placed.latent() is (Latent.UNKNOWN if index else Latent.EXPECTED)
            if is_edited and index == 2:
                latent = latent.roll(1, -1)
            latent = move(scheduler, latent, index)
        assert placed.loop.had_other_latents() is is_edited


@pytest.mark.parametrize("are_copies", [False, True])
def test_a_window_of_another_loop_that_nobody_observes_leaves_nothing_to_reuse(*, are_copies: bool) -> None:
    """Its input cannot be compared with the latent of the observed loop, whose next step it is taken for."""
    calls, scheduler = begun()
    latent, other = drawn(1), drawn(2)

    def call(latent: Tensor) -> Placed:
        return calls(None, latent, text=TEXT.clone() if are_copies else TEXT)

    call(latent)
    latent = move(scheduler, latent, 0)
    call(other[:, :, :2])
    try:
        call(other[:, :, 2:])
        call(latent)
        placed = call(move(scheduler, latent, 1))
    except UndeclaredError:
        return  # computed in full
    was_broken, relation = placed.window.check.read()
    assert was_broken or relation is not Latent.EXPECTED


def test_the_latents_of_a_second_input_shape_are_known_only_to_its_own_window() -> None:
    calls, scheduler = begun()
    latent = drawn()
    calls("cond", latent)
    latent = move(scheduler, latent, 0)
    assert calls("cond", latent).latent() is Latent.EXPECTED
    latent = move(scheduler, latent, 1)
    assert calls("cond", latent[:, :, :2]).latent() is Latent.BROKEN, "it was resized"


def test_a_pipeline_that_nothing_disturbs_is_told_without_a_warning() -> None:
    model, scheduler = WanTransformer3DModel(), FlowMatchEulerDiscreteScheduler(shift=3.0)
    config = GalaxyDiTConfig(FixedSteps((0, 3, 6, 9)), few_steps=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", galaxydit.FullComputeWarning)
        with galaxydit.accelerate(model, config=config, scheduler=scheduler):
            denoise(model, scheduler)
