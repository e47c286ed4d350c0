"""A scheduler that is observed can do all that the plain one can, and stays as it was once nobody observes it."""

import copy
import functools
import inspect
import io
import itertools
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import diffusers
import pytest
import torch
from diffusers import DDIMScheduler, EulerDiscreteScheduler, FlowMatchEulerDiscreteScheduler, UniPCMultistepScheduler
from diffusers.schedulers.scheduling_utils import SchedulerMixin
from diffusers.utils import is_torchsde_available
from torch import Tensor

from galaxydit.runtime.loop_watch import LoopWatch
from galaxydit.runtime.observed_scheduler import METHODS, observe, schedulers_in, stop_observing
from galaxydit.runtime.undeclared import UndeclaredError

STEPS = 3
SHAPE = (1, 4, 2, 4, 4)


def ordinary_step(scheduler: Any, output: Tensor, t: Tensor, latent: Tensor, index: int) -> Any:
    return scheduler.step(output, t, latent)


def step_of_cogvideox_dpm(scheduler: Any, output: Tensor, t: Tensor, latent: Tensor, index: int) -> Any:
    return scheduler.step(output, None, t, None, latent, return_dict=False)


def step_of_wuerstchen(scheduler: Any, output: Tensor, t: Tensor, latent: Tensor, index: int) -> Any:
    return scheduler.step(output, t.expand(len(latent)), latent)


def step_of_helios_dmd(scheduler: Any, output: Tensor, t: Tensor, latent: Tensor, index: int) -> Any:
    return scheduler.step(
        output,
        t,
        latent,
        cur_sampling_step=index,
        dmd_noisy_tensor=torch.ones_like(latent),
        dmd_sigmas=scheduler.sigmas,
        dmd_timesteps=scheduler.timesteps,
        all_timesteps=scheduler.timesteps,
    )


def step_of_karras_ve(scheduler: Any, output: Tensor, t: Tensor, latent: Tensor, index: int) -> Any:
    return scheduler.step(output, 2.0, 1.0, latent)


def step_of_repaint(scheduler: Any, output: Tensor, t: Tensor, latent: Tensor, index: int) -> Any:
    return scheduler.step(output, t, latent, torch.zeros_like(latent), torch.ones_like(latent))


def step_of_piflow(scheduler: Any, output: Tensor, t: Tensor, latent: Tensor, index: int) -> Any:
    grid = scheduler.config.n_grid
    return scheduler.step(torch.cat([output] * grid, dim=-1), t, latent)


@dataclass(frozen=True)
class Usage:
    """How a scheduler is used where it is not as most are. With `has_end`, no step begins at the last timestep."""

    options: dict[str, Any] = field(default_factory=dict)
    steps: int = STEPS
    has_end: bool = False
    step: Callable[..., Any] = ordinary_step


USAGES = {
    "CogVideoXDPMScheduler": Usage(step=step_of_cogvideox_dpm),
    "DDPMWuerstchenScheduler": Usage(has_end=True, step=step_of_wuerstchen),
    "HeliosDMDScheduler": Usage({"stages": 1, "stage_range": [0, 1]}, step=step_of_helios_dmd),
    "HeliosScheduler": Usage({"stages": 1, "stage_range": [0, 1]}),
    "KDPM2AncestralDiscreteScheduler": Usage({"num_train_timesteps": 50}),  # it sets its timesteps slowly
    "KDPM2DiscreteScheduler": Usage({"num_train_timesteps": 50}),
    "KarrasVeScheduler": Usage(step=step_of_karras_ve),
    "PiflowScheduler": Usage({"n_grid": 2, "num_policy_substeps": 4}, step=step_of_piflow),
    "PNDMScheduler": Usage(steps=4),
    "RePaintScheduler": Usage(step=step_of_repaint),
    "SCMScheduler": Usage(steps=2, has_end=True),
}
OF_TOKENS = ("Amused", "BlockRefinement", "DiscreteDDIM", "EntropyBound", "RFD4Proteina", "VQDiffusion")
# diffusers exports a stand-in without torchsde.
WITH_TORCHSDE = ("CosineDPMSolverMultistepScheduler", "DPMSolverSDEScheduler")
OTHER_LOOPS = ("ScoreSdeVeScheduler",)  # has step_pred and step_correct


def scheduler_names() -> list[str]:
    """The schedulers that diffusers exports and that step a latent."""
    left_out = [f"{name}Scheduler" for name in OF_TOKENS]
    left_out += OTHER_LOOPS
    if not is_torchsde_available():
        left_out += WITH_TORCHSDE
    names = [name for name in dir(diffusers) if name.endswith("Scheduler")]
    return [name for name in names if name not in left_out]


NAMES = scheduler_names()
of_every_scheduler = pytest.mark.parametrize("name", NAMES)


def usage_of(name: str) -> Usage:
    return USAGES.get(name, Usage())


def build(name: str) -> Any:
    return getattr(diffusers, name)(**usage_of(name).options)


def denoise(scheduler: Any, stops_at: int | None = None) -> list[Tensor]:
    """The latents of a loop on a model that is the sine."""
    torch.manual_seed(0)  # some schedulers draw from the global generator
    usage = usage_of(type(scheduler).__name__)
    scheduler.set_timesteps(usage.steps)
    latent = torch.randn(SHAPE)
    latents = []
    timesteps = scheduler.timesteps[:-1] if usage.has_end else scheduler.timesteps
    for index, t in enumerate(timesteps[:stops_at]):
        given = latent
        if hasattr(scheduler, "scale_model_input"):
            given = scheduler.scale_model_input(latent, t)
        latent = usage.step(scheduler, torch.sin(given), t, latent, index)[0]
        latents.append(latent)
    return latents


def are_equal(ones: list[Tensor], others: list[Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(ones, others, strict=True))


class Watcher:
    """Notes what it is told: words, with the scheduler each."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []
        self.arguments: list[Mapping[str, Any]] = []
        self.copies: list[tuple[Any, Any]] = []

    def before(self, method: str, scheduler: Any, arguments: Mapping[str, Any]) -> None:
        self.told.append((f"before {method}", scheduler))
        self.arguments.append(arguments)

    def after(self, method: str, scheduler: Any, arguments: Mapping[str, Any], result: Any) -> None:
        self.told.append((f"after {method}", scheduler))

    def failed(self, method: str, scheduler: Any) -> None:
        self.told.append((f"failed {method}", scheduler))

    def copied(self, scheduler: Any, copy: Any) -> None:
        self.copies.append((scheduler, copy))

    def words(self, scheduler: Any) -> list[str]:
        return [word for word, of in self.told if of is scheduler]


def words_of_a_loop(scheduler: Any, steps: int) -> list[str]:
    methods = ["scale_model_input"] if hasattr(scheduler, "scale_model_input") else []
    methods.append("step")
    words = ["before set_timesteps", "after set_timesteps"]
    for _ in range(steps):
        for method in methods:
            words += [f"before {method}", f"after {method}"]
    return words


def test_nearly_all_schedulers_of_diffusers_are_tried() -> None:
    assert len(NAMES) >= 35


@of_every_scheduler
def test_an_observed_scheduler_gives_the_same_latents_and_tells_each_method_once(name: str) -> None:
    scheduler, watcher = build(name), Watcher()
    expected = denoise(build(name))
    observe(scheduler, watcher)
    for _ in range(2):  # the second time, set_timesteps begins anew
        watcher.told.clear()
        assert are_equal(denoise(scheduler), expected)
        assert watcher.words(scheduler) == words_of_a_loop(scheduler, len(expected))


@of_every_scheduler
def test_a_deep_copy_steps_itself_and_is_told(name: str) -> None:
    scheduler, plain, watcher = build(name), build(name), Watcher()
    observe(scheduler, watcher)
    scheduler.set_timesteps(usage_of(name).steps)
    plain.set_timesteps(usage_of(name).steps)
    before = state_of(scheduler)
    twin = copy.deepcopy(scheduler)
    assert watcher.copies
    assert all(original is scheduler and copied is twin for original, copied in watcher.copies)
    watcher.told.clear()
    latents = denoise(twin)
    assert are_equal(latents, denoise(copy.deepcopy(plain)))
    assert watcher.words(twin) == words_of_a_loop(twin, len(latents))
    assert not watcher.words(scheduler)
    assert state_of(scheduler) == before, "the original was stepped"
    copied_again = copy.deepcopy(twin)
    assert watcher.copies[-1] == (twin, copied_again)


def state_of(scheduler: Any) -> dict[str, str]:
    """The attributes of a scheduler as texts, without its methods."""
    return {name: repr(value) for name, value in vars(scheduler).items() if name not in METHODS}


def test_a_deep_copy_in_the_middle_of_a_loop_goes_on_where_the_original_is() -> None:
    scheduler, plain = UniPCMultistepScheduler(), UniPCMultistepScheduler()
    observe(scheduler, Watcher())
    denoise(scheduler, stops_at=2)
    denoise(plain, stops_at=2)
    twin, latent = copy.deepcopy(scheduler), torch.ones(SHAPE)
    expected = plain.step(latent, plain.timesteps[2], latent)[0]
    assert torch.equal(twin.step(latent, twin.timesteps[2], latent)[0], expected)
    assert (twin.step_index, scheduler.step_index) == (3, 2)


def test_a_deep_copy_of_what_holds_a_scheduler_holds_an_observed_one() -> None:
    scheduler, watcher = FlowMatchEulerDiscreteScheduler(), Watcher()
    observe(scheduler, watcher)
    holder = copy.deepcopy(SimpleNamespace(step=scheduler.step, scheduler=scheduler, again=[scheduler]))
    twin = holder.scheduler
    assert twin is holder.again[0] is not scheduler
    twin.set_timesteps(4)
    assert watcher.told[-1] == ("after set_timesteps", twin)


def can_be_pickled(value: Any) -> bool:
    try:
        pickle.dumps(value)
    except Exception:
        return False
    return True


@of_every_scheduler
def test_it_can_be_pickled_and_saved_by_torch_where_the_plain_one_can(name: str) -> None:
    scheduler, plain, watcher = build(name), build(name), Watcher()
    expected = denoise(plain)
    if not can_be_pickled(plain):
        pytest.skip("the plain scheduler cannot be pickled")
    observe(scheduler, watcher)
    denoise(scheduler)
    buffer = io.BytesIO()
    torch.save(scheduler, buffer)
    buffer.seek(0)
    watcher.told.clear()
    for read in (pickle.loads(pickle.dumps(scheduler)), torch.load(buffer, weights_only=False)):
        assert type(read) is type(scheduler)
        assert are_equal(denoise(read), expected)
    assert not watcher.told, "what was read from a pickle steps itself alone"


@of_every_scheduler
def test_it_is_saved_and_rebuilt_as_the_plain_one(name: str, tmp_path: Path) -> None:
    kind, scheduler, plain = getattr(diffusers, name), build(name), build(name)
    observe(scheduler, Watcher())
    assert type(scheduler) is kind
    assert isinstance(scheduler, SchedulerMixin)
    for method in METHODS:
        if hasattr(kind, method):
            assert inspect.signature(getattr(scheduler, method)) == inspect.signature(getattr(plain, method))
    for one, folder in ((scheduler, tmp_path / "observed"), (plain, tmp_path / "plain")):
        one.save_pretrained(folder)
    files = [(tmp_path / folder / "scheduler_config.json").read_text() for folder in ("observed", "plain")]
    assert files[0] == files[1]
    expected = denoise(plain)
    for rebuilt in (kind.from_pretrained(tmp_path / "observed"), kind.from_config(scheduler.config)):
        assert not set(METHODS) & set(vars(rebuilt)), "a rebuilt scheduler is not observed"
        assert are_equal(denoise(rebuilt), expected)


@of_every_scheduler
def test_its_begin_index_is_set_as_that_of_the_plain_one(name: str) -> None:
    scheduler, plain = build(name), build(name)
    if not hasattr(plain, "set_begin_index"):
        pytest.skip("the scheduler has no begin index")
    observe(scheduler, Watcher())
    for one in (scheduler, plain):
        one.set_timesteps(usage_of(name).steps)
        one.set_begin_index(1)
    assert scheduler.begin_index == plain.begin_index == 1
    latent = torch.ones(SHAPE)
    moved = []
    for one in (scheduler, plain):
        torch.manual_seed(0)
        moved.append(usage_of(name).step(one, latent, one.timesteps[1], latent, 1)[0])
    assert torch.equal(*moved)
    assert scheduler.step_index == plain.step_index


@of_every_scheduler
def test_nothing_is_left_on_a_scheduler_that_is_no_more_observed(name: str) -> None:
    scheduler, watcher = build(name), Watcher()
    before = dict(vars(scheduler))
    observe(scheduler, watcher)
    observe(scheduler, watcher)  # a second time changes nothing
    stop_observing(scheduler, watcher)
    assert_same_attributes(scheduler, before)
    assert are_equal(denoise(scheduler), denoise(build(name)))
    assert not watcher.told


def assert_same_attributes(scheduler: Any, before: dict[str, Any]) -> None:
    now = vars(scheduler)
    assert now.keys() == before.keys()
    assert all(now[name] is value for name, value in before.items())


@pytest.mark.parametrize("ended", list(itertools.permutations(range(2))))
def test_two_watchers_are_told_until_each_ends_in_any_order(ended: tuple[int, int]) -> None:
    scheduler, watchers = UniPCMultistepScheduler(), [Watcher(), Watcher()]
    before = dict(vars(scheduler))
    for watcher in watchers:
        observe(scheduler, watcher)
    scheduler.set_timesteps(4)
    assert watchers[0].told == watchers[1].told != []
    first, second = (watchers[index] for index in ended)
    stop_observing(scheduler, first)
    scheduler.set_timesteps(4)
    assert len(second.told) == 2 * len(first.told)
    stop_observing(scheduler, first)  # nothing is left to stop
    stop_observing(scheduler, second)
    scheduler.set_timesteps(4)
    assert len(second.told) == 2 * len(first.told)
    assert vars(scheduler).keys() == before.keys()


def test_a_copy_is_no_more_told_once_the_acceleration_ends() -> None:
    scheduler = UniPCMultistepScheduler()
    watch = LoopWatch(SimpleNamespace(scheduler=scheduler))
    twin = copy.deepcopy(scheduler)
    watch.remove()
    plain = copy.deepcopy(UniPCMultistepScheduler())
    assert vars(twin).keys() == vars(scheduler).keys() == vars(plain).keys()


class OtherTool:
    """Replaces `step` on an instance by a function that counts its calls, as logging tools do."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler, self.plain, self.calls = scheduler, scheduler.step, 0

        @functools.wraps(self.plain)
        def step(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            return self.plain(*args, **kwargs)

        self.step = scheduler.step = step

    def undo(self) -> None:
        self.scheduler.step = self.plain


def test_a_method_that_another_tool_had_replaced_stays_replaced() -> None:
    scheduler, watcher = EulerDiscreteScheduler(), Watcher()
    tool = OtherTool(scheduler)
    before = dict(vars(scheduler))
    observe(scheduler, watcher)
    latents = denoise(scheduler)
    assert tool.calls == len(latents) == watcher.words(scheduler).count("after step")
    stop_observing(scheduler, watcher)
    assert vars(scheduler)["step"] is before["step"]
    assert not {"set_timesteps", "scale_model_input"} & set(vars(scheduler))
    assert are_equal(denoise(scheduler), latents)
    assert tool.calls == 2 * len(latents)


def test_a_method_that_another_tool_had_put_back_on_the_instance_stays_there() -> None:
    """A tool that assigns what it had read before leaves the method of the class among the instance's attributes."""
    scheduler, watcher = EulerDiscreteScheduler(), Watcher()
    OtherTool(scheduler).undo()
    before = dict(vars(scheduler))
    observe(scheduler, watcher)
    stop_observing(scheduler, watcher)
    assert_same_attributes(scheduler, before)


def test_a_method_that_another_tool_replaces_afterwards_is_told_and_stays() -> None:
    scheduler, watcher = EulerDiscreteScheduler(), Watcher()
    observe(scheduler, watcher)
    tool = OtherTool(scheduler)
    latents = denoise(scheduler)
    assert tool.calls == len(latents) == watcher.words(scheduler).count("after step")
    stop_observing(scheduler, watcher)
    assert vars(scheduler)["step"] is tool.step
    assert not {"set_timesteps", "scale_model_input"} & set(vars(scheduler))
    watcher.told.clear()
    assert are_equal(denoise(scheduler), latents)
    assert tool.calls == 2 * len(latents)
    assert not watcher.told, "nobody observes it any more"


def test_a_tool_that_ends_after_the_acceleration_leaves_nothing_that_tells() -> None:
    scheduler, watcher = EulerDiscreteScheduler(), Watcher()
    expected = denoise(EulerDiscreteScheduler())
    observe(scheduler, watcher)
    tool = OtherTool(scheduler)
    stop_observing(scheduler, watcher)
    tool.undo()
    assert are_equal(denoise(scheduler), expected)
    assert not watcher.told


def test_a_tool_that_ends_within_the_acceleration_leaves_it_observed() -> None:
    scheduler, watcher = EulerDiscreteScheduler(), Watcher()
    observe(scheduler, watcher)
    OtherTool(scheduler).undo()
    latents = denoise(scheduler)
    assert watcher.words(scheduler).count("after step") == len(latents)
    stop_observing(scheduler, watcher)
    assert not set(METHODS) & set(vars(scheduler))


def test_an_error_in_a_method_reaches_the_caller_and_is_told() -> None:
    scheduler, watcher = FlowMatchEulerDiscreteScheduler(), Watcher()
    observe(scheduler, watcher)
    scheduler.set_timesteps(4)
    with pytest.raises(ValueError, match="integer indices"):
        scheduler.step(torch.ones(SHAPE), 3, torch.ones(SHAPE))
    assert watcher.words(scheduler)[-2:] == ["before step", "failed step"]
    watcher.told.clear()
    latents = denoise(scheduler)
    assert watcher.words(scheduler) == words_of_a_loop(scheduler, len(latents)), "the next loop is told"


def test_an_interruption_in_a_method_is_told() -> None:
    class Interrupted(FlowMatchEulerDiscreteScheduler):
        def step(self, *args: Any, **kwargs: Any) -> Any:
            raise KeyboardInterrupt

    scheduler, watcher = Interrupted(), Watcher()
    observe(scheduler, watcher)
    with pytest.raises(KeyboardInterrupt):
        scheduler.step(torch.ones(SHAPE), 3, torch.ones(SHAPE))
    assert watcher.words(scheduler) == ["before step", "failed step"]


def test_methods_that_call_each_other_tell_once() -> None:
    class Nested(FlowMatchEulerDiscreteScheduler):
        def step(self, model_output: Any, timestep: Any, sample: Any) -> Any:  # type: ignore[override]
            self.set_timesteps(4)
            return super().step(model_output, self.timesteps[0], sample)

    scheduler, watcher = Nested(), Watcher()
    observe(scheduler, watcher)
    scheduler.step(torch.ones(SHAPE), 0, torch.ones(SHAPE))
    assert watcher.words(scheduler) == ["before step", "after step"]


def test_the_arguments_are_told_by_name_however_they_are_passed() -> None:
    scheduler, watcher, latent = DDIMScheduler(), Watcher(), torch.ones(SHAPE)
    observe(scheduler, watcher)
    scheduler.set_timesteps(4)
    watcher.arguments.clear()
    scheduler.step(latent, scheduler.timesteps[0], latent, 0.5)
    scheduler.step(latent, scheduler.timesteps[1], sample=latent, eta=0.5)
    scheduler.step(sample=latent, eta=0.5, timestep=scheduler.timesteps[2], model_output=latent)
    assert len(watcher.arguments) == 3
    for arguments in watcher.arguments:
        assert arguments["sample"] is latent
        assert arguments["eta"] == 0.5


def test_the_schedulers_of_a_pipeline_are_found_the_main_one_first() -> None:
    main, sound, named = DDIMScheduler(), UniPCMultistepScheduler(), EulerDiscreteScheduler()
    components = {"vae": None, "sound_scheduler": sound, "scheduler": main}
    pipe = SimpleNamespace(components=components, scheduler=main, sound_scheduler=sound, vae=None)
    found = schedulers_in(pipe, [sound, named])
    assert list(found.items()) == [("scheduler", main), ("sound_scheduler", sound), ("schedulers[1]", named)]


@pytest.mark.parametrize("when", ["before set_timesteps", "after set_timesteps"])
def test_a_scheduler_that_is_exchanged_in_a_pipeline_is_adopted(when: str) -> None:
    pipe = SimpleNamespace(scheduler=DDIMScheduler())
    former, watch = pipe.scheduler, LoopWatch(pipe)
    former.set_timesteps(9)
    pipe.scheduler = UniPCMultistepScheduler.from_config(former.config)
    if when == "before set_timesteps":
        with pytest.raises(UndeclaredError):
            watch.find(None)  # a loop of a scheduler that has no timesteps
    pipe.scheduler.set_timesteps(4)
    loop = watch.find(None)
    assert loop.scheduler is pipe.scheduler
    assert not loop.reason
    assert not set(METHODS) & set(vars(former)), "the former one is as it was"


def test_a_scheduler_that_is_exchanged_within_its_loop_is_not_adopted() -> None:
    pipe = SimpleNamespace(scheduler=DDIMScheduler())
    watch = LoopWatch(pipe)
    stepped = UniPCMultistepScheduler()
    denoise(stepped, stops_at=2)
    pipe.scheduler = stepped
    with pytest.raises(UndeclaredError, match="no observed scheduler has begun its loop"):
        watch.find(None)


def test_a_given_scheduler_that_has_its_timesteps_is_adopted() -> None:
    scheduler = UniPCMultistepScheduler()
    scheduler.set_timesteps(4)
    watch = LoopWatch(SimpleNamespace(), [scheduler])
    assert watch.find(None).scheduler is scheduler
