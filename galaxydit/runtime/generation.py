"""All generations of one acceleration: where each begins and ends, what is remembered meanwhile, and its report."""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from galaxydit.config import FEW_STEPS, Config
from galaxydit.controller import ControllerState, Decision
from galaxydit.errors import FullComputeWarning, ProfileWarning
from galaxydit.report import CallRecord, Report
from galaxydit.reuse import Anchor
from galaxydit.trajectory import KnownInput, Signature, StepInfo, sigmas_of

FIRST_CALL = "call 0"


@dataclass
class TransformerState:
    """What one transformer remembers during one generation; tensors are keyed by guidance branch."""

    signature: Signature
    history: dict[str, tuple[Anchor, ...]] = field(default_factory=dict)
    proxies: dict[str, Tensor] = field(default_factory=dict)
    controllers: dict[str, ControllerState] = field(default_factory=dict)
    decisions: dict[str, Decision] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    texts: dict[str, KnownInput] = field(default_factory=dict)

    def keep_only(self, branches: set[str]) -> None:
        """Forget the branches that sat out a step: what they had is too old to reuse when they come back."""
        self.decisions.clear()
        self.history = {name: anchors for name, anchors in self.history.items() if name in branches}
        self.texts = {name: text for name, text in self.texts.items() if name in branches}

    def bytes_held(self) -> int:
        kept = [tensor for anchors in self.history.values() for _, tensor in anchors] + list(self.proxies.values())
        return sum(tensor.numel() * tensor.element_size() for tensor in kept)


@dataclass
class Generation:
    """One run through the steps. A new one is a new object: nothing can leak from the one before."""

    config: Config
    steps: int
    schedule: Tensor | None
    text_seconds: float
    sigmas: tuple[float, ...] | None = None
    step: int = -1
    sigma: float = float("inf")
    names_branches: bool = True
    latent: KnownInput | None = None
    seen: set[tuple[str, str]] = field(default_factory=set)
    states: dict[str, TransformerState] = field(default_factory=dict)
    calls: list[CallRecord] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    bytes_held: int = 0
    denoise_started: float | None = None
    denoise_ended: float | None = None
    decoded_at: float | None = None
    finished: bool = False

    def report(self) -> Report:
        denoise = end_to_end = None
        if self.denoise_started is not None and self.denoise_ended is not None:
            denoise = self.denoise_ended - self.denoise_started
        if self.decoded_at is not None:
            end_to_end = self.text_seconds + self.decoded_at - (self.denoise_started or self.decoded_at)
        return Report(
            self.config, self.steps, tuple(self.calls), tuple(self.notes), self.bytes_held, denoise, end_to_end
        )

    def next_call(self, component: str, step: int) -> str:
        """A name for a branch that has none: its place among the step's calls."""
        earlier = [name for name, _ in self.seen if name == component and step == self.step]
        return f"call {len(earlier)}"

    def begin_step(self, info: StepInfo, latent: Tensor | None) -> None:
        """Go on to another step, which is decided anew."""
        for component, state in self.states.items():
            state.keep_only({branch for name, branch in self.seen if name == component})
        self.step, self.sigma = info.step, info.sigma
        self.latent = None if latent is None else KnownInput(latent)
        self.seen.clear()

    def release(self) -> None:
        """Let go of every tensor."""
        self.states.clear()
        self.latent = None
        self.finished = True


class Session:
    """The generations of one acceleration, the current one last.

    `scheduler` is asked at every call, so that a scheduler exchanged later is seen.
    """

    def __init__(self, config: Config, scheduler: Callable[[], Any | None]) -> None:
        self.config = config
        self.scheduler = scheduler
        self.remarks: Callable[[Generation], list[str]] = lambda generation: []
        self.reports: list[Report] = []
        self.current: Generation | None = None
        self._text_seconds = 0.0
        self._warned: set[str] = set()

    def enter(
        self,
        component: str,
        branch: str | None,
        info: StepInfo,
        signature: Signature,
        text: Tensor | None = None,
        latent: Tensor | None = None,
    ) -> tuple[Generation, str]:
        """The generation that this call belongs to and the name of its branch; opens a new generation where one
        begins.
        """
        generation = self.current
        if generation is None:
            generation = self._open(info, branch)
        else:
            why_not = self._why_not(generation, component, branch, info, signature, text, latent)
            if why_not is not None:
                surprising = 0 <= info.step - generation.step <= 1 and info.step > 0 and not generation.finished
                generation = self._open(info, branch)
                if surprising:
                    self.note(f"a generation begins at step {info.step}, as {why_not}; nothing before can be reused")
        name = branch or generation.next_call(component, info.step)
        if info.step != generation.step:
            generation.begin_step(info, latent)
        generation.seen.add((component, name))
        state = generation.states.setdefault(component, TransformerState(signature))
        if text is not None:
            state.texts[name] = KnownInput(text)
        return generation, name

    def _why_not(
        self,
        generation: Generation,
        component: str,
        branch: str | None,
        info: StepInfo,
        signature: Signature,
        text: Tensor | None,
        latent: Tensor | None,
    ) -> str | None:
        """Why a call does not go on with this generation, but begins a new one; None where it does go on."""
        if generation.finished:
            return "the one before has ended"
        if info.steps != generation.steps or getattr(self.scheduler(), "timesteps", None) is not generation.schedule:
            return "the steps were set anew"
        if generation.names_branches != (branch is not None):
            return "its branches are named otherwise"
        name = branch or generation.next_call(component, info.step)
        state = generation.states.get(component)
        if state is not None and state.signature != signature:
            return "shape, dtype, device or adapters have changed"
        if state is not None and name in state.texts and not state.texts[name].goes_on_as(text):
            return "its text is another tensor"
        if info.step == generation.step:
            if (component, name) in generation.seen:
                return "it repeats a step"
            # Branches without a name are told from another generation's by the latent, which all of a step have.
            same = branch is not None or generation.latent is None or generation.latent.equals(latent)
            return None if same else "its latent is another tensor"
        follows = info.step == generation.step + 1 and info.sigma <= generation.sigma
        return None if follows else "the steps do not follow on each other"

    def _open(self, info: StepInfo, branch: str | None) -> Generation:
        self.close()
        schedule = getattr(self.scheduler(), "timesteps", None)
        sigmas = sigmas_of(self.scheduler(), info.steps)
        generation = Generation(self.config, info.steps, schedule, self._text_seconds, sigmas)
        generation.names_branches = branch is not None
        generation.denoise_started = time.perf_counter()
        self._text_seconds = 0.0
        self.current = generation
        for remark in self.remarks(generation):
            self.note(remark, ProfileWarning)
        if info.steps <= FEW_STEPS:
            self.note(
                f"{info.steps} steps are too few to reuse any (neighbouring steps differ too much at {FEW_STEPS} or "
                "fewer), so all are computed"
            )
        return generation

    def close(self) -> None:
        """End the current generation: keep its report, let go of its tensors."""
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

    def leave(self, generation: Generation, record: CallRecord, device: torch.device) -> None:
        """Book a finished call; the clock of the last step waits for the device."""
        generation.calls.append(record)
        generation.bytes_held = max(generation.bytes_held, sum(s.bytes_held() for s in generation.states.values()))
        if record.step == generation.steps - 1:
            synchronize(device)
        generation.denoise_ended = time.perf_counter()

    def text_encoded(self, seconds: float) -> None:
        """A text encoder ran for this long, for the generation to come."""
        self._text_seconds += seconds

    def decoded(self) -> None:
        """The VAE has decoded a part of the current generation; the last such call is its end."""
        if self.current is not None and self.current.step == self.current.steps - 1:
            self.current.decoded_at = time.perf_counter()


def synchronize(device: torch.device) -> None:
    """Wait until the device has done what was asked of it, so that a clock read now is true."""
    if device.type not in ("cpu", "meta"):
        torch.accelerator.synchronize(device)
