"""One generation: the state between its calls, and its report."""

import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from galaxydit.config import GalaxyDiTConfig
from galaxydit.energy import EnergyWindow
from galaxydit.extrapolation import CachedStep
from galaxydit.outcome import Goal
from galaxydit.policies.policy import Controller, Decision
from galaxydit.policies.safeguard import GuardRecord
from galaxydit.report import CallRecord, Report
from galaxydit.runtime.hindsight import Trail
from galaxydit.runtime.identity import CallIdentity, KnownInput, Signature


@dataclass
class TransformerState:
    """State of one transformer during one generation.

    Attributes:
        samples: number of samples with decisions of their own; 0 until it is known.
        signatures, shapes, texts: signature, shapes of the outputs and text, by guidance branch.
        history: cached full steps, oldest first, by branch and sample.
        errors: relative error that the prediction of the last full step would have had, by branch and sample.
        proxies, decisions: the last proxy tensor, and the decisions of the step, by decision scope (one branch, or all
            branches jointly).
        controllers: make the decisions, by decision scope and sample.
        trails: sampled outputs of the last full steps and the state of the guard, by decision scope and sample.
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
    trails: dict[tuple[str, int], Trail] = field(default_factory=dict)

    def keep_only(self, branches: set[str]) -> None:
        """Drop the state of all other branches: they were not called in a step, so their cached steps are too old."""
        self.decisions.clear()
        if not branches:
            self.proxies.clear()
        self.signatures = {name: signature for name, signature in self.signatures.items() if name in branches}
        self.history = {key: steps for key, steps in self.history.items() if key[0] in branches}
        self.texts = {name: text for name, text in self.texts.items() if name in branches}

    def release(self, branch: str, scope: str, step: int) -> None:
        """Drop the tensors of a branch after the last step, because the video decoder needs the memory.

        Samples of full steps stay while `step` waits for other branches.
        """
        self.history = {key: steps for key, steps in self.history.items() if key[0] != branch}
        self.proxies.pop(scope, None)
        self.trails = {key: trail for key, trail in self.trails.items() if key[0] != scope or trail.waits_at(step)}

    def bytes_held(self) -> int:
        """Bytes of the cached steps and proxies, and of the samples of full steps."""
        tensors = [tensor for steps in self.history.values() for *_, tensor in steps] + list(self.proxies.values())
        sampled = sum(trail.bytes_held() for trail in self.trails.values())
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors) + sampled


@dataclass
class Generation:
    """One run through the steps. Each run is a new object, so no state leaks from one generation to the next.

    Attributes:
        config: the settings in force.
        first: index of the first step that runs.
        steps: number of steps.
        scheduler: drives the generation; None if it is unknown.
        timesteps: the scheduler's timesteps, which identify the generation.
        text_seconds: seconds in the text encoders before the first call.
        names_branches: whether the pipeline names its guidance branches.
        sigmas: noise level of every step; None where the scheduler gives none.
        response: the final latent's linear response to each step's output; None until it is measured.
        timesteps_address: memory address of the pipeline's timesteps, where calls show it.
        goal: what was asked for; None where settings were given by hand.
        step, sigma: index and noise level of the current step.
        latent: input that all calls of the current step share, where they share it.
        seen: transformer and branch of the calls of the current step.
        states: by transformer.
        calls, notes, guard, bytes_held: for the report.
        denoise_started, denoise_ended, decoded_at: clock readings in seconds.
        energy: the joules of the devices.
        finished: whether the pipeline has reported the end.
    """

    config: GalaxyDiTConfig
    first: int
    steps: int
    scheduler: Any | None
    timesteps: Tensor | None
    text_seconds: float
    names_branches: bool
    sigmas: tuple[float, ...] | None = None
    response: tuple[float, ...] | None = None
    timesteps_address: int | None = None
    goal: Goal | None = None
    step: int = -1
    sigma: float = float("inf")
    latent: KnownInput | None = None
    seen: set[tuple[str, str]] = field(default_factory=set)
    states: dict[str, TransformerState] = field(default_factory=dict)
    calls: list[CallRecord] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    guard: list[GuardRecord] = field(default_factory=list)
    bytes_held: int = 0
    denoise_started: float = field(default_factory=time.perf_counter)
    denoise_ended: float | None = None
    decoded_at: float | None = None
    energy: EnergyWindow | None = None
    finished: bool = False

    def report(self) -> Report:
        """The report up to now."""
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
            energy_joules=None if self.energy is None else self.energy.energy(),
            guard=tuple(self.guard),
            goal=self.goal,
        )

    def admit(self, call: CallIdentity, branch: str, *, switches_guidance: bool) -> TransformerState:
        """Register a call, and return the state of its transformer. At the first call of a step, drop stale state.

        Where guidance as one batch was switched off or on, the transformer forgets its earlier steps, because their
        tensors have another batch size.
        """
        component, info = call.component, call.info
        if switches_guidance:
            before = self.states[component]
            self.states[component] = TransformerState(before.samples, controllers=before.controllers)
        if info.step != self.step:
            for name, state in self.states.items():
                state.keep_only({seen for transformer, seen in self.seen if transformer == name})
            self.step, self.sigma = info.step, info.sigma
            self.latent = None if call.latent is None else KnownInput(call.latent)
            self.seen.clear()
        self.seen.add((component, branch))
        state = self.states.setdefault(component, TransformerState())
        state.signatures[branch] = call.signature
        if call.text is not None:
            state.texts[branch] = KnownInput(call.text)
        return state

    def release(self) -> None:
        """Drop every tensor."""
        self.states.clear()
        self.latent = None
        self.finished = True
