"""The generations of one acceleration (the plugin attached to one pipeline), and the reports of finished ones."""

import threading
import warnings
from collections import deque
from typing import Any

from torch import Tensor

from galaxydit.context_parallel import token_group
from galaxydit.errors import FullComputeWarning, ProfileWarning
from galaxydit.outcome import shortfall
from galaxydit.policies.policy import Reason
from galaxydit.report import CallRecord, Report
from galaxydit.runtime.call import StepInfo
from galaxydit.runtime.generation import Generation, Terms
from galaxydit.runtime.listener import Listener
from galaxydit.runtime.loop import Loop
from galaxydit.runtime.source import Source
from galaxydit.stopwatch import DECODED, END, FIRST, LAST, Stopwatch

DEFAULT_REPORTS = 16
OTHER_LATENT_AFTERWARDS = (
    "the latent of a step was not the one that scheduler.step had returned (another loop began, or the latent was "
    "rolled, replaced or resized); this was found after the generation"
)


class Session:
    """The generations of one acceleration that no other one has followed, oldest first, and the reports of the others.

    Attributes:
        current: generation of the latest call; None before the first and after `close`.
        text_seconds, text_joules: text encoding since the last generation began, counted for the next one.
        watch: of the caller of the pipeline (`generate`), which reads the energy counter in its place; or None.
        lock: also that of the hooks (`RunningCalls`): with two, finalizers could deadlock.
    """

    def __init__(
        self, source: Source, keep_reports: int | None = DEFAULT_REPORTS, listener: Listener | None = None
    ) -> None:
        self.source = source
        self.listener = listener or Listener()
        self.generations: list[Generation] = []
        self.current: Generation | None = None
        self.text_seconds = 0.0
        self.text_joules = 0.0
        self.watch: Stopwatch | None = None
        self._reports: deque[tuple[Any, Report]] = deque(maxlen=keep_reports)  # with the owner of each
        self.lock = threading.RLock()
        self._warned: set[str] = set()

    def reports(self, owner: Any | None = None) -> list[Report]:
        """The reports of the last generations, by their beginning, of one owner if given; the generation of the latest
        call is the last."""
        with self.lock:
            reports = list(self._reports)
            for generation in self._latest_last():
                reports.append((generation.owner, generation.report()))
        return [report for its_owner, report in reports if owner is None or its_owner is owner]

    def add_text(self, seconds: float, joules: float) -> None:
        """Add text encoding, for the next generation."""
        with self.lock:
            self.text_seconds += seconds
            self.text_joules += joules

    # The life of a generation

    def open(self, loop: Loop, owner: Any, terms: Terms, info: StepInfo, latent: Tensor) -> Generation:
        """The generation of a loop at its first call, of a step and a latent."""
        with self.lock:
            for before in tuple(self.generations):
                if before.finished or before.loop.is_over:
                    self._archive(before)
            watch = Stopwatch(latent.device, id(self), text=self.text_joules)
            watch.mark(FIRST, wait=False, read=self.watch is None)
            generation = Generation(loop, owner, terms, info, watch, self.watch, self.text_seconds)
            self.text_seconds = 0.0
            self.text_joules = 0.0
            self.generations.append(generation)
            self.current = generation
            loop.generation = generation
            self._compare(generation, terms, tuple(latent.shape[1:]))
        return generation

    def _compare(self, generation: Generation, terms: Terms, shape: tuple[int, ...]) -> None:
        """Note what a report says of the settings, and how the generation differs from its profile's conditions."""
        notes: list[str] = []
        warned: list[str] = []
        if terms.differences is not None:
            first = generation.first
            notes, warned = terms.differences(generation.steps, generation.sigmas, self.source, shape, first)
        if notes or warned:
            generation.withdraw_promise("the profile was verified under other conditions, which the notes name")
        for text in (*terms.notes, *notes):
            generation.note(text)
        for text in (*terms.warnings, *warned):
            self.warn_and_note(text, generation, ProfileWarning)

    def _archive(self, generation: Generation) -> None:
        self._finish(generation)
        self._reports.append((generation.owner, generation.report()))
        self.generations.remove(generation)
        if self.current is generation:
            self.current = None

    def _finish(self, generation: Generation) -> None:
        if generation.finished:
            return
        self.check_afterwards(generation)
        report = generation.report()
        text = shortfall(report)
        if text:
            warnings.warn(f"galaxydit: {text}", FullComputeWarning, stacklevel=2)
        generation.release()
        self.listener.add(report)

    def check_afterwards(self, generation: Generation) -> None:
        """Warn if a latent that nobody has compared yet was another one than `step` had returned."""
        reuses = any(call.reused for call in generation.calls)
        if reuses and generation.loop.had_other_latents():
            self.warn_and_note(OTHER_LATENT_AFTERWARDS, generation)

    def end(self, loop: Loop | None) -> None:
        """End the generation of a loop when its pipeline ends: drop its tensors, but keep its report."""
        generation = self.current if loop is None else loop.generation
        if generation is None or generation.finished or generation.thread != threading.get_ident():
            return
        with self.lock:
            # The joules of a video that ranks share are those of all, and here they may not meet.
            if generation.is_metered_here and generation.watch.has(DECODED) and not self._is_shared:
                generation.watch.mark(END, wait=False)
                generation.watch.share(None)
            self._finish(generation)

    def close(self, owner: Any | None = None) -> None:
        """End the generations of an owner, or all; finished ones make room by `keep_reports`, too."""
        with self.lock:
            for generation in self._latest_last():
                if owner is None or generation.owner is owner or generation.finished:
                    self._archive(generation)

    def _latest_last(self) -> list[Generation]:
        """The generations, of which that of the latest call is the last."""
        return sorted(self.generations, key=lambda generation: generation is self.current)

    @property
    def _is_shared(self) -> bool:
        return token_group(self.source.transformer) is not None

    # Calls

    def leave(self, generation: Generation, records: list[CallRecord]) -> None:
        """Record a call, one record a video; the last step waits for the device, so that its time covers all work."""
        with self.lock:
            self.current = generation
            generation.calls += records
            generation.bytes_held = max(generation.bytes_held, generation.holds_now())
            is_last = records[-1].step == generation.steps - 1
            ends_metered = is_last and generation.is_metered_here
            generation.watch.mark(LAST, wait=is_last, read=ends_metered)
            if ends_metered:
                generation.watch.share(token_group(self.source.transformer))

    def leave_unknown(self, generation: Generation, component: str, blocks: int) -> None:
        """Record a call that was not understood, in the generation of its loop."""
        if generation.finished:
            return
        with self.lock:
            step = max(0, generation.step, min(generation.loop.steps_told, generation.steps - 1))
            sigma = generation.calls[-1].sigma if generation.calls else 1.0
            told = (component, "unknown", False, Reason.UNKNOWN_CALL, None, None, float(blocks), blocks)
            generation.calls.append(CallRecord(step, sigma, *told))

    def latest(self) -> Generation | None:
        """The latest generation of this thread that is not finished."""
        thread = threading.get_ident()
        for generation in reversed(tuple(self.generations)):
            if generation.thread == thread and not generation.finished:
                return generation
        return None

    def decoded(self) -> None:
        """Store the end of decoding; called after each part that the VAE decodes, so the last part counts."""
        current = self.current
        # Before the last step, a VAE decodes a preview or another video.
        if current is not None and not current.finished and current.step == current.steps - 1:
            current.watch.mark(DECODED, wait=False, read=False)

    # Words

    def warn_of_later(self, owner: Any) -> None:
        """Note that settings were changed while a generation of an owner is under way."""
        for generation in tuple(self.generations):
            if generation.owner is owner:
                generation.note("settings that were set within this generation hold from the next generation on")

    def warn_and_note(self, text: str, of: Generation | None = None, kind: type[Warning] = FullComputeWarning) -> None:
        """Add a note to a report, by default the current one, and raise it as a Python warning once."""
        noted = of or self.current
        if noted is not None:
            noted.note(text)
        if kind is FullComputeWarning and noted is not None and not noted.config.history_length:
            return  # nothing was to be reused
        self.warn(text, kind)

    def warn(self, text: str, kind: type[Warning] = FullComputeWarning) -> None:
        """Raise a Python warning once."""
        if text not in self._warned:
            self._warned.add(text)
            warnings.warn(f"galaxydit: {text}", kind, stacklevel=2)
