"""The generations of one acceleration: where each begins and ends, what is remembered meanwhile, and its report."""

import time
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from galaxydit.errors import FullComputeWarning, ProfileWarning
from galaxydit.extrapolation import CachedStep
from galaxydit.policies.config import Controller, GalaxyDiTConfig
from galaxydit.policies.policy import Decision
from galaxydit.report import CallRecord, Report
from galaxydit.runtime.step import KnownInput, Signature, StepInfo, adapters_of, sigmas_of

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

    @property
    def adapters(self) -> tuple[str, ...]:
        return adapters_of(self.transformer)


Differences = Callable[[int, tuple[float, ...] | None, Source], list[str]]
"""From the steps and sigmas of a generation to how it differs from what a profile was measured under."""


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
        self.signatures = {name: signature for name, signature in self.signatures.items() if name in branches}
        self.history = {key: steps for key, steps in self.history.items() if key[0] in branches}
        self.texts = {name: text for name, text in self.texts.items() if name in branches}

    def switches_guidance(self, branch: str, signature: Signature) -> bool:
        """Whether a call differs from the last of this branch by half or twice the batch alone: guidance as one batch
        was switched off or on.
        """
        known = self.signatures.get(branch)
        if known is None or known.shape[1:] != signature.shape[1:]:
            return False
        sizes = sorted((known.shape[0], signature.shape[0]))
        return 2 * sizes[0] == sizes[1] and replace(known, shape=signature.shape) == signature

    def forget_steps(self) -> None:
        """Forget what earlier steps left, and go on with the controllers."""
        for kept in (self.history, self.proxies, self.errors, self.texts, self.signatures):
            kept.clear()

    def bytes_held(self) -> int:
        kept = [tensor for steps in self.history.values() for _, tensor in steps] + list(self.proxies.values())
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

    def next_call(self, component: str, step: int) -> str:
        """A name for a branch without one: its place among the calls of the step."""
        earlier = [name for name, _ in self.seen if name == component and step == self.step]
        return f"call {len(earlier)}"

    def begin_step(self, info: StepInfo, latent: Tensor | None) -> None:
        """Go on to another step, for which a new decision is made."""
        for component, state in self.states.items():
            state.keep_only({branch for name, branch in self.seen if name == component})
        self.step, self.sigma = info.step, info.sigma
        self.latent = None if latent is None else KnownInput(latent)
        self.seen.clear()

    def release(self) -> None:
        """Drop every tensor."""
        self.states.clear()
        self.latent = None
        self.finished = True


@dataclass(eq=False)
class Session:
    """The generations of one acceleration.

    Attributes:
        config: the settings of all generations.
        source: the pipeline and its scheduler.
        notes: remarks that belong in every report.
        differences: from the profile that the settings come from, if any; asked at the start of each generation.
        keep_reports: how many finished reports are kept; None keeps all.
        current: the generation that runs, or that ran last.
    """

    config: GalaxyDiTConfig
    source: Source
    notes: tuple[str, ...] = ()
    differences: Differences | None = None
    keep_reports: int | None = DEFAULT_REPORTS
    current: Generation | None = field(default=None, init=False)
    _text_seconds: float = field(default=0.0, init=False)
    _warned: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self.reports: deque[Report] = deque(maxlen=self.keep_reports)

    def enter(
        self,
        component: str,
        branch: str | None,
        info: StepInfo,
        signature: Signature,
        text: Tensor | None = None,
        latent: Tensor | None = None,
    ) -> tuple[Generation, str]:
        """The generation that a call belongs to and the name of its branch; opens a new generation where one begins."""
        generation = self.current
        if generation is None:
            generation = self._open(info, branch)
        else:
            state = generation.states.get(component)
            follows = info.step == generation.step + 1 and not generation.finished
            if state is not None and follows and state.switches_guidance(branch or "call 0", signature):
                state.forget_steps()
            difference = self._difference(generation, component, branch, info, signature, text, latent)
            if difference is not None:
                surprising = 0 <= info.step - generation.step <= 1 and info.step > 0 and not generation.finished
                begun = generation.first
                generation = self._open(info, branch)
                if surprising:
                    if difference == CHANGED:  # the same video goes on, so its warm-up is over
                        generation.first = begun
                    self.note(f"a generation begins at step {info.step}, as {difference}; nothing before can be reused")
        name = branch or generation.next_call(component, info.step)
        if info.step != generation.step:
            generation.begin_step(info, latent)
        generation.seen.add((component, name))
        state = generation.states.setdefault(component, TransformerState())
        state.signatures[name] = signature
        if text is not None:
            state.texts[name] = KnownInput(text)
        return generation, name

    def _difference(
        self,
        generation: Generation,
        component: str,
        branch: str | None,
        info: StepInfo,
        signature: Signature,
        text: Tensor | None,
        latent: Tensor | None,
    ) -> str | None:
        """Why a call begins a new generation; None if it continues this one."""
        if generation.finished:
            return "the one before has ended"
        timesteps = getattr(self.source.scheduler, "timesteps", None)
        if info.steps != generation.steps or timesteps is not generation.schedule:
            return "the steps were set anew"
        if generation.names_branches != (branch is not None):
            return "its branches are named otherwise"
        name = branch or generation.next_call(component, info.step)
        state = generation.states.get(component)
        if state is not None and state.signatures.get(name, signature) != signature:
            return CHANGED
        if state is not None and name in state.texts and not state.texts[name].goes_on_as(text):
            return "its text is another tensor"
        if info.step == generation.step:
            if (component, name) in generation.seen:
                return "it repeats a step"
            # Unnamed branches of interleaved generations are told apart by the latent, which all calls of a step share.
            same = branch is not None or generation.latent is None or generation.latent.equals(latent)
            return None if same else "its latent is another tensor"
        follows = info.step == generation.step + 1 and info.sigma <= generation.sigma
        return None if follows else "the steps do not follow on each other"

    def _open(self, info: StepInfo, branch: str | None) -> Generation:
        self.close()
        scheduler = self.source.scheduler
        generation = Generation(
            config=self.config,
            first=info.step,
            steps=info.steps,
            schedule=getattr(scheduler, "timesteps", None),
            text_seconds=self._text_seconds,
            names_branches=branch is not None,
            sigmas=sigmas_of(scheduler, info.steps),
        )
        self._text_seconds = 0.0
        self.current = generation
        notes = list(self.notes)
        if self.differences is not None:
            notes += self.differences(generation.steps, generation.sigmas, self.source)
        for text in notes:
            self.note(text, ProfileWarning)
        return generation

    def close(self) -> None:
        """End the current generation: keep its report, drop its tensors."""
        if self.current is not None:
            self.reports.append(self.current.report())
            self.current.release()
            self.current = None

    def note(self, text: str, category: type[Warning] = FullComputeWarning) -> None:
        """Put a note into the current report and warn once."""
        if self.current is not None and text not in self.current.notes:
            self.current.notes.append(text)
        if text not in self._warned:
            self._warned.add(text)
            warnings.warn(f"galaxydit: {text}", category, stacklevel=2)

    def leave(self, generation: Generation, records: list[CallRecord], device: torch.device) -> None:
        """Record a finished call. After the last step it waits for the device, so that the denoise time is true."""
        generation.calls += records
        generation.bytes_held = max(generation.bytes_held, sum(s.bytes_held() for s in generation.states.values()))
        if records[-1].step == generation.steps - 1:
            synchronize(device)
        generation.denoise_ended = time.perf_counter()

    def text_encoded(self, seconds: float) -> None:
        """A text encoder ran for this long, for the next generation."""
        self._text_seconds += seconds

    def decoded(self) -> None:
        """The VAE has decoded a part of the current generation; the last such call is its end."""
        if self.current is not None and self.current.step == self.current.steps - 1:
            self.current.decoded_at = time.perf_counter()


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished its queue, so that a clock read now is true."""
    if device.type not in ("cpu", "meta"):
        torch.accelerator.synchronize(device)
