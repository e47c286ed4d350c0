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

    A sample is one video of the batch. A decision scope is one guidance branch, or all branches jointly. The keys are
    names of branches or scopes, or pairs of such a name and the index of a sample.

    Attributes:
        samples: number of samples with decisions of their own; 0 until a call is divided into samples.
        signatures: shape, dtype and device of the latent, and the adapters, in the last call, by branch.
        shapes: shapes of the outputs in the last full step, by branch.
        history: cached full steps, oldest first, by (branch, sample).
        proxies: the proxy's tensor when it was last read, by scope.
        controllers: objects that make the decisions, by (scope, sample).
        decisions: the decisions of the current step, one for each sample, by scope.
        errors: relative error that a prediction would have had at the last full step, by (branch, sample); removed when
            the next decision has used it.
        texts: the text embeddings of the last call, by branch.
        trails: values sampled from the outputs of the last full steps, and the state of the guard, which limits
            predictions that prove wrong at full steps, by (scope, sample).
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
        """Drop signatures, cached steps and texts of other branches: they were not called in the last step, so their
        cached steps are too old. Drop all decisions, as a new step begins, and all proxies if `branches` is empty.
        """
        self.decisions.clear()
        if not branches:
            self.proxies.clear()
        self.signatures = {name: signature for name, signature in self.signatures.items() if name in branches}
        self.history = {key: steps for key, steps in self.history.items() if key[0] in branches}
        self.texts = {name: text for name, text in self.texts.items() if name in branches}

    def release(self, branch: str, scope: str, step: int) -> None:
        """Drop the cached steps of a branch, and the proxy and trails of its decision scope.

        The engine calls this after the branch's call of the last step, whose index is `step`, because the video decoder
        needs the memory. Trails that still lack the output of another branch at `step` stay.
        """
        self.history = {key: steps for key, steps in self.history.items() if key[0] != branch}
        self.proxies.pop(scope, None)
        self.trails = {key: trail for key, trail in self.trails.items() if key[0] != scope or trail.waits_at(step)}

    def bytes_held(self) -> int:
        """Bytes of the cached steps, of the proxies, and of the sampled values in the trails."""
        tensors = [tensor for steps in self.history.values() for *_, tensor in steps] + list(self.proxies.values())
        sampled = sum(trail.bytes_held() for trail in self.trails.values())
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors) + sampled


@dataclass
class Generation:
    """The state of one run through the denoising steps, as in one call of a pipeline.

    Each run is a new object, so no state leaks from one generation to the next.

    Attributes:
        config: the settings of the plugin.
        first: index of the first step that runs.
        steps: number of steps.
        scheduler: the scheduler that drives the generation; None if it is unknown.
        timesteps: the scheduler's tensor of timesteps, which identifies the generation; None if it is unknown.
        text_seconds: seconds in the text encoders before the first call.
        names_branches: whether the pipeline names its guidance branches.
        sigmas: noise level of every step; None where the scheduler gives none.
        response: the final latent's linear response to each step's output, one number for each step; None until it is
            measured.
        timesteps_address: memory address of the pipeline's timesteps; None where calls do not show it.
        goal: the request of the user, such as a speedup or a PSNR; None if the user passed a `GalaxyDiTConfig`.
        step, sigma: index and noise level of the current step; -1 and infinity before the first.
        latent: the transformer's input in the current step; None where the calls of a step do not share it.
        seen: component name of the transformer, and branch, of each call of the current step up to now.
        states: the state of each transformer, by component name.
        calls: records of the transformer calls up to now.
        notes: sentences for the report, on what the plugin could not do or how the generation differs from the profile.
        guard: records of the guard's measurements at full steps, and of the changes that it made.
        bytes_held: peak bytes that the plugin kept between calls.
        denoise_started, denoise_ended, decoded_at: clock readings in seconds at the first call, at the end of the
            latest call, and at the end of decoding; None before.
        energy: readings of the devices' energy counters; None before the first call.
        finished: whether the generation has ended and its tensors are dropped.
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
        """Register a call, and return the state of its transformer.

        `branch` is `call.branch`, or "call 0", "call 1" and so on where the pipeline names no branch. At the first call
        of a step, drop the state of branches that were not called in the last step.
        `switches_guidance` says that guidance with both branches in one batch was switched off or on at this call. The
        transformer then forgets its earlier steps, because their tensors have another batch size.
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
        """Drop every tensor and mark the generation as finished."""
        self.states.clear()
        self.latent = None
        self.finished = True
