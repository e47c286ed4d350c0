"""The trajectory of one latent, or of one window, tile or region of it: its calls, and the full steps to reuse."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from galaxydit.context_parallel import sum_over
from galaxydit.runtime.clean import denoised_part
from galaxydit.runtime.identity import CallIdentity, KnownValue
from galaxydit.runtime.step import Noise
from galaxydit.runtime.transformer_state import TransformerState

REMEMBERED = 7  # steps whose branches are known
RECENT = 4  # steps after which a branch that is not called any more is forgotten
SOLVER = 2  # steps whose outputs together move a latent, as in Heun's method
# By distance of the weights, a step moves a latent at most this many times as far as earlier steps did; this many times
# its own norm in the first step, and where the guidance differs from that of the step before, which multistep solvers
# exaggerate; and this many times its norm where the scheduler is unknown, so that noise may be drawn.
FURTHER, FASTEST, NOISELESS = 2.0, 3.5, 2.5
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

    latent: KnownValue
    step: int = -1
    sigma: float = math.inf
    weights: tuple[float, float] = (0.0, 1.0)
    cleans: dict[str, Tensor] = field(default_factory=dict)
    seen: deque[set[tuple[str, str]]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    guidance_scale: float = 1.0
    steady_since: int = 0
    speed: float = 0.0
    stride: float = 0.0
    corrected: int = -1  # latest step whose output was corrected
    pending: list[tuple[Tensor, Move]] = field(default_factory=list)
    states: dict[str, TransformerState] = field(default_factory=dict)
    unheld: float = 0.0
    resized: int = 0  # number of calls with another batch size than the branch's last
    used: int = 0
    was_held: bool = True  # whether the latest latent held the clean prediction
    is_certain: bool = True

    def awaits(self, call: CallIdentity) -> bool:
        """Whether `call` may be another branch of the current step: the same latent, not yet called."""
        if call.info.step != self.step or (call.component, call.branch) in self.seen[-1]:
            return False
        known, given = self.latent, call.latent
        if len(known.tensor) != len(given):  # calls of several branches have more rows
            rows = min(len(known.tensor), len(given))
            known, given = KnownValue(known.tensor[:rows]), given[:rows]
        return not call.shares_latent or known.is_unchanged(given)

    def precedes(self, call: CallIdentity) -> bool:
        """Whether `call` may be the first of the next step, by all but the values of its latent."""
        return call.info.step == self.step + 1 and call.info.sigma <= self.sigma and self.is_like(call)

    def is_like(self, call: CallIdentity) -> bool:
        """Whether the latent of `call` is of this one's kind."""
        before, now = self.latent.tensor, call.latent
        few, many = sorted((len(before), len(now)))  # guidance in one batch may have been switched off or on
        kinds = [(one.shape[1:], one.dtype, one.device) for one in (before, now)]
        return many % few == 0 and kinds[0] == kinds[1]

    def measure(self, call: CallIdentity, group: Any | None) -> Tensor:
        """On the device, for a call at the next step: squared distance of its latent from this one; its squared norm;
        the largest share of a clean prediction in it, over branches and rows; and that prediction's norm."""
        rows = min(len(self.latent.tensor), len(call.latent))
        now, before = call.latent[:rows].float(), self.latent.tensor[:rows].float()
        moved = torch.stack([(now - before).square().sum(), now.square().sum()])
        if not self.cleans:
            return torch.nn.functional.pad(sum_over(group, moved), (0, 2))
        pairs = [_paired(call.latent, clean) for clean in self.cleans.values()]
        products = [(shown * clean).sum(1) for shown, clean in pairs] + [clean.square().sum(1) for _, clean in pairs]
        sums = sum_over(group, torch.cat([moved, *products]))
        dots, squares = sums[2:].chunk(2)
        shares = dots / squares.clamp_min(torch.finfo(torch.float32).tiny)
        largest = squares.gather(0, shares.argmax(0, keepdim=True)).sqrt()
        return torch.cat([sums[:2], shares.amax(0, keepdim=True), largest])

    def move_to(self, call: CallIdentity, first: int) -> Move:
        step, is_anew = self.step, self.step - self.steady_since < SOLVER or self.has_other_branches
        return Move(call.info.step, self.weights, call.weights, is_anew, step == first, step == self.corrected)

    @property
    def has_other_branches(self) -> bool:
        """Whether the latest step called other branches than the step before."""
        return len(self.seen) > 1 and self.seen[-1] != self.seen[-2]

    def continues(self, measured: Sequence[float], move: Move, noise: Noise) -> bool:
        """Whether a latent with these distances (`measure`) comes next. Where noise may be drawn, it comes next if it
        holds half of the last clean prediction or the noise hides this half, and is uncertain until two steps show it;
        else `FURTHER` and the constants beside it limit its distance, and its speed is learned."""
        moved, size, share, norm = measured
        moved, size, distance = moved**0.5, size**0.5, math.dist(move.before, move.after)
        furthest = max(distance, self.stride)
        if noise in (Noise.POSSIBLE, Noise.DRAWN) and self.cleans:
            half, visible = (move.after[0] - self.unheld) / 2 * norm, CERTAIN * move.after[1]
            is_held = share * norm >= max(half, visible)
            # Once is not enough, because latents that are rolled in each step come back to earlier shifts.
            self.is_certain, self.was_held = is_held and self.was_held, is_held
            if is_held or half <= visible:
                return True
        if noise is Noise.DRAWN:
            return not self.cleans
        is_any = move.is_guided_anew or not self.speed
        fastest = max((1 + move.is_corrected) * FURTHER * self.speed, FASTEST * size if is_any else size)
        if noise is Noise.UNKNOWN:  # drawn noise moves a latent farther than denoising does
            fastest = min(fastest, NOISELESS * size)
        reach = fastest * furthest
        if not moved <= (max(reach, size / 2) if move.is_first and noise is not Noise.UNKNOWN else reach):
            return False
        self.speed = max(self.speed, moved / furthest if furthest > 1e-6 else 0.0)
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
                state.keep_only(self.branches(name) if self.branches(name, 1) else set())
            if other_rows or call.guidance_scale != self.guidance_scale:
                self.steady_since = info.step
            elif self.has_other_branches:
                self.steady_since = self.step
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
        """The branches of a component's calls in the last steps."""
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
        taken = self.branches(call.component, 1) if call.info.step == self.step else set()
        name = f"call {len(taken)}"
        conditions = self.states.get(call.component, TransformerState()).conditions
        free = [known for known in dict.fromkeys((name, *conditions)) if known not in taken]
        same = (known for known in free if known in conditions and not call.changed(conditions[known]))
        return next(same, next(iter(free), name))

    def release(self) -> None:
        self.states.clear()
        self.pending.clear()
        self.cleans.clear()


def _paired(latent: Tensor, clean: Tensor) -> tuple[Tensor, Tensor]:
    """`(rows, values)` of a latent and of a centred clean prediction; guidance in one batch repeats the rows."""
    part = denoised_part(latent.float(), clean.shape)
    assert part is not None  # the clean prediction has the shape of a part of the latent
    rows = max(len(part), len(clean))
    both = (one.flatten(1) for one in (part, clean - clean.mean()))
    shown, centred = (one.repeat(-(-rows // len(one)), 1)[:rows] for one in both)
    return shown, centred
