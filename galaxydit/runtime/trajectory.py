"""One denoised latent over the steps: which calls belong to it, and the full steps that its calls can reuse.

A generation has one trajectory, or one for each window, tile or region of its latent. A call belongs to the trajectory
whose latent it continues.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from galaxydit.context_parallel import sum_over
from galaxydit.extrapolation import CachedStep
from galaxydit.policies.policy import Controller, Decision
from galaxydit.runtime.clean import denoised_part
from galaxydit.runtime.identity import CallIdentity, KnownValue
from galaxydit.runtime.step import Noise

REMEMBERED = 7  # steps whose branches are known
RECENT = 4  # steps after which a branch that is not called any more is forgotten
# By distance of the weights, a step moves a latent at most this many times as far as earlier steps did; and this many
# times its own norm in the first step, and where the guidance differs from that of the step before.
FURTHER, FASTEST = 2.0, 2.5
CERTAIN = 4.0  # standard deviations of the noise that the clean prediction in it must have to be seen
DISTINCT = 2.0  # the next nearest trajectory must lie this many times as far


class Move(NamedTuple):
    """A latent's way to the step `step`: the `weights` before and after it, whether the guidance just changed, and
    whether it is the first way of the generation.
    """

    step: int
    before: tuple[float, float]
    after: tuple[float, float]
    is_guided_anew: bool
    is_first: bool


@dataclass
class TransformerState:
    """State of one transformer in one trajectory, by branch or decision scope, and by index of the sample.

    Attributes:
        samples: number of samples with decisions of their own; 0 until a call is divided into samples.
        rows: batch size of the last call, by branch.
        shapes: shapes of the outputs in the last full step, by branch.
        history: cached full steps, oldest first, by (branch, sample).
        missed: steps reused since the last full step, by (branch, sample).
        proxies: the proxy's tensor when it was last read, by scope.
        controllers: objects that make the decisions, by (scope, sample).
        decisions: the decisions of the current step, one for each sample, by scope.
        errors: relative error that a prediction would have had at the last full step, by (branch, sample); removed when
            the next decision has used it.
        conditions: the arguments of the last call beside latent and timestep, by branch.
        was_guided: whether the pipeline said at the last full step that it guides; None where it does not say.
        slope_errors: step, (scope, branch, sample), and squared errors at order 1 and 0, of full steps not judged yet.
        slope_failures: whether the slope failed at each of the last full steps, by (scope, branch, sample).
    """

    samples: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    shapes: dict[str, tuple[torch.Size, ...]] = field(default_factory=dict)
    history: dict[tuple[str, int], tuple[CachedStep, ...]] = field(default_factory=dict)
    missed: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    proxies: dict[str, Tensor] = field(default_factory=dict)
    controllers: dict[tuple[str, int], Controller] = field(default_factory=dict)
    decisions: dict[str, tuple[Decision, ...]] = field(default_factory=dict)
    errors: dict[tuple[str, int], float] = field(default_factory=dict)
    conditions: dict[str, dict[str, KnownValue]] = field(default_factory=dict)
    was_guided: bool | None = None
    slope_errors: list[tuple[int, tuple[str, str, int], Tensor]] = field(default_factory=list)
    slope_failures: dict[tuple[str, str, int], tuple[bool, ...]] = field(default_factory=dict)

    def keep_only(self, branches: set[str]) -> None:
        """Drop what is known of other branches, whose full steps are too old, and the decisions of the step before."""
        self.decisions.clear()
        if not branches:
            self.proxies.clear()
        self.history = {key: steps for key, steps in self.history.items() if key[0] in branches}
        self.conditions = {name: known for name, known in self.conditions.items() if name in branches}

    def forget(self, step: int) -> None:
        """Drop the full steps before `step`, because a condition changed or the latent does not continue."""
        kept = {key: tuple(one for one in steps if one.step >= step) for key, steps in self.history.items()}
        self.history = {key: steps for key, steps in kept.items() if steps}
        self.missed.clear()

    def can_reuse(self, branches: set[str], sample: int) -> bool:
        """Whether all of these branches have a full step to reuse, and the same one is the last of each."""
        last = {steps[-1].step for (name, index), steps in self.history.items() if name in branches and index == sample}
        return len(last) == 1 and all((name, sample) in self.history for name in branches)

    def release(self, branch: str, scope: str) -> None:
        """Drop the tensors of a branch after its call of the last step, because the decoder needs the memory."""
        self.history = {key: steps for key, steps in self.history.items() if key[0] != branch}
        self.conditions.pop(branch, None)
        self.proxies.pop(scope, None)

    def bytes_held(self) -> int:
        """Bytes of the cached steps and of the proxies."""
        tensors = [tensor for steps in self.history.values() for *_, tensor in steps] + list(self.proxies.values())
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@dataclass(eq=False)
class Trajectory:
    """The calls of one latent: its latest step, its latent there, and the state of each transformer.

    Attributes:
        step, sigma: index and noise level of the latest step; -1 and infinity before the first.
        weights: weights of clean video and noise in the latent.
        latent: the transformer's input in the latest step.
        cleans: under a scheduler that draws noise, the clean prediction of each branch at the last full step, float32.
        seen: component and branch of each call of the last steps, newest step last.
        guidance_scale: the pipeline's guidance scale in the latest step; 1 where it says none.
        steady_since: first of the last steps that all had the same branches and guidance scale.
        speed: largest distance that a step moved the latent so far, by distance of `weights`; 0 before the first.
        stride: distance of `weights` in the latest step.
        pending: distances (`measure`) that were not read yet, with their moves.
        is_certain: whether it can be seen that the latent continued; not where little of the video is in the noise.
        states: state of each transformer, by component name.
        unheld: weight of the clean video that the first latent, which is noise alone, does not have.
        used: number of the session's latest call of this trajectory.
    """

    step: int = -1
    sigma: float = math.inf
    weights: tuple[float, float] = (0.0, 1.0)
    latent: KnownValue | None = None
    cleans: dict[str, Tensor] = field(default_factory=dict)
    seen: deque[set[tuple[str, str]]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    guidance_scale: float = 1.0
    steady_since: int = 0
    speed: float = 0.0
    stride: float = 0.0
    pending: list[tuple[Tensor, "Move"]] = field(default_factory=list)
    states: dict[str, TransformerState] = field(default_factory=dict)
    unheld: float = 0.0
    used: int = 0
    is_certain: bool = True

    def awaits(self, call: CallIdentity) -> bool:
        """Whether `call` may be another branch of the trajectory's current step: the same latent, not yet called."""
        if call.info.step != self.step or (call.component, call.branch) in self.seen[-1] or self.latent is None:
            return False
        rows = min(len(self.latent.tensor), len(call.latent))  # calls of several branches have more rows
        known = self.latent if len(self.latent.tensor) == len(call.latent) else KnownValue(self.latent.tensor[:rows])
        return not call.shares_latent or known.is_unchanged(call.latent if known is self.latent else call.latent[:rows])

    def precedes(self, call: CallIdentity) -> bool:
        """Whether `call` may be the first of the trajectory's next step, by all but the values of its latent."""
        if call.info.step != self.step + 1 or call.info.sigma > self.sigma or self.latent is None:
            return False
        before, now = self.latent.tensor, call.latent
        few, many = sorted((len(before), len(now)))  # guidance in one batch may have been switched off or on
        return (
            many % few == 0
            and before.shape[1:] == now.shape[1:]
            and (before.dtype, before.device) == (now.dtype, now.device)
        )

    def measure(self, call: CallIdentity, group: Any | None) -> Tensor:
        """On the device, for a call at the next step: distance of its latent from this one's, and its own norm, both
        squared; the largest share of a clean prediction in it, over branches and rows; and that prediction's norm.
        """
        assert self.latent is not None
        rows = min(len(self.latent.tensor), len(call.latent))
        now, before = call.latent[:rows].float(), self.latent.tensor[:rows].float()
        dots, squares = [now.new_zeros(())], [now.new_zeros(())]
        for clean in self.cleans.values():
            centred, shown = (clean - clean.mean())[:rows].flatten(1), denoised_part(now, clean.shape)
            assert shown is not None  # the clean prediction has the shape of a part of the latent
            dots += (shown.flatten(1)[: len(centred)] * centred).sum(1)
            squares += centred.square().sum(1)
        sums = sum_over(group, torch.stack([(now - before).square().sum(), now.square().sum(), *dots, *squares]))
        dots_of, squares_of = sums[2:].chunk(2)
        shares = dots_of / squares_of.clamp_min(torch.finfo(torch.float32).tiny)
        largest = squares_of.gather(0, shares.argmax(0, keepdim=True)).sqrt()
        return torch.cat([sums[:2], shares.amax(0, keepdim=True), largest])

    def move_to(self, call: CallIdentity, first: int) -> "Move":
        """The move from the latest step to that of a call; `first` is the first step of the generation."""
        is_guided_anew = self.steady_since == self.step or (len(self.seen) > 1 and self.seen[-1] != self.seen[-2])
        return Move(call.info.step, self.weights, call.weights, is_guided_anew, self.step == first)

    def continues(self, measured: Sequence[float], move: "Move", noise: "Noise") -> bool:
        """Whether a latent with these distances (`measure`) is the trajectory's next one; if so, learn its speed.

        Where noise is drawn, the latent must hold half of the last clean prediction; else it moves at most as far as
        `FURTHER` and the constants beside it say.
        """
        moved, size, share, norm = measured
        moved, size, distance = moved**0.5, size**0.5, math.dist(move.before, move.after)
        if noise is not Noise.NONE and noise is not Noise.UNKNOWN and self.cleans:
            held = move.after[0] - self.unheld
            self.is_certain = held * norm > CERTAIN * move.after[1]
            if not self.is_certain or share >= held / 2:
                return True
        if noise is Noise.DRAWN:
            return not self.cleans
        fastest = FASTEST * size
        if self.speed and not move.is_guided_anew:
            fastest = max(FURTHER * self.speed, size)
        if noise is Noise.UNKNOWN:  # drawn noise moves a latent farther than denoising does
            fastest = min(fastest, FASTEST * size)
        reach = fastest * max(distance, self.stride)
        if not moved <= (max(reach, size / 2) if move.is_first and noise is not Noise.UNKNOWN else reach):
            return False
        self.speed = max(self.speed, moved / distance if distance > 1e-6 else 0.0)
        self.stride, self.is_certain = distance, True
        return True

    def enter(self, call: CallIdentity, branch: str) -> TransformerState:
        """Register a call of this trajectory, and return the state of its transformer."""
        component, info, before = call.component, call.info, self.states.get(call.component)
        if before is not None and before.rows.get(branch, len(call.latent)) != len(call.latent):
            # Guidance in one batch was switched off or on, so cached tensors have another batch size.
            self.states[component] = TransformerState(before.samples, controllers=before.controllers)
            self.cleans.clear()
        if info.step != self.step:
            for name, state in self.states.items():
                called = {branch for component, branch in (self.seen[-1] if self.seen else ()) if component == name}
                state.keep_only(self.branches(name) if called else set())
            other_scale = call.guidance_scale != self.guidance_scale
            if other_scale or (len(self.seen) > 1 and self.seen[-1] != self.seen[-2]):
                self.steady_since = info.step if other_scale else self.step
            self.guidance_scale = call.guidance_scale
            if self.step < 0:
                self.unheld = call.weights[0] if info.step == 0 else 0.0
            self.step, self.sigma, self.weights = info.step, info.sigma, call.weights
            self.latent = KnownValue(call.latent, copies=True)
            self.seen.append(set())
        self.seen[-1].add((component, branch))
        state = self.states.setdefault(component, TransformerState())
        state.rows[branch] = len(call.latent)
        return state

    def branches(self, component: str, steps: int = RECENT) -> set[str]:
        """The branches of a transformer that were called in the last steps."""
        return {branch for step in list(self.seen)[-steps:] for name, branch in step if name == component}

    def expected_branches(self, component: str) -> set[str]:
        """The branches that the current step will have: those called already, and those of the steps before, by their
        period (guidance in every second step, for example) or else all recent ones.
        """
        *before, now = ({branch for name, branch in step if name == component} for step in self.seen)
        for period, known in ((1, RECENT), (2, 5), (3, 7)):
            last = before[-known:]
            if len(last) == known and all(one == other for one, other in zip(last, last[period:], strict=False)):
                return now | last[-period]
        return now | self.branches(component)

    def branch_of(self, call: CallIdentity) -> str:
        """The name of the call's branch. A pipeline that names none has "call 0", "call 1" and so on, by the order of
        the calls in a step, unless the arguments are those of another branch of the step before.
        """
        if call.branch is not None:
            return call.branch
        called = self.seen[-1] if self.seen and call.info.step == self.step else set()
        taken = {branch for component, branch in called if component == call.component}
        name = f"call {len(taken)}"
        state = self.states.get(call.component, TransformerState())
        free = [known for known in dict.fromkeys((name, *state.conditions)) if known not in taken]
        same = (known for known in free if known in state.conditions and not call.changed(state.conditions[known]))
        return next(same, next(iter(free), name))

    def release(self) -> None:
        """Drop every tensor."""
        self.states.clear()
        self.pending.clear()
        self.cleans.clear()
        self.latent = None
