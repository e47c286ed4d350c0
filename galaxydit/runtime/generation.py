"""The generations of one acceleration: where each begins and ends, what is remembered meanwhile, and its report."""

import threading
import time
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn

from galaxydit.errors import FullComputeWarning, ProfileWarning
from galaxydit.extrapolation import CachedStep
from galaxydit.policies.config import Controller, GalaxyDiTConfig
from galaxydit.policies.policy import Decision
from galaxydit.report import CallRecord, Report
from galaxydit.runtime.scheduler_response import scheduler_response
from galaxydit.runtime.step import Arrival, KnownInput, Signature, draws_noise, sigmas_of

DEFAULT_REPORTS = 16


@dataclass(frozen=True)
class Source:
    """Where calls come from: the pipeline or the bare transformer, and the scheduler that drives it.

    Everything is read when it is needed, so that a scheduler exchanged later is followed.
    """

    pipe: Any
    transformer: nn.Module
    own_scheduler: Any | None = None

    @property
    def scheduler(self) -> Any | None:
        return self.own_scheduler or getattr(self.pipe, "scheduler", None)


CHANGED = "shape, dtype, device or adapters have changed"


@dataclass
class TransformerState:
    """What one transformer remembers during one generation.

    `signatures`, `shapes` and `texts` are keyed by guidance branch, `history` and `errors` by branch and sample,
    `proxies` and `decisions` by decision scope (one branch, or all branches jointly), `controllers` by scope and
    sample. `samples` is the number of samples that decide for themselves, or 0 where it is not known yet.
    """

    samples: int = 0
    signatures: dict[str, Signature] = field(default_factory=dict)
    shapes: dict[str, tuple[torch.Size, ...]] = field(default_factory=dict)
    history: dict[tuple[str, int], tuple[CachedStep, ...]] = field(default_factory=dict)
    proxies: dict[str, Tensor] = field(default_factory=dict)
    controllers: dict[tuple[str, int], Controller] = field(default_factory=dict)
    decisions: dict[str, tuple[Decision, ...]] = field(default_factory=dict)
    errors: dict[tuple[str, int], float] = field(default_factory=dict)
    texts: dict[str, KnownInput] = field(default_factory=dict)

    def keep_only(self, branches: set[str]) -> None:
        """Forget the branches that were not called in a step: their cached steps are too old to reuse later."""
        self.decisions.clear()
        if not branches:
            self.proxies.clear()
        self.signatures = {name: signature for name, signature in self.signatures.items() if name in branches}
        self.history = {key: steps for key, steps in self.history.items() if key[0] in branches}
        self.texts = {name: text for name, text in self.texts.items() if name in branches}

    def release(self, branch: str, scope: str) -> None:
        """Drop the tensors of a branch after its last step, because the video decoder needs the memory."""
        self.history = {key: steps for key, steps in self.history.items() if key[0] != branch}
        self.proxies.pop(scope, None)

    def bytes_held(self) -> int:
        kept = [tensor for steps in self.history.values() for *_, tensor in steps] + list(self.proxies.values())
        return sum(tensor.numel() * tensor.element_size() for tensor in kept)


@dataclass
class Generation:
    """One run through the steps, from `first` on. A new one is a new object, so no state leaks from the one before."""

    config: GalaxyDiTConfig
    first: int
    steps: int
    schedule: Tensor | None
    text_seconds: float
    names_branches: bool
    sigmas: tuple[float, ...] | None = None
    response: tuple[float, ...] | None = None
    timesteps: int | None = None
    step: int = -1
    sigma: float = float("inf")
    latent: KnownInput | None = None
    seen: set[tuple[str, str]] = field(default_factory=set)
    states: dict[str, TransformerState] = field(default_factory=dict)
    calls: list[CallRecord] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    bytes_held: int = 0
    denoise_started: float = field(default_factory=time.perf_counter)
    denoise_ended: float | None = None
    decoded_at: float | None = None
    finished: bool = False

    def report(self) -> Report:
        return Report(
            config=self.config,
            steps=self.steps,
            calls=tuple(self.calls),
            notes=tuple(self.notes),
            bytes_held=self.bytes_held,
            denoise_seconds=None if self.denoise_ended is None else self.denoise_ended - self.denoise_started,
            end_to_end_seconds=(
                None if self.decoded_at is None else self.text_seconds + self.decoded_at - self.denoise_started
            ),
        )

    def name_of(self, call: Arrival) -> str:
        """The branch of a call; without a name its place among the calls of the step."""
        earlier = [name for name, _ in self.seen if name == call.component and call.info.step == self.step]
        return call.branch or f"call {len(earlier)}"

    def difference(self, call: Arrival, scheduler: Any | None) -> str | None:
        """Why a call begins a new generation; None if it continues this one.

        Where guidance as one batch was switched off or on, the transformer forgets its earlier steps and continues.
        """
        info, name, state = call.info, self.name_of(call), self.states.get(call.component, TransformerState())
        follows = info.step == self.step + 1
        if self.finished:
            return "the one before has ended"
        if info.steps != self.steps or getattr(scheduler, "timesteps", None) is not self.schedule:
            return "the steps were set anew"
        if None not in (self.timesteps, call.timesteps) and self.timesteps != call.timesteps:
            return "its timesteps are those of another call of a pipeline"
        if self.names_branches != (call.branch is not None):
            return "its branches are named otherwise"
        known = state.signatures.get(name, call.signature)
        if follows and known.switches_guidance(call.signature):
            state = TransformerState(state.samples, controllers=state.controllers)
            self.states[call.component] = state
        elif known != call.signature:
            return CHANGED
        if name in state.texts and not state.texts[name].goes_on_as(call.text):
            return "its text is another tensor"
        if info.step == self.step:
            if (call.component, name) in self.seen:
                return "it repeats a step"
            # Unnamed branches of interleaved generations are told apart by the latent, which all calls of a step share.
            same = self.names_branches or self.latent is None or self.latent.equals(call.latent)
            return None if same else "its latent is another tensor"
        return None if follows and info.sigma <= self.sigma else "the steps do not follow on each other"

    def admit(self, call: Arrival) -> tuple[TransformerState, str]:
        """Take in a call, and where it begins a step forget what is too old. Returns state and branch."""
        component, info, name = call.component, call.info, self.name_of(call)
        if info.step != self.step:
            for other, state in self.states.items():
                state.keep_only({branch for seen, branch in self.seen if seen == other})
            self.step, self.sigma = info.step, info.sigma
            self.latent = None if call.latent is None else KnownInput(call.latent)
            self.seen.clear()
        self.seen.add((component, name))
        state = self.states.setdefault(component, TransformerState())
        state.signatures[name] = call.signature
        if call.text is not None:
            state.texts[name] = KnownInput(call.text)
        return state, name

    def release(self) -> None:
        """Drop every tensor."""
        self.states.clear()
        self.latent = None
        self.finished = True


def _one_at_a_time(method: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator for a method of a session, which threads share that run pipelines on one transformer."""

    @wraps(method)
    def locked(session: "Session", *arguments: Any) -> Any:
        with session.lock:
            return method(session, *arguments)

    return locked


@dataclass(eq=False)
class Session:
    """The generations of one acceleration.

    Attributes:
        config: the settings of all generations.
        source: the pipeline and its scheduler.
        notes: remarks that belong in every report.
        differences: says for steps, sigmas and source how a generation differs from what its profile was measured with.
        keep_reports: how many finished reports are kept; None keeps all.
        current: the generation that runs, or that ran last.
        text_seconds: seconds in text encoders since the last generation began; they count for the next one.
    """

    config: GalaxyDiTConfig
    source: Source
    notes: tuple[str, ...] = ()
    differences: Callable[[int, tuple[float, ...] | None, Source], list[str]] | None = None
    keep_reports: int | None = DEFAULT_REPORTS
    current: Generation | None = field(default=None, init=False)
    text_seconds: float = field(default=0.0, init=False)
    lock: Any = field(default_factory=threading.RLock, init=False)
    _warned: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self.reports: deque[Report] = deque(maxlen=self.keep_reports)

    @_one_at_a_time
    def enter(self, call: Arrival) -> tuple[Generation, TransformerState, str]:
        """The generation of a call, its transformer's state and its branch; opens a generation where one begins."""
        generation, info = self.current, call.info
        if generation is None:
            generation = self._open(call)
        elif (difference := generation.difference(call, self.source.scheduler)) is not None:
            surprising = 0 <= info.step - generation.step <= 1 and info.step > 0 and not generation.finished
            begun = generation.first
            generation = self._open(call)
            if surprising:
                if difference == CHANGED:  # the same video goes on, so its warm-up is over
                    generation.first = begun
                self.note(f"a generation begins at step {info.step}, as {difference}; nothing before can be reused")
        return generation, *generation.admit(call)

    def _open(self, call: Arrival) -> Generation:
        self.close()
        scheduler, steps = self.source.scheduler, call.info.steps
        generation = Generation(
            config=self.config,
            first=call.info.step,
            steps=steps,
            schedule=getattr(scheduler, "timesteps", None),
            text_seconds=self.text_seconds,
            names_branches=call.branch is not None,
            sigmas=sigmas_of(scheduler, steps),
            timesteps=call.timesteps,
        )
        self.text_seconds = 0.0
        self.current = generation
        found = [] if self.differences is None else self.differences(steps, generation.sigmas, self.source)
        for text in (*self.notes, *found):
            self.note(text, ProfileWarning)
        return generation

    @_one_at_a_time
    def close(self) -> None:
        """End the current generation: keep its report, drop its tensors."""
        if self.current is not None:
            self.reports.append(self.current.report())
            self.current.release()
            self.current = None

    def note(self, text: str, category: type[Warning] = FullComputeWarning) -> None:
        """Put a note into the current report and warn once."""
        self.remark(text)
        if text not in self._warned:
            self._warned.add(text)
            warnings.warn(f"galaxydit: {text}", category, stacklevel=2)

    def remark(self, text: str) -> None:
        """Put a note into the current report."""
        if self.current is not None and not self.current.finished and text not in self.current.notes:
            self.current.notes.append(text)

    @_one_at_a_time
    def end(self) -> None:
        """The pipeline reports the end of its generation: drop the tensors, keep the records."""
        if self.current is not None:
            self.current.release()

    @_one_at_a_time
    def leave(self, generation: Generation, records: list[CallRecord], device: torch.device) -> None:
        """Record a finished call. After the last step it waits for the device, so that the denoise time is true."""
        generation.calls += records
        generation.bytes_held = max(generation.bytes_held, sum(s.bytes_held() for s in generation.states.values()))
        if records[-1].step == generation.steps - 1:
            synchronize(device)
        generation.denoise_ended = time.perf_counter()

    def corrects(self) -> bool:
        """Whether full steps can make up for what reused ones missed: outputs add up in the latent."""
        scheduler = self.source.scheduler
        if scheduler is None:
            self.remark("the scheduler is unknown, so full steps correct nothing: pass scheduler=... to `accelerate`")
            return False
        if draws_noise(scheduler):
            self.remark("the scheduler draws noise in every step, so full steps correct nothing")
            return False
        return True

    @_one_at_a_time
    def response(self, generation: Generation) -> tuple[float, ...] | None:
        """The final latent's linear response to each output, measured once; None without known sigmas."""
        if generation.response is None and generation.sigmas is not None:
            generation.response = scheduler_response(self.source.scheduler, generation.sigmas, generation.first)
        return generation.response

    def decoded(self) -> None:
        """The VAE has decoded a part of the current generation; the last such call in the pipeline is its end."""
        if self.current is not None and not self.current.finished and self.current.step == self.current.steps - 1:
            self.current.decoded_at = time.perf_counter()


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished its queue, so that a clock read now is true."""
    if device.type not in ("cpu", "meta"):
        torch.accelerator.synchronize(device)
