"""One denoising loop: which step, which branch and which latent each call of it is, as schedulers and contexts tell."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from diffusers.hooks.hooks import CacheContext
from torch import Tensor

from galaxydit.runtime.call import StepInfo
from galaxydit.runtime.latents import HostCopy, LatentComparison
from galaxydit.runtime.pairing import Pairing
from galaxydit.runtime.window import EARLY, Latent, Stream, Window, window_of
from galaxydit.schedulers import asks_for_noise, counter_of, sigma_at

# Why a loop is undeclared, with what declares it.
OTHER_THREAD = "another thread used its scheduler (give each thread a scheduler of its own)"
TWO_LOOPS = "another scheduler stepped between its calls (run loops one after the other, or in threads of their own)"
NOT_ADVANCED = (
    "scheduler.step was called, but the next call is not of the step after it (step once for each step, call every "
    "named window in each step, and run two loops one after the other, or in threads of their own)"
)
NOT_STEPPED = (
    "the step advanced, but no observed scheduler stepped (pass the scheduler that steps the latent; a loop that steps "
    "by hand is declared by accelerate(transformer) without a scheduler, and step_index, num_inference_steps and sigma "
    "in cache_context)"
)
CALLED_TWICE = (
    "{branch} was called twice in one step (name windows and tiles, such as cache_context('window 2/cond'), and run "
    "loops one after the other)"
)
OTHER_STEPS = "its schedulers are at different steps, as with frames at different noise levels"
LAST_STEP = "its last step was taken before (call set_timesteps for the next loop)"
NO_TENSOR = "its scheduler returned no tensor"
BETWEEN_STEPS = "another loop called the transformer between two steps of the pipeline, as in a callback"
FAILED = "{what} raised an error"


class UndeclaredError(Exception):
    """A call has to be computed in full, because nothing tells its place; the text says what was missing. Never raised
    outside the plugin."""


@dataclass(eq=False)
class Loop:
    """One denoising loop. It stays undeclared, with the reason, once anything contradicts what was told.

    Attributes:
        scheduler: the one that began it; None where contexts alone tell the steps, and then nothing is compared.
        streams: by identity of the scheduler, of those that began this loop, and of their copies.
        windows: by name; "" for calls of the whole latent.
        reason: why the loop is undeclared, or "".
        generation: what the plugin keeps of it; the session sets it at the first call.
        noted_timestep: the pipeline's own object when the latest step was told: another one in each step.
        outer_timestep: the same when the loop began in a callback of the pipeline's own loop.
        pairing: which scheduler steps each output of the transformer.
    """

    scheduler: Any | None
    steps: int | None = None
    streams: dict[int, Stream] = field(default_factory=dict)
    windows: dict[str, Window] = field(default_factory=dict)
    reason: str = ""
    generation: Any | None = None
    is_over: bool = False
    noted_timestep: Any | None = None
    draws_noise: bool = False  # by the arguments of `step`
    outer_timestep: Any | None = None
    pairing: Pairing = field(default_factory=Pairing)

    def __post_init__(self) -> None:
        self.thread = threading.get_ident()
        self.last_told: list[Window] = []
        self.step_inputs: list[HostCopy] = []
        self._step_comparisons: dict[int, LatentComparison] = {}
        if self.scheduler is not None:
            self.join(self.scheduler)

    @property
    def is_fresh(self) -> bool:
        """Whether it has begun, and nothing of it has run."""
        has_stepped = any(stream.steps for stream in self.streams.values())
        return not self.windows and not has_stepped and not self.reason and not self.is_over

    def join(self, scheduler: Any) -> None:
        self.streams.setdefault(id(scheduler), Stream(scheduler))

    @property
    def steps_planned(self) -> int:
        """Steps of the scheduler, or of the cache contexts."""
        if self.scheduler is not None:
            return len(self.scheduler.timesteps)
        return self.steps or 0

    @property
    def steps_told(self) -> int:
        """Steps that schedulers have taken."""
        return max((stream.steps for stream in self.streams.values()), default=0)

    def undeclare(self, reason: str) -> None:
        self.reason = self.reason or reason

    def pair(self, named: Sequence[Any | None]) -> None:
        """Find which scheduler steps each output; `named` are those of the outputs after the first, if known."""
        self._undeclare_if(self.pairing.pair(self.scheduler, named, self.streams))

    def _undeclare_if(self, reason: str) -> None:
        if reason:
            self.undeclare(reason)

    # What schedulers tell

    def before_step(self, scheduler: Any, arguments: Mapping[str, Any]) -> None:
        sample = arguments.get("sample")
        self.draws_noise = self.draws_noise or asks_for_noise(arguments)
        if threading.get_ident() != self.thread:
            self.undeclare(OTHER_THREAD)
        if "" in self.windows:  # a window's output is smaller than the whole prediction
            self._undeclare_if(self.pairing.check_prediction(scheduler, arguments.get("model_output")))
        stream = self.streams[id(scheduler)]
        stream.enter()
        if self.windows and all(window.is_comparable for window in self.windows.values()):
            self.step_inputs.clear()  # the transformer's inputs tell as much
        elif isinstance(sample, Tensor) and stream.returned is not None:
            comparison = self._step_comparisons.setdefault(id(scheduler), LatentComparison())
            counts = comparison.counts(stream.returned, sample, is_early=stream.steps < EARLY)
            self.step_inputs.append(HostCopy(counts))

    def after_step(self, scheduler: Any, latent: Any) -> None:
        if not isinstance(latent, Tensor):
            self.undeclare(NO_TENSOR)
            return
        called = [window for window in self.windows.values() if not window.is_told]
        self.last_told = called or self.last_told
        for window in self.last_told:
            window.is_told = True
            if id(scheduler) not in window.schedulers:
                window.schedulers.append(id(scheduler))
        size = latent.numel() // max(1, len(latent))
        is_whole = any(window.name or window.size < size for window in self.windows.values())
        self.streams[id(scheduler)].leave(latent, is_whole=is_whole)

    def after_scaling(self, scheduler: Any, given: Any, scaled: Any) -> None:
        returned = self.streams[id(scheduler)].returned
        if returned is not None and isinstance(scaled, Tensor) and scaled is not given:
            returned.scale(given, scaled)

    # What a call is

    def call(
        self,
        component: str,
        context: CacheContext | None,
        timestep: Any,
        latents: Sequence[Tensor],
        conditions: Mapping[str, Any],
        guidance_scale: float,
        group: Any | None,
    ) -> tuple[Window, str, StepInfo, tuple[str, ...]]:
        """The window, branch and step of a call, and the names of its conditions that changed. `latents` are the inputs
        of the output streams, `group` is the process group that shares the tokens. Raises UndeclaredError where nothing
        tells them."""
        latent = latents[0]
        name = None if context is None else context.name
        window = self.windows.setdefault(window_of(name or ""), Window(window_of(name or "")))
        step, steps = self._step_of(window, context, timestep), self._steps(context)
        self._check_advance(window, step, steps)
        if self.scheduler is not None and len(latents) > 1 and 0 <= window.step < step:
            reason = self.pairing.check_stepped(self.streams, len(latents))
            if reason and not window.keeps(latents[1:]):
                self.undeclare(reason)
        branch = window.branch_of(component, step, conditions) if name is None else name
        if step == window.step and (component, branch) in window.seen[-1]:
            self.undeclare(CALLED_TWICE.format(branch=branch))
        if self.reason:
            raise UndeclaredError(f"{self.reason}, so the rest of this loop is computed in full")
        if window.step < 0:
            window.first = step
        window.size = latent.numel() // max(1, len(latent))
        differing = window.enter((component, branch), step, conditions, len(latent), guidance_scale)
        steppers = self.pairing.steppers
        if self.pairing.has_several and len(latents) == len(steppers):
            stepped = [[self.streams[id(scheduler)]] for scheduler in steppers]
        else:
            latents, stepped = latents[:1], [[self.streams[key] for key in window.schedulers]]
        window.compare(latents, stepped, group)
        return window, branch, StepInfo(step, steps, sigma_at(context, self.scheduler, step, timestep)), differing

    def _steps(self, context: CacheContext | None) -> int:
        if context is not None and context.num_inference_steps is not None:
            return context.num_inference_steps
        return self.steps_planned

    def _step_of(self, window: Window, context: CacheContext | None, timestep: Any) -> int:
        """From the cache context; else from the schedulers' counters; at first from the timestep's place."""
        if context is not None and context.step_index is not None:
            return context.step_index
        stepped = [self.streams[key] for key in window.schedulers]
        own = [stream for stream in stepped if stream.scheduler is self.scheduler]
        steps = {stream.step_after(window.first) for stream in own or stepped}
        if len(steps) > 1:
            self.undeclare(OTHER_STEPS)
        if steps:
            return max(steps)
        has_stepped = any(stream.steps for stream in self.streams.values())  # for other windows
        return first_step(self.scheduler, context, timestep, is_late=has_stepped)

    def _check_advance(self, window: Window, step: int, steps: int) -> None:
        is_told = window.is_told if self.scheduler is not None else step == window.step + 1
        if not 0 <= step < steps:
            self.undeclare(LAST_STEP)
        elif window.step < 0:
            return
        elif is_told and step != window.step + 1:
            if window.step == window.first and len(window.seen) == 1 and step > window.step:
                self._correct_first(window, step)  # a model that scales its timestep did not show it
            else:
                self.undeclare(NOT_ADVANCED)
        elif not is_told and step != window.step:
            self.undeclare(NOT_STEPPED)

    def _correct_first(self, window: Window, step: int) -> None:
        window.first = window.step = step - 1
        window.conditions.clear()
        if self.generation is not None:
            self.generation.begin_late(window.name, step)

    def latents(self, window: Window) -> tuple[bool, Latent]:
        """Whether an earlier call had another latent, and the relation of the latest call's; the host waits for it."""
        if not window.unread:
            return False, window.latent
        *before, latest = torch.stack([copy.tensor() for copy in window.unread]).tolist()
        window.unread.clear()
        was_broken = any(counts[1] < counts[0] for counts in before)
        compared, equal, *fewest = latest
        window.is_comparable = min([compared, *fewest]) > 0
        if equal < compared:
            window.latent = Latent.BROKEN
        else:
            window.latent = Latent.EXPECTED if window.is_comparable else Latent.UNKNOWN
        return was_broken, window.latent

    def had_other_latents(self) -> bool:
        """Whether a call had another latent, by what nobody has read yet; the host waits. Where no input could be
        compared, whether `step` was given another latent than it had returned."""
        for window in self.windows.values():
            was_broken, latent = self.latents(window)
            if was_broken or latent is Latent.BROKEN:
                return True
        if not self.step_inputs or all(window.latent is not Latent.UNKNOWN for window in self.windows.values()):
            return False
        counts = torch.stack([copy.tensor() for copy in self.step_inputs]).tolist()
        self.step_inputs.clear()
        return any(equal < compared for compared, equal in counts)


def first_step(scheduler: Any, context: CacheContext | None, timestep: Any, *, is_late: bool = False) -> int:
    """The step that a loop or window begins with: above 0 where video-to-video begins in the middle. With `is_late`,
    the scheduler's counter may be of another window that has stepped."""
    counter, begin_index = counter_of(scheduler), getattr(scheduler, "begin_index", None)
    if counter and not is_late:
        return counter
    if begin_index is not None and not is_late:
        return int(begin_index)
    stated = timestep if context is None or context.timestep is None else context.timestep
    timesteps = getattr(scheduler, "timesteps", None)
    if stated is None or not isinstance(timesteps, Tensor):
        return 0
    largest = stated.max() if isinstance(stated, Tensor) else torch.as_tensor(stated)
    places = (timesteps.float() == largest.to(timesteps.device).float()).nonzero()
    return int(places[0]) if len(places) else (counter or 0)
