"""The generations of one acceleration (the plugin attached to one pipeline), and the reports of finished ones."""

import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import wraps
from itertools import count
from typing import Any

import torch

from galaxydit.config import GalaxyDiTConfig
from galaxydit.context_parallel import token_group
from galaxydit.errors import FullComputeWarning, ProfileWarning
from galaxydit.outcome import Goal, shortfall
from galaxydit.policies.policy import Reason
from galaxydit.report import CallRecord, Report
from galaxydit.runtime.generation import NEW_TRAJECTORY, Generation
from galaxydit.runtime.identity import CallIdentity, KnownValue, UnknownCallError
from galaxydit.runtime.listener import Listener
from galaxydit.runtime.source import Differences, Source
from galaxydit.runtime.trajectory import Trajectory
from galaxydit.stopwatch import DECODED, END, FIRST, LAST, Stopwatch

DEFAULT_REPORTS = 16
MOST_GENERATIONS, MOST_TRAJECTORIES = 4, 16  # whose tensors are kept at the same time


def _one_at_a_time(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def locked(self: "Session", *arguments: Any) -> Any:
        with self.lock:
            return method(self, *arguments)

    return locked


@dataclass(eq=False)
class Session:
    """The generations of one acceleration that no other one has followed, oldest first, and the reports of the others.

    Attributes:
        notes, warnings: sentences for every report; `warnings` are also raised as Python warnings.
        differences, goal: None without a profile; None if the user passed a `GalaxyDiTConfig`.
        keep_reports, current: None keeps all; generation of the latest call, None before the first and after `close`.
        listener, peers: of reports; the sessions on the same transformers, as one may end another's.
        lock: the peers' one `RLock`, also that of their hooks (`RunningCalls`): with two, finalizers could deadlock.
        text_seconds, text_joules: text encoding since the last generation began, counted for the next one.
        watch: of the caller of the pipeline (`generate`), which reads the energy counter in its place; or None.
    """

    config: GalaxyDiTConfig
    source: Source
    notes: tuple[str, ...] = ()
    differences: Differences | None = None
    keep_reports: int | None = DEFAULT_REPORTS
    warnings: tuple[str, ...] = ()
    goal: Goal | None = None
    listener: Listener = field(default_factory=Listener)
    peers: list["Session"] = field(default_factory=list)
    generations: list[Generation] = field(default_factory=list, init=False)
    current: Generation | None = field(default=None, init=False)
    text_seconds: float = field(default=0.0, init=False)
    text_joules: float = field(default=0.0, init=False)
    watch: Stopwatch | None = field(default=None, init=False)
    lock: Any = field(init=False)
    _warned: set[str] = field(default_factory=set, init=False)
    _calls: Iterator[int] = field(default_factory=count, init=False)

    def __post_init__(self) -> None:
        self._reports: deque[Report] = deque(maxlen=self.keep_reports)
        self.lock = self.peers[0].lock if self.peers else threading.RLock()
        self.peers.append(self)

    @property
    @_one_at_a_time
    def reports(self) -> list[Report]:
        """The reports of the last generations, by their beginning; the generation of the latest call is the last."""
        latest = sorted(self.generations, key=lambda one: one is self.current)
        return [*self._reports, *(generation.report() for generation in latest)]

    @_one_at_a_time
    def enter(self, call: CallIdentity, group: Any | None) -> tuple[Generation, Trajectory]:
        """A call's generation and trajectory, new if it continues none; `group` is the process group of the tokens.
        Raises UnknownCallError where the scheduler counts the steps of another thread."""
        fitting = [generation for generation in self.generations if generation.fits(call)]
        if not fitting and call.timesteps_address is None and call.timesteps is not None:
            others = (generation for session in self.peers for generation in session.generations)
            rivals = (one for one in others if one.timesteps is call.timesteps and one.thread != threading.get_ident())
            if any(not generation.finished and generation.step < generation.steps - 1 for generation in rivals):
                raise UnknownCallError(
                    "another thread uses the scheduler of this generation, and the timestep does not show whose step "
                    "this is, so it is computed in full; accelerate the pipeline of each thread"
                )
        for generation in reversed(fitting):
            if (trajectory := generation.find(call, group)) is not None:
                if trajectory.step < call.info.step:
                    generation.breaks.discard(call.info.step)
                break
        else:
            generation = next((one for one in reversed(fitting) if one.holds(call)), None) or self._open(call)
            trajectory, broke_off = generation.begin(call)
            self.current = generation
            if broke_off:
                self.warn_and_note(NEW_TRAJECTORY)
        if generation.goal is not None and generation.goal.verified and (text := generation.changed_guidance(call)):
            generation.withdraw_promise(text)
            self.note(text, generation)
        trajectory.used, self.current = next(self._calls), generation
        if call.info.step > generation.step:
            generation.step = call.info.step
            for one in [one for one in generation.trajectories if -1 < one.step < call.info.step - 1]:
                generation.end(one)
        self._limit()
        return generation, trajectory

    def _limit(self) -> None:
        most = MOST_TRAJECTORIES if self.config.reuse == "output" else 1
        live = [(one.used, generation, one) for generation in self.generations for one in generation.trajectories]
        for _, generation, trajectory in sorted(live, key=lambda entry: entry[0])[: max(0, len(live) - most)]:
            generation.end(trajectory)

    def _open(self, call: CallIdentity) -> Generation:
        is_running, thread = self.source.is_running, threading.get_ident()
        strays = [stray for one in self.generations if one.thread == thread for stray in one.strays]
        # A loop that another one interrupted in its first step, where both looked like windows of one generation.
        goes_on = call.timesteps is not None and any(
            one.timesteps is call.timesteps and one.first < call.info.step for one in self.generations
        )
        for session, generation in [(peer, one) for peer in self.peers for one in peer.generations]:
            is_over = generation.finished or (generation.thread == thread and generation.step == generation.steps - 1)
            was_left = call.scheduler is not None and generation.scheduler is call.scheduler
            if is_running and generation.timesteps is call.timesteps:
                was_left = False  # the pipeline's loop is under way, and another one begins
            live = sum(not one.finished for one in self.generations)
            if is_over or was_left or (session is self and live >= MOST_GENERATIONS):
                session._archive(generation)
        watch = Stopwatch(call.latent.device, id(self), text=self.text_joules)
        watch.mark(FIRST, wait=False, read=self.watch is None)
        generation = Generation(
            call, self.config, watch, self.watch, self.text_seconds, is_checked=not is_running, strays=strays
        )
        self.text_seconds = self.text_joules = 0.0
        self.generations.append(generation)
        self.current = generation
        compare = self.differences or (lambda *_: ([], []))
        shape, first = tuple(call.latent.shape[1:]), generation.first
        notes, warned = compare(generation.steps, generation.sigmas, self.source, shape, first)
        generation.goal = self.goal
        if notes or warned:
            generation.withdraw_promise("the profile was verified under other conditions, which the notes name")
        for text in (*self.notes, *notes):
            self.note(text)
        for text in (*self.warnings, *warned):
            self.warn_and_note(text, ProfileWarning)
        if goes_on:
            self.warn_and_note(NEW_TRAJECTORY)
        return generation

    def _archive(self, generation: Generation) -> None:
        self._finish(generation)
        self._reports.append(generation.report())
        self.generations.remove(generation)
        self.current = None if self.current is generation else self.current

    def _finish(self, generation: Generation) -> None:
        if generation.finished:
            return
        self.check_afterwards(generation)
        if text := shortfall(report := generation.report()):
            warnings.warn(f"galaxydit: {text}", FullComputeWarning, stacklevel=2)
        generation.release()
        self.listener.add(report)

    def check_afterwards(self, generation: Generation) -> None:
        if not all([generation.is_continuous(one, generation.first + 2) for one in generation.trajectories]):
            self.warn_and_note(f"{NEW_TRAJECTORY}; this was found after the generation", of=generation)

    def continues(self, call: CallIdentity) -> bool:
        """Whether a call may belong to a generation, by all but its latent."""
        return any(one.fits(call) and 0 <= call.info.step - one.step <= 1 for one in tuple(self.generations))

    def is_under_way(self, thread: int | None = None) -> bool:
        """Whether a generation, of one thread if given, has not ended, and the scheduler has begun no other."""
        own = [one for one in tuple(self.generations) if thread in (None, one.thread)]
        return any(one.is_under_way(self.source.pipe, self.source.scheduler) for one in own)

    @_one_at_a_time
    def adopt(self, reports: list[Report]) -> None:
        """Add the reports of another session, which has ended."""
        for generation in [one for one in self.generations if one.finished]:
            self._archive(generation)
        self._reports.extend(reports)

    @_one_at_a_time
    def close(self) -> None:
        for generation in sorted(self.generations, key=lambda one: one is self.current):
            self._archive(generation)

    @_one_at_a_time
    def retire(self) -> None:
        """Close, and leave the other sessions on the transformers."""
        try:
            self.close()
        finally:
            self.peers.remove(self)

    @_one_at_a_time
    def add_text(self, seconds: float, joules: float) -> None:
        self.text_seconds += seconds
        self.text_joules += joules

    def warn_and_note(self, text: str, kind: type[Warning] = FullComputeWarning, of: Generation | None = None) -> None:
        """Add a note to a report, by default the current one, and raise it as a Python warning once in a session."""
        self.note(text, of)
        expected = kind is FullComputeWarning and not self.config.history_length  # nothing was to be reused
        if text not in self._warned and not expected:
            self._warned.add(text)
            warnings.warn(f"galaxydit: {text}", kind, stacklevel=2)

    def note(self, text: str, of: Generation | None = None) -> None:
        noted = of or self.current
        if noted is not None and not noted.finished and text not in noted.notes:
            noted.notes.append(text)

    def _latest(self, default: Generation | None) -> Generation | None:
        own = [generation for generation in self.generations if generation.thread == threading.get_ident()]
        return self.current if self.current in own else next(reversed(own), default)

    @_one_at_a_time
    def end(self) -> None:
        """End the latest generation of this thread when its pipeline ends: drop its tensors, but keep its report. The
        accelerated pipeline does not end in mid-loop, so another one that shares its transformer did."""
        latest = self._latest(self.current)
        if latest is None or latest.finished:
            return
        if latest.step == latest.steps - 1 or not self.source.may_be_running:
            if latest.is_metered_here and latest.watch.has(DECODED) and token_group(self.source.transformer) is None:
                latest.watch.mark(END, wait=False)
                latest.watch.share(None)
            self._finish(latest)

    @_one_at_a_time
    def leave(self, generation: Generation, records: list[CallRecord]) -> None:
        """Record a call, one record a sample; the last step waits for the device, so that its time covers all work."""
        generation.calls += records
        generation.bytes_held = max(generation.bytes_held, generation.holds_now())
        is_last = records[-1].step == generation.steps - 1
        ends_metered = is_last and generation.is_metered_here
        generation.watch.mark(LAST, wait=is_last, read=ends_metered)
        if ends_metered:
            generation.watch.share(token_group(self.source.transformer))

    @_one_at_a_time
    def leave_unknown(self, component: str, blocks: int, latent: torch.Tensor | None) -> None:
        """Record a call that was not understood in this thread's latest generation; `latent` if its step is unknown."""
        generation = self._latest(None)
        if generation is not None and not generation.finished:
            if latent is not None:
                generation.strays.append(Trajectory(KnownValue(latent, copies=True)))
            step, sigma = max(0, generation.step), generation.calls[-1].sigma if generation.calls else 1.0
            told = (component, "unknown", False, Reason.UNKNOWN_CALL, None, None, float(blocks), blocks)
            generation.calls.append(CallRecord(step, sigma, *told))

    def decoded(self) -> None:
        """Store the end of decoding; called after each part that the VAE decodes, so the last part counts."""
        if self.current is not None and not self.current.finished and self.current.step == self.current.steps - 1:
            self.current.watch.mark(DECODED, wait=False, read=False)
