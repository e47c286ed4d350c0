"""The calls of one latent of a denoising loop, or of one window or tile of it."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from galaxydit.runtime.known_value import KnownValue, changed
from galaxydit.runtime.latent_check import LatentCheck
from galaxydit.runtime.latents import EARLY

REMEMBERED = 7  # steps whose branches are known
RECENT = 4  # steps after which a branch that is not called any more is forgotten
# Periods with which a branch may be called, in steps, and how many steps must have shown it.
PERIODS = ((1, RECENT), (2, 5), (3, 7))
WINDOWS = ("window", "tile")  # with which names of windows begin

Called = tuple[str, str]
"""Component and branch of a call."""


def window_of(name: str) -> str:
    """The window in a name of `cache_context`, such as "window 2" in "window 2/cond"; "" for a branch's name."""
    before, slash, _ = name.rpartition("/")
    if slash:
        return before
    return name if name.startswith(WINDOWS) else ""


@dataclass(eq=False)
class Window:
    """The calls of one latent, or of one window or tile of it.

    Attributes:
        first, step: the first step and the latest; `step` is -1 before the first call.
        is_told: whether its step was told since the latest call.
        schedulers: identities of the schedulers that step it.
        seen: (component, branch) of the last steps' calls, newest last.
        conditions, rows: of the latest call of each branch.
        guidance_scale, steady_since: 1 where not said; first of the last steps with equal branches and scale.
        resized: number of calls with another batch size than the branch's last.
        size: of the latest input, values of one row.
        check: whether the inputs are what the schedulers returned.
        further: latents of outputs after the first, in the latest step.
    """

    name: str
    first: int = 0
    step: int = -1
    is_told: bool = False
    schedulers: list[int] = field(default_factory=list)
    seen: deque[set[Called]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    conditions: dict[Called, dict[str, KnownValue]] = field(default_factory=dict)
    rows: dict[Called, int] = field(default_factory=dict)
    guidance_scale: float = 1.0
    steady_since: int = 0
    resized: int = 0
    size: int = 0
    check: LatentCheck = field(default_factory=LatentCheck)
    further: list[KnownValue] = field(default_factory=list)

    @property
    def is_early(self) -> bool:
        return self.step < self.first + EARLY

    @property
    def has_other_branches(self) -> bool:
        """Whether the latest step called other branches than the step before."""
        return len(self.seen) > 1 and self.seen[-1] != self.seen[-2]

    def branches(self, component: str, steps: int = RECENT) -> set[str]:
        """The branches of a component's calls in the last steps."""
        return _branches_in(list(self.seen)[-steps:], component)

    def expected_branches(self, component: str) -> set[str]:
        """Branches of the current step: called already, or due by period (every second step) or recency."""
        by_step = [_branches_in([called], component) for called in self.seen]
        now = by_step.pop()
        for period, known in PERIODS:
            last = by_step[-known:]
            if len(last) == known and last[period:] == last[:-period]:
                return now | last[-period]
        return now | self.branches(component)

    def recent_branches(self, component: str) -> set[str]:
        """Before the current step: branches of the last steps; none if the step before did not call the component."""
        before = list(self.seen)[:-1]
        if not _branches_in(before[-1:], component):
            return set()
        return _branches_in(before[-RECENT:], component)

    def branch_of(self, component: str, step: int, conditions: Mapping[str, Any]) -> str:
        """The branch of an unnamed call: that of equal arguments in the step before, else "call 0" etc. by order."""
        taken = self.branches(component, 1) if step == self.step else set()
        by_order = f"call {len(taken)}"
        free = [] if by_order in taken else [by_order]
        for name, branch in self.conditions:
            if name == component and branch not in taken and branch not in free:
                free.append(branch)
        for branch in free:
            known = self.conditions.get((component, branch))
            if known is not None and not changed(known, conditions):
                return branch
        return free[0] if free else by_order

    def enter(
        self, called: Called, step: int, conditions: Mapping[str, Any], rows: int, guidance_scale: float
    ) -> tuple[str, ...]:
        """Note a call; the names of its conditions that changed since the step before."""
        component = called[0]
        is_resized = self.rows.get(called, rows) != rows  # guidance in one batch was switched off or on
        if is_resized:
            self.resized += 1
            self._forget(component)
        if step != self.step:
            if is_resized or guidance_scale != self.guidance_scale:
                self.steady_since = step
            elif self.has_other_branches:
                self.steady_since = self.step
            self.guidance_scale = guidance_scale
            self.step = step
            self.is_told = False
            self.check.compared = None
            self.seen.append(set())
            for other in {name for name, _ in self.conditions}:
                self._forget(other, but=self.recent_branches(other))
        self.seen[-1].add(called)
        differing: tuple[str, ...] = ()
        if called in self.conditions:
            differing = changed(self.conditions[called], conditions)
        self.conditions[called] = {name: KnownValue(value) for name, value in conditions.items()}
        self.rows[called] = rows
        return differing

    def _forget(self, component: str, but: Set[str] = frozenset()) -> None:
        """Forget the arguments of a component's branches."""
        for called in list(self.conditions):
            if called[0] == component and called[1] not in but:
                del self.conditions[called]
                self.rows.pop(called, None)

    def are_unmoved(self, further: Sequence[Tensor]) -> bool:
        """Whether the further latents of a new step are those of the step before, as where the sound is not denoised.
        True before any are noted. The host may wait."""
        if not self.further:
            return True  # it is asked after the first step, and again after the second one
        return all(before.is_unchanged(latent) for before, latent in zip(self.further, further, strict=True))

    def note_further(self, further: Sequence[Tensor]) -> None:
        self.further = [KnownValue(latent) for latent in further]


def _branches_in(steps: Iterable[set[Called]], component: str) -> set[str]:
    """The branches of a component's calls in these steps."""
    branches = set()
    for called in steps:
        for name, branch in called:
            if name == component:
                branches.add(branch)
    return branches
