"""One denoising loop: which step, which branch and which latent each call of it is, as schedulers and contexts tell."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from diffusers.hooks.hooks import CacheContext
from torch import Tensor

from galaxydit.runtime import undeclared
from galaxydit.runtime.call import StepInfo
from galaxydit.runtime.first_step import first_step
from galaxydit.runtime.latent_check import Counts, Latent
from galaxydit.runtime.latents import HostCopy
from galaxydit.runtime.pairing import Pairing
from galaxydit.runtime.scheduler_trajectory import Trajectory
from galaxydit.runtime.undeclared import UndeclaredError
from galaxydit.runtime.window import Window, window_of
from galaxydit.schedulers import asks_for_noise, sigma_at


@dataclass(eq=False)
class Loop:
    """One denoising loop. It stays undeclared, with the reason, once anything contradicts what was told.

    Attributes:
        scheduler: the one that began it; None where contexts alone tell the steps, and then nothing is compared.
        trajectories: by identity of the scheduler, of those that began this loop, and of their copies.
        windows: by name; "" for calls of the whole latent.
        reason: why the loop is undeclared, or "".
        generation: what the plugin keeps of it; the session sets it at the first call.
        noted_timestep: the pipeline's own object when the latest step was told: another one in each step.
        outer_timestep: the same when the loop began in a callback of the pipeline's own loop.
        pairing: which scheduler steps each output of the transformer.
    """

    scheduler: Any | None
    steps: int | None = None
    trajectories: dict[int, Trajectory] = field(default_factory=dict)
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
        self.step_inputs: list[HostCopy] = []  # counts of comparisons of what `step` was given
        if self.scheduler is not None:
            self.join(self.scheduler)

    @property
    def is_fresh(self) -> bool:
        """Whether it has begun, and nothing of it has run."""
        return not self.windows and not self.steps_told and not self.reason and not self.is_over

    def join(self, scheduler: Any) -> None:
        self.trajectories.setdefault(id(scheduler), Trajectory(scheduler))

    @property
    def steps_planned(self) -> int:
        """Steps of the scheduler, or of the cache contexts."""
        if self.scheduler is not None:
            return len(self.scheduler.timesteps)
        return self.steps or 0

    @property
    def steps_told(self) -> int:
        """Steps that schedulers have taken."""
        return max((trajectory.steps for trajectory in self.trajectories.values()), default=0)

    def undeclare(self, reason: str) -> None:
        self.reason = self.reason or reason

    def pair(self, named: Sequence[Any | None]) -> None:
        """Find which scheduler steps each output; `named` are those of the outputs after the first, if known."""
        self._undeclare_if(self.pairing.pair(self.scheduler, named, self.trajectories))

    def _undeclare_if(self, reason: str) -> None:
        if reason:
            self.undeclare(reason)

    # What schedulers tell

    def before_step(self, scheduler: Any, arguments: Mapping[str, Any]) -> None:
        self.draws_noise = self.draws_noise or asks_for_noise(arguments)
        if threading.get_ident() != self.thread:
            self.undeclare(undeclared.OTHER_THREAD)
        if "" in self.windows:  # a window's output is smaller than the whole prediction
            self._undeclare_if(self.pairing.check_prediction(scheduler, arguments.get("model_output")))
        trajectory = self.trajectories[id(scheduler)]
        trajectory.enter()
        if self.windows and all(window.check.is_comparable for window in self.windows.values()):
            self.step_inputs.clear()  # the transformer's inputs tell as much
            return
        counts = trajectory.compare(arguments.get("sample"))
        if counts is not None:
            self.step_inputs.append(HostCopy(counts))

    def after_step(self, scheduler: Any, latent: Any) -> None:
        if not isinstance(latent, Tensor):
            self.undeclare(undeclared.NO_TENSOR)
            return
        called = [window for window in self.windows.values() if not window.is_told]
        if called:  # else another scheduler of the same step told them
            self.last_told = called
        for window in self.last_told:
            window.is_told = True
            if id(scheduler) not in window.schedulers:
                window.schedulers.append(id(scheduler))
        size = _row_size(latent)
        # An input that is a window of the latent is searched among all of its values.
        is_whole = any(window.name or window.size < size for window in self.windows.values())
        self.trajectories[id(scheduler)].leave(latent, is_whole=is_whole)

    def after_scaling(self, scheduler: Any, given: Any, scaled: Any) -> None:
        returned = self.trajectories[id(scheduler)].returned
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
        name_of_window = window_of(name or "")
        window = self.windows.setdefault(name_of_window, Window(name_of_window))
        step = self._step_of(window, context, timestep)
        steps = self._steps(context)
        self._check_advance(window, step, steps)
        if 0 <= window.step < step:
            self._check_further(window, latents)
        branch = window.branch_of(component, step, conditions) if name is None else name
        if step == window.step and (component, branch) in window.seen[-1]:
            self.undeclare(undeclared.CALLED_TWICE.format(branch=branch))
        if self.reason:
            raise UndeclaredError(f"{self.reason}, so the rest of this loop is computed in full")
        if window.step < 0:
            window.first = step
        window.size = _row_size(latent)
        differing = window.enter((component, branch), step, conditions, len(latent), guidance_scale)
        self._compare(window, latents, group)
        sigma = sigma_at(context, self.scheduler, step, timestep)
        return window, branch, StepInfo(step, steps, sigma), differing

    def _check_further(self, window: Window, latents: Sequence[Tensor]) -> None:
        """In a new step, each output has been stepped, or its latent has not moved."""
        if self.scheduler is None or len(latents) == 1:
            return
        reason = self.pairing.check_stepped(self.trajectories, len(latents))
        if reason:
            if not window.are_unmoved(latents[1:]):
                self.undeclare(reason)
            window.note_further(latents[1:])

    def _compare(self, window: Window, latents: Sequence[Tensor], group: Any | None) -> None:
        """Compare each latent with that of its own scheduler; where one steps all, the first with those of the window's
        schedulers."""
        steppers = self.pairing.steppers
        if self.pairing.has_several and len(latents) == len(steppers):
            trajectories = [[self.trajectories[id(scheduler)]] for scheduler in steppers]
        else:
            latents = latents[:1]
            trajectories = [[self.trajectories[key] for key in window.schedulers]]
        window.check.compare(latents, trajectories, group, is_early=window.is_early)

    def _steps(self, context: CacheContext | None) -> int:
        if context is not None and context.num_inference_steps is not None:
            return context.num_inference_steps
        return self.steps_planned

    def _step_of(self, window: Window, context: CacheContext | None, timestep: Any) -> int:
        """From the cache context; else from the schedulers' counters; at first from the timestep's place."""
        if context is not None and context.step_index is not None:
            return context.step_index
        stepping = window.schedulers
        if id(self.scheduler) in stepping:
            # The loop's own scheduler counts; others, as of the sound, are at the same step but may count otherwise.
            stepping = [id(self.scheduler)]
        steps = {self.trajectories[key].step_after(window.first) for key in stepping}
        if len(steps) > 1:
            self.undeclare(undeclared.OTHER_STEPS)
        if steps:
            return max(steps)
        has_stepped = self.steps_told > 0  # for other windows
        return first_step(self.scheduler, context, timestep, is_late=has_stepped)

    def _check_advance(self, window: Window, step: int, steps: int) -> None:
        # Without a scheduler, contexts tell the steps.
        is_told = window.is_told if self.scheduler is not None else step == window.step + 1
        if not 0 <= step < steps:
            self.undeclare(undeclared.LAST_STEP)
        elif window.step < 0:
            return
        elif is_told and step != window.step + 1:
            if window.step == window.first and len(window.seen) == 1 and step > window.step:
                self._correct_first(window, step)  # a model that scales its timestep did not show it
            else:
                self.undeclare(undeclared.NOT_ADVANCED)
        elif not is_told and step != window.step:
            self.undeclare(undeclared.NOT_STEPPED)

    def _correct_first(self, window: Window, step: int) -> None:
        # The arguments of the first call were noted under another step.
        window.first = step - 1
        window.step = window.first
        window.conditions.clear()
        if self.generation is not None:
            self.generation.begin_late(window.name, step)

    def had_other_latents(self) -> bool:
        """Whether a call had another latent, by what nobody has read yet; the host waits. Where no input could be
        compared, whether `step` was given another latent than it had returned."""
        for window in self.windows.values():
            was_broken, latent = window.check.read()
            if was_broken or latent is Latent.BROKEN:
                return True
        is_unknown = any(window.check.latent is Latent.UNKNOWN for window in self.windows.values())
        if not self.step_inputs or not is_unknown:
            return False
        rows = torch.stack([copy.tensor() for copy in self.step_inputs]).tolist()
        self.step_inputs.clear()
        return any(Counts(*row).differ for row in rows)


def _row_size(latent: Tensor) -> int:
    """Values of one row of a batch."""
    return latent.numel() // max(1, len(latent))
