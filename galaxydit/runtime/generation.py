"""One generation: what is remembered between its calls, which calls belong to it, and its report."""

import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from galaxydit.extrapolation import CachedStep
from galaxydit.policies.config import Controller, GalaxyDiTConfig
from galaxydit.policies.policy import Decision
from galaxydit.report import CallRecord, Report
from galaxydit.runtime.step import Arrival, KnownInput, Signature

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
    scheduler: Any | None
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

    def difference(self, call: Arrival) -> str | None:
        """Why a call begins a new generation; None if it continues this one.

        Where guidance as one batch was switched off or on, the transformer forgets its earlier steps and continues.
        """
        info, name, state = call.info, self.name_of(call), self.states.get(call.component, TransformerState())
        follows = info.step == self.step + 1
        if self.finished:
            return "the one before has ended"
        if None not in (self.timesteps, call.timesteps) and self.timesteps != call.timesteps:
            return "its timesteps are those of another call of a pipeline"
        if info.steps != self.steps or getattr(call.scheduler, "timesteps", None) is not self.schedule:
            return "the steps were set anew"
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
