"""The calls of one latent of a denoising loop, or of one window or tile of it, and the latents it is stepped to."""

from collections import deque
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from galaxydit.context_parallel import sum_over
from galaxydit.runtime.known_value import KnownValue, changed
from galaxydit.runtime.latents import HostCopy, LatentComparison, Returned
from galaxydit.schedulers import counter_of

REMEMBERED = 7  # steps whose branches are known
RECENT = 4  # steps after which a branch that is not called any more is forgotten
EARLY = 2  # first steps, which teach where the latent stands in the transformer's input
WINDOWS = ("window", "tile")  # with which names of windows begin

Called = tuple[str, str]
"""Component and branch of a call."""


def window_of(name: str) -> str:
    """The window in a name of `cache_context`, such as "window 2" in "window 2/cond"; "" for a branch's name."""
    before, slash, _ = name.rpartition("/")
    if slash:
        return before
    return name if name.startswith(WINDOWS) else ""


class Latent(Enum):
    """How a call's latent relates to what `step` returned: as expected, of unknown relation, or another one."""

    EXPECTED, UNKNOWN, BROKEN = range(3)


@dataclass(eq=False)
class Stream:
    """The latents that one scheduler hands on from step to step in this loop.

    Attributes:
        steps: how many were told. index: the scheduler's counter before the latest one.
        returned: by the latest `step`; `replaced` by the step before it.
    """

    scheduler: Any
    steps: int = 0
    index: int | None = None
    returned: Returned | None = None
    replaced: Returned | None = None

    def enter(self) -> None:
        """A step begins. Cosmos sets the index back and steps again: then the second step replaces the first."""
        index = counter_of(self.scheduler)
        if index is not None and index == self.index and self.steps > 0:
            self.returned = self.replaced
            self.steps -= 1
        self.index = index
        self.replaced = self.returned

    def leave(self, latent: Tensor, *, is_whole: bool) -> None:
        self.steps += 1
        counter = counter_of(self.scheduler)
        if self.index is None and counter is not None:
            self.index = counter - 1  # it counts from its first step on
        self.returned = Returned(latent, is_whole=is_whole)

    def step_after(self, first: int) -> int:
        """The next step, if `first` was the first one. DDIM and its like keep no counter."""
        return max(first + self.steps, counter_of(self.scheduler) or 0)  # PNDM counts from 0 wherever it begins


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
        unread: comparisons of latents that nobody has read: how many values were compared, how many are equal, and for
            several inputs, how many were compared of the one with the fewest.
        size: of the latest input, values of one row.
        compared: the input that was compared in this step; branches mostly get one tensor.
        further: latents of outputs after the first, in the latest step.
        latent: by the latest comparison that was read; it had values to compare if `is_comparable`.
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
    comparisons: dict[int, LatentComparison] = field(default_factory=dict)
    unread: list[HostCopy] = field(default_factory=list)
    size: int = 0
    latent: Latent = Latent.EXPECTED
    is_comparable: bool = False
    compared: KnownValue | None = None
    further: list[KnownValue] = field(default_factory=list)

    @property
    def is_early(self) -> bool:
        return self.step < self.first + EARLY

    @property
    def has_other_branches(self) -> bool:
        """Whether the latest step called other branches than the step before."""
        return len(self.seen) > 1 and set(self.seen[-1]) != set(self.seen[-2])

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

    def recent_branches(self, component: str) -> set[str]:
        """Before the current step: branches of the last steps; none if the step before did not call the component."""
        before = list(self.seen)[:-1]
        if not before or all(name != component for name, _ in before[-1]):
            return set()
        return {branch for step in before[-RECENT:] for name, branch in step if name == component}

    def branch_of(self, component: str, step: int, conditions: Mapping[str, Any]) -> str:
        """The branch of an unnamed call: that of equal arguments in the step before, else "call 0" etc. by order."""
        taken = self.branches(component, 1) if step == self.step else set()
        by_order = f"call {len(taken)}"
        known = [branch for name, branch in self.conditions if name == component]
        free = [branch for branch in dict.fromkeys((by_order, *known)) if branch not in taken]
        for branch in free:
            if (component, branch) in self.conditions and not changed(self.conditions[component, branch], conditions):
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
            self.compared = None
            self.seen.append(set())
            for name in {name for name, _ in self.conditions}:
                self._forget(name, but=self.recent_branches(name))
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

    def keeps(self, further: Sequence[Tensor]) -> bool:
        """Whether the further latents of a new step are those of the step before, as where the sound is not denoised.
        The host may wait."""
        known, self.further = self.further, [KnownValue(latent) for latent in further]
        if not known:
            return True  # it is asked after the first step, and again after the second one
        return all(before.is_unchanged(latent) for before, latent in zip(known, further, strict=True))

    def compare(self, latents: Sequence[Tensor], stepped: Sequence[Sequence[Stream]], group: Any | None) -> None:
        """Compare inputs with the latents that the streams of each returned; the host does not wait."""
        if self.compared is not None and self.compared.is_same_object(latents[0]):
            return
        counts = []
        for latent, streams in zip(latents, stepped, strict=True):
            of_input = [self._counts(stream, latent) for stream in streams if stream.returned is not None]
            if of_input:
                counts.append(of_input[0] if len(of_input) == 1 else torch.stack(of_input).sum(0))
        if len(counts) < len(latents):
            return
        self.compared = KnownValue(latents[0])
        together = counts[0]
        if len(counts) > 1:
            of_inputs = torch.stack(counts)
            together = torch.cat((of_inputs.sum(0), of_inputs[:, 0].amin(0, keepdim=True)))
        self.unread.append(HostCopy(sum_over(group, together)))

    def _counts(self, stream: Stream, latent: Tensor) -> Tensor:
        comparison = self.comparisons.setdefault(id(stream.scheduler), LatentComparison())
        assert stream.returned is not None
        return comparison.counts(stream.returned, latent, is_early=self.is_early)
