"""The generations of one acceleration: begin and end each, and keep the reports of finished generations.

An acceleration is the plugin attached to one pipeline (`galaxydit.acceleration.Acceleration`). A generation is one run
through the denoising steps.
"""

import threading
import time
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any

import torch
from diffusers.hooks.hooks import CacheContext
from torch import nn

from galaxydit.clock import synchronize
from galaxydit.config import GalaxyDiTConfig
from galaxydit.context_parallel import token_group
from galaxydit.energy import EnergyWindow, meter_of
from galaxydit.errors import FullComputeWarning, ProfileWarning
from galaxydit.outcome import Goal, shortfall
from galaxydit.report import CallRecord, Report
from galaxydit.runtime.continuity import Discontinuity, branch_of, discontinuity, switches_guidance
from galaxydit.runtime.generation import Generation, TransformerState
from galaxydit.runtime.identity import CallIdentity
from galaxydit.runtime.scheduler_response import scheduler_response
from galaxydit.runtime.step import draws_noise, driving, sigmas_of

DEFAULT_REPORTS = 16


@dataclass(frozen=True)
class Source:
    """The origin of calls: the pipeline or the bare transformer, and the scheduler that drives it.

    The scheduler is read from the pipeline when it is needed, so that a scheduler exchanged later is found.

    Attributes:
        pipe: the pipeline, or the bare transformer.
        transformer: the first transformer of the pipeline, or the bare transformer.
        own_scheduler: the scheduler that was passed to `accelerate`; None where none was passed.
    """

    pipe: Any
    transformer: nn.Module
    own_scheduler: Any | None = None

    @property
    def device(self) -> torch.device:
        """The device that computes the transformer; with offloading, the transformer may still be elsewhere."""
        first = next(self.transformer.parameters(), None)
        own = torch.device("cpu") if first is None else first.device
        return getattr(self.pipe, "_execution_device", own) or own

    @property
    def scheduler(self) -> Any | None:
        return self.own_scheduler or getattr(self.pipe, "scheduler", None)

    def scheduler_of(self, context: CacheContext | None, timestep: Any) -> Any | None:
        """The scheduler that drives the transformer call in the cache context `context` at `timestep`.

        A scheduler that was passed to `accelerate` is always taken. Otherwise it is the pipeline's scheduler; None if
        the call does not fit it, for example because another pipeline calls the transformer.
        """
        return self.own_scheduler or driving(context, self.scheduler, timestep)


Differences = Callable[[int, tuple[float, ...] | None, Source, tuple[int, ...]], tuple[list[str], list[str]]]
"""From a generation's number of steps, sigmas, source and latent shape without the batch to notes and warnings."""


def _one_at_a_time(method: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: a session runs one of the decorated methods at a time, because several threads may share a session."""

    @wraps(method)
    def locked(session: "Session", *arguments: Any) -> Any:
        with session.lock:
            return method(session, *arguments)

    return locked


@dataclass(eq=False)
class Session:
    """The current generation of one acceleration, the reports of earlier generations, and what all have in common.

    Attributes:
        config: the settings of all generations.
        source: the pipeline and its scheduler.
        notes: sentences that are added to every report.
        differences: function of a generation's conditions (`Differences`). It returns notes and warnings on how
            the generation differs from the conditions under which its profile was calibrated. None without a profile.
        keep_reports: how many reports of earlier generations are kept; None keeps all.
        warnings: sentences that are added to every report and also raised as Python warnings.
        goal: the request of the user, such as a speedup or a PSNR; None if the user passed a `GalaxyDiTConfig`.
        current: the generation that runs, or that ran last; None before the first and after `close`.
        text_seconds, text_joules: time and energy of text encoding since the last generation began; they count for the
            next generation.
        lock: held while a method that changes generations runs.
        reports: reports of the last generations before `current`, oldest first.
    """

    config: GalaxyDiTConfig
    source: Source
    notes: tuple[str, ...] = ()
    differences: Differences | None = None
    keep_reports: int | None = DEFAULT_REPORTS
    warnings: tuple[str, ...] = ()
    goal: Goal | None = None
    current: Generation | None = field(default=None, init=False)
    text_seconds: float = field(default=0.0, init=False)
    text_joules: float = field(default=0.0, init=False)
    lock: Any = field(default_factory=threading.RLock, init=False)
    _warned: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self.reports: deque[Report] = deque(maxlen=self.keep_reports)
        meter_of(self.source.device)  # opened now, because that takes seconds, which would count in a generation

    @_one_at_a_time
    def enter(self, call: CallIdentity) -> tuple[Generation, TransformerState, str]:
        """The generation of a call, the state of its transformer, and the name of its guidance branch.

        Begins a new generation if the call does not continue the current one.
        """
        generation, info = self.current, call.info
        if generation is None:
            generation = self._open(call)
        elif (change := discontinuity(generation, call)) is not None:
            unexpected = 0 <= info.step - generation.step <= 1 and info.step > 0 and not generation.finished
            first = generation.first
            generation = self._open(call)
            if unexpected:
                if generation.goal is not None:
                    generation.goal = replace(generation.goal, verified=None)  # known for whole generations alone
                if change is Discontinuity.SIGNATURE:  # the same video goes on, so its warm-up is over
                    generation.first = first
                self.warn_and_note(
                    f"a generation begins at step {info.step}, as {change.value}; nothing before can be reused"
                )
        branch, switched = branch_of(generation, call), switches_guidance(generation, call)
        return generation, generation.admit(call, branch, switches_guidance=switched), branch

    def _open(self, call: CallIdentity) -> Generation:
        self.close()
        scheduler, steps = call.scheduler, call.info.steps
        generation = Generation(
            config=self.config,
            first=call.info.step,
            steps=steps,
            scheduler=scheduler,
            timesteps=getattr(scheduler, "timesteps", None),
            text_seconds=self.text_seconds,
            names_branches=call.branch is not None,
            sigmas=sigmas_of(scheduler, steps),
            timesteps_address=call.timesteps_address,
        )
        generation.energy = EnergyWindow.begin(call.signature.device, id(self), self.text_joules)
        self.text_seconds = self.text_joules = 0.0
        self.current = generation
        shape = call.signature.shape[1:]
        notes, warned = (
            ((), ()) if self.differences is None else self.differences(steps, generation.sigmas, self.source, shape)
        )
        if self.goal is not None:  # a PSNR was verified under the conditions of the profile alone
            generation.goal = replace(self.goal, verified=None) if notes or warned else self.goal
        for text in (*self.notes, *notes):
            self.note(text)
        for text in (*self.warnings, *warned):
            self.warn_and_note(text, ProfileWarning)
        return generation

    @_one_at_a_time
    def close(self) -> None:
        """End the current generation: drop its tensors and add its report to `reports`."""
        if self.current is not None:
            self.end()
            self.reports.append(self.current.report())
            self.current = None

    def warn_and_note(self, text: str, category: type[Warning] = FullComputeWarning) -> None:
        """Add a note to the current report, and raise it as a Python warning if the session has not yet raised it."""
        self.note(text)
        expected = category is FullComputeWarning and not self.config.history_length  # nothing was to be reused
        if text not in self._warned and not expected:
            self._warned.add(text)
            warnings.warn(f"galaxydit: {text}", category, stacklevel=2)

    def note(self, text: str) -> None:
        """Add a note to the report of the current generation, unless it has this note or the generation has ended."""
        if self.current is not None and not self.current.finished and text not in self.current.notes:
            self.current.notes.append(text)

    @_one_at_a_time
    def end(self) -> None:
        """End the current generation: drop its tensors, but keep it as `current`, so that it can still be reported."""
        if self.current is not None:
            text = "" if self.current.finished else shortfall(self.current.report())
            if text:
                warnings.warn(f"galaxydit: {text}", FullComputeWarning, stacklevel=2)
            self.current.release()

    @_one_at_a_time
    def leave(self, generation: Generation, records: list[CallRecord], device: torch.device) -> None:
        """Record a finished call, with one record for each sample. In the last step, wait for the device first, so that
        the denoising time includes all work.
        """
        generation.calls += records
        generation.bytes_held = max(generation.bytes_held, sum(s.bytes_held() for s in generation.states.values()))
        if records[-1].step == generation.steps - 1:
            synchronize(device)
            if generation.energy is not None:
                generation.energy.end_denoising(token_group(self.source.transformer))
        generation.denoise_ended = time.perf_counter()

    def corrects(self, generation: Generation) -> bool:
        """Whether full steps can be corrected: the scheduler is known and draws no noise. If not, notes the reason."""
        if generation.scheduler is None:
            another = "another scheduler drives this generation than the accelerated pipeline's, so full steps correct "
            unknown = "the scheduler is unknown, so full steps correct nothing: pass scheduler=... to `accelerate`"
            cure = "nothing: accelerate the pipeline that generates"
            self.note(unknown if self.source.scheduler is None else another + cure)
            return False
        if draws_noise(generation.scheduler):
            self.note("the scheduler draws noise in every step, so full steps correct nothing")
            return False
        return True

    @_one_at_a_time
    def response(self, generation: Generation) -> tuple[float, ...] | None:
        """The final latent's linear response to the output of each step (`scheduler_response`), measured once in a
        generation; None if the sigmas are unknown.
        """
        if generation.response is None and generation.sigmas is not None:
            generation.response = scheduler_response(generation.scheduler, generation.sigmas, generation.first)
        return generation.response

    def decoded(self) -> None:
        """Store the time as the end of decoding. Called after each part of the video that the VAE decodes, so the last
        part counts.
        """
        if self.current is not None and not self.current.finished and self.current.step == self.current.steps - 1:
            self.current.decoded_at = time.perf_counter()
            if self.current.energy is not None:
                self.current.energy.end_decoding()
