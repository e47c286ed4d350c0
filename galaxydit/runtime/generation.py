"""One generation: what the plugin keeps of one denoising loop, under its settings, and its report."""

import threading
from dataclasses import dataclass, replace
from typing import Any

from galaxydit.config import GalaxyDiTConfig
from galaxydit.outcome import Goal
from galaxydit.report import CallRecord, Report
from galaxydit.runtime.call import Call, StepInfo
from galaxydit.runtime.guidance import UNCONDITIONAL
from galaxydit.runtime.history import History
from galaxydit.runtime.loop import Loop
from galaxydit.runtime.source import Differences
from galaxydit.runtime.streams import clocks_of
from galaxydit.runtime.window import Window
from galaxydit.schedulers import Noise, noise_of
from galaxydit.stopwatch import DECODED, FIRST, LAST, Stopwatch


@dataclass(frozen=True)
class Terms:
    """The settings of a generation, and what its report says about them.

    Attributes:
        notes, warnings: sentences for every report; `warnings` are also raised as Python warnings.
        differences: from the conditions of the profile; None without a profile.
        goal: None if the user passed a `GalaxyDiTConfig`.
    """

    config: GalaxyDiTConfig
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    differences: Differences | None = None
    goal: Goal | None = None


class Generation:
    """The state of one loop; a new object each, so that no state leaks into the next loop.

    Attributes:
        owner: the attachment whose settings it has.
        first, step: the first step that runs, and the latest; `step` is -1 before the first.
        noise, reuses_clean: whether steps draw noise; whether clean predictions are reused where they may.
        cannot_reuse: why no step can be reused any more, or "".
        clocks: one for each output stream; a single one where all have equal noise levels.
        watch, metered: its clock; the stopwatch that reads the energy counter, its own or the caller's of the pipeline.
        text_seconds, bytes_held: text encoding before the first call; peak bytes kept between calls.
    """

    def __init__(
        self,
        loop: Loop,
        owner: Any,
        terms: Terms,
        info: StepInfo,
        watch: Stopwatch,
        metered: Stopwatch | None = None,
        text_seconds: float = 0.0,
    ) -> None:
        self.loop = loop
        self.owner = owner
        self.config = terms.config
        self.goal = terms.goal
        self.watch = watch
        self.metered = metered or watch
        self.text_seconds = text_seconds
        self.first = info.step
        self.step = -1
        self.steps = info.steps
        self.thread = threading.get_ident()
        self.scheduler = loop.scheduler
        self.noise = noise_of(loop.scheduler)
        self.clocks = clocks_of(loop.pairing.steppers or (loop.scheduler,), info.steps, info.step)
        self.reuses_clean = True
        self.cannot_reuse = ""
        self.finished = False
        self._steps: dict[str, int] = {}  # the latest by window
        self.histories: dict[tuple[str, str], History] = {}  # by component and window
        self.calls: list[CallRecord] = []
        self.notes: list[str] = []
        self.guidance: dict[str, float] = {}  # scale of the first call by component
        self.bytes_held = 0

    @property
    def is_metered_here(self) -> bool:
        return self.metered is self.watch

    @property
    def order(self) -> int:
        """Order of predictions: 0 under drawn noise, where a slope would be the difference of two draws."""
        return 0 if self.noise is Noise.DRAWN else self.config.order

    @property
    def sigmas(self) -> tuple[float, ...] | None:
        """Noise level of each step, by the first stream's scheduler; None where unknown."""
        return self.clocks[0].sigmas

    @property
    def is_under_way(self) -> bool:
        return not self.finished and not self.loop.is_over

    def report(self) -> Report:
        energy = self.metered.energy()
        end_to_end = None
        decoded = self.watch.seconds(FIRST, DECODED)
        if decoded is not None:
            end_to_end = self.text_seconds + decoded
        elif energy is not None:
            energy = replace(energy, end_to_end=None)  # the video is not decoded yet
        return Report(
            config=self.config,
            steps=self.steps,
            calls=tuple(self.calls),
            notes=tuple(self.notes),
            bytes_held=self.bytes_held,
            denoise_seconds=self.watch.seconds(FIRST, LAST),
            end_to_end_seconds=end_to_end,
            energy_joules=energy,
            goal=self.goal,
        )

    def holds_now(self) -> int:
        return sum(history.bytes_held() for history in self.histories.values())

    def enter(self, call: Call, window: Window) -> History:
        """The history of a call's transformer; a new step drops branches that are not called any more."""
        if self._steps.get(window.name) != call.info.step:
            self._steps[window.name] = call.info.step
            for (component, name), history in self.histories.items():
                if name == window.name:
                    history.keep_only(window.recent_branches(component))
        # Windows may be at different steps.
        self.step = max(self.step, call.info.step)
        if self.goal is not None and self.goal.verified is not None:
            self._check_promise(call)
        history = self.histories.setdefault((call.component, call.window), History())
        history.enter(call.branch, len(call.latent))
        return history

    def withdraw_promise(self, why: str) -> None:
        """Make the expected PSNR unknown, because a verification holds only for what was verified."""
        if self.goal is not None:
            self.goal = self.goal.unverified(why)

    def changed_guidance(self, call: Call) -> str:
        """Why the guidance of a call is not what its scale said when the generation began, else ""."""
        scale = self.guidance.setdefault(call.component, call.guidance_scale)
        if call.guidance_scale != scale:
            return "the guidance scale changed during the generation, and the profile was measured at a constant one"
        if call.branch == UNCONDITIONAL and call.inputs.get("guidance") is not None:
            return "guidance has a second branch beside the embedded scale (true_cfg_scale), which is not told"
        return ""

    def begin_late(self, window: str, first: int) -> None:
        """The loop turned out to have begun later than its first call showed."""
        self.first = first
        for clock in self.clocks:
            clock.first = first
        for (_, name), history in self.histories.items():
            if name == window:
                history.forget(self.steps)  # all of them, because they were stored under other steps

    def forget(self, window: str, before: int) -> None:
        """Drop the full steps of a window before a step."""
        for (_, name), history in self.histories.items():
            if name == window:
                history.forget(before)

    def _check_promise(self, call: Call) -> None:
        if call.window:
            self.withdraw_promise("the PSNR of windows was not verified")
        elif text := self.changed_guidance(call):
            self.withdraw_promise(text)
            self.note(text)

    def note(self, text: str) -> None:
        if not self.finished and text not in self.notes:
            self.notes.append(text)

    def release(self) -> None:
        self.histories.clear()
        self.finished = True
