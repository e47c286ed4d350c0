"""The trajectory of one latent, or of one window, tile or region of it: its calls, and the full steps to reuse."""

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
from galaxydit.runtime.host_copy import HostCopy
from galaxydit.runtime.identity import CallIdentity, KnownValue
from galaxydit.runtime.step import Noise

REMEMBERED = 7  # steps whose branches are known
RECENT = 4  # steps after which a branch that is not called any more is forgotten
SOLVER = 2  # steps whose outputs together move a latent, as in Heun's method
# By distance of the weights, a step moves a latent at most this many times as far as earlier steps did; and this many
# times its own norm in the first step, and where the guidance differs from that of the step before.
FURTHER, FASTEST = 2.0, 2.5
CERTAIN = 4.0  # standard deviations of the noise that the clean prediction in it must have to be seen
DISTINCT = 2.0  # the next nearest trajectory must lie this many times as far


class Move(NamedTuple):
    """A latent's way to `step`: its `weights` before and after, and whether the guidance has just changed."""

    step: int
    before: tuple[float, float]
    after: tuple[float, float]
    is_guided_anew: bool
    is_first: bool
    is_corrected: bool = False  # a correction of several reused steps moved the latent, too


@dataclass
class TransformerState:
    """State of one transformer in one trajectory, by branch or decision scope, and by index of the sample.

    Attributes:
        samples, was_guided: 0 until a call is divided into samples; None where the pipeline does not say if it guides.
        rows, conditions, shapes: the last call's batch size and other arguments; the last full step's output shapes.
        history, missed: cached full steps, oldest first, and the steps reused since the last one.
        errors: relative error of a prediction at the last full step, on the device, until the next decision reads it.
        slope_errors: step, key, and squared errors at order 1 and 0, of full steps not judged yet.
    """

    samples: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    shapes: dict[str, tuple[torch.Size, ...]] = field(default_factory=dict)
    history: dict[tuple[str, int], tuple[CachedStep, ...]] = field(default_factory=dict)
    missed: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    proxies: dict[str, Tensor] = field(default_factory=dict)
    controllers: dict[tuple[str, int], Controller] = field(default_factory=dict)
    decisions: dict[str, tuple[Decision, ...]] = field(default_factory=dict)
    errors: dict[tuple[str, int], Tensor] = field(default_factory=dict)
    conditions: dict[str, dict[str, KnownValue]] = field(default_factory=dict)
    was_guided: bool | None = None
    slope_errors: list[tuple[int, tuple[str, str, int], HostCopy]] = field(default_factory=list)
    slope_failures: dict[tuple[str, str, int], tuple[bool, ...]] = field(default_factory=dict)

    def keep_only(self, branches: set[str]) -> None:
        """Drop other branches, whose full steps are too old, and the decisions of the step before."""
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
        """Whether all of these branches have a full step to reuse, and the last one is the same step for each."""
        last = {steps[-1].step for (name, index), steps in self.history.items() if name in branches and index == sample}
        return len(last) == 1 and all((name, sample) in self.history for name in branches)

    def release(self, branch: str, scope: str) -> None:
        """Drop a branch's tensors after its call of the last step, because the decoder needs the memory."""
        self.history = {key: steps for key, steps in self.history.items() if key[0] != branch}
        self.conditions.pop(branch, None)
        self.proxies.pop(scope, None)

    def bytes_held(self) -> int:
        kept = [tensor for steps in self.history.values() for step in steps for tensor in (step.tensor, step.side)]
        return sum(tensor.nbytes for tensor in (*kept, *self.proxies.values()) if tensor is not None)


@dataclass(eq=False)
class Trajectory:
    """The calls of one latent: its latest step, its latent there, and the state of each transformer by component.

    Attributes:
        step, sigma, weights: latest step (-1 and infinity before the first), and weights of clean video and noise.
        cleans: under a scheduler that draws noise, each branch's clean prediction at the last full step, float32.
        seen, pending: (component, branch) of the last steps' calls, newest last; distances not read yet.
        guidance_scale, steady_since: 1 where not said; first of the last steps with equal branches and scale.
        speed, stride: largest latent distance by distance of `weights`; latest distance of `weights`.
        unheld: weight of the clean video that the first latent, which is noise alone, does not have.
        used, is_certain: number of the session's latest call here; False where the noise hides the video.
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
    corrected: int = -1  # latest step whose output was corrected
    pending: list[tuple[Tensor, "Move"]] = field(default_factory=list)
    states: dict[str, TransformerState] = field(default_factory=dict)
    unheld: float = 0.0
    resized: int = 0  # number of calls with another batch size than the branch's last
    used: int = 0
    is_certain: bool = True

    def awaits(self, call: CallIdentity) -> bool:
        """Whether `call` may be another branch of the current step: the same latent, not yet called."""
        if call.info.step != self.step or (call.component, call.branch) in self.seen[-1] or self.latent is None:
            return False
        rows = min(len(self.latent.tensor), len(call.latent))  # calls of several branches have more rows
        known = self.latent if len(self.latent.tensor) == len(call.latent) else KnownValue(self.latent.tensor[:rows])
        return not call.shares_latent or known.is_unchanged(call.latent if known is self.latent else call.latent[:rows])

    def precedes(self, call: CallIdentity) -> bool:
        """Whether `call` may be the first of the next step, by all but the values of its latent."""
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
        """On the device, for a call at the next step: squared distance of its latent from this one; its squared norm;
        the largest share of a clean prediction in it, over branches and rows; and that prediction's norm."""
        assert self.latent is not None
        rows = min(len(self.latent.tensor), len(call.latent))
        now, before = call.latent[:rows].float(), self.latent.tensor[:rows].float()
        if not self.cleans:
            sums = sum_over(group, torch.stack([(now - before).square().sum(), now.square().sum()]))
            return torch.nn.functional.pad(sums, (0, 2))
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
        is_guided_anew = self.step - self.steady_since < SOLVER or (
            len(self.seen) > 1 and self.seen[-1] != self.seen[-2]
        )
        step, is_corrected = call.info.step, self.corrected == self.step
        return Move(step, self.weights, call.weights, is_guided_anew, self.step == first, is_corrected)

    def continues(self, measured: Sequence[float], move: "Move", noise: "Noise") -> bool:
        """Whether a latent with these distances (`measure`) comes next; if so, learn its speed. Under drawn noise it
        must hold half of the last clean prediction; else `FURTHER` and the constants beside it limit its distance."""
        moved, size, share, norm = measured
        moved, size, distance = moved**0.5, size**0.5, math.dist(move.before, move.after)
        if noise is not Noise.NONE and noise is not Noise.UNKNOWN and self.cleans:
            held = move.after[0] - self.unheld
            self.is_certain = held * norm > CERTAIN * move.after[1]
            if not self.is_certain or share >= held / 2:
                return True
        if noise is Noise.DRAWN:
            return not self.cleans
        is_any = move.is_guided_anew or not self.speed
        fastest = max((1 + move.is_corrected) * FURTHER * self.speed, FASTEST * size if is_any else size)
        if noise is Noise.UNKNOWN:  # drawn noise moves a latent farther than denoising does
            fastest = min(fastest, FASTEST * size)
        reach = fastest * max(distance, self.stride)
        if not moved <= (max(reach, size / 2) if move.is_first and noise is not Noise.UNKNOWN else reach):
            return False
        self.speed = max(self.speed, moved / distance if distance > 1e-6 else 0.0)
        self.stride, self.is_certain = distance, True
        return True

    def enter(self, call: CallIdentity, branch: str) -> TransformerState:
        component, info, before = call.component, call.info, self.states.get(call.component)
        other_rows = before is not None and before.rows.get(branch, len(call.latent)) != len(call.latent)
        if before is not None and other_rows:
            # Guidance in one batch was switched off or on, so cached tensors have another batch size.
            self.states[component] = TransformerState(before.samples, controllers=before.controllers)
            self.cleans.clear()
            self.resized += 1
        if info.step != self.step:
            for name, state in self.states.items():
                called = {branch for component, branch in (self.seen[-1] if self.seen else ()) if component == name}
                state.keep_only(self.branches(name) if called else set())
            other_guidance = other_rows or call.guidance_scale != self.guidance_scale
            if other_guidance or (len(self.seen) > 1 and self.seen[-1] != self.seen[-2]):
                self.steady_since = info.step if other_guidance else self.step
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
        return {branch for step in list(self.seen)[-steps:] for name, branch in step if name == component}

    def expected_branches(self, component: str) -> set[str]:
        """Branches of the current step: called already, or due by period (every second step) or recency."""
        *before, now = ({branch for name, branch in step if name == component} for step in self.seen)
        for period, known in ((1, RECENT), (2, 5), (3, 7)):
            last = before[-known:]
            if len(last) == known and all(one == other for one, other in zip(last, last[period:], strict=False)):
                return now | last[-period]
        return now | self.branches(component)

    def branch_of(self, call: CallIdentity) -> str:
        """The call's branch; if unnamed, that of equal arguments in the step before, else "call 0" etc. by order."""
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
        self.states.clear()
        self.pending.clear()
        self.cleans.clear()
        self.latent = None
