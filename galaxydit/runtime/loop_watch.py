"""Which loop a transformer call belongs to: begun by `set_timesteps` of an observed scheduler, or told by contexts."""

import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from diffusers.hooks.hooks import CacheContext

from galaxydit.families import OutputStream
from galaxydit.runtime.loop import Loop
from galaxydit.runtime.observed_scheduler import observe, schedulers_in, stop_observing
from galaxydit.runtime.undeclared import BETWEEN_STEPS, FAILED, OTHER_THREAD, TWO_LOOPS, UndeclaredError

DECLARE = (
    "accelerate the pipeline whose scheduler steps it, pass scheduler=... or schedulers=[...] to `accelerate`, or, "
    "without a scheduler, call the transformer inside cache_context(name, step_index=..., num_inference_steps=..., "
    "sigma=...)"
)
GIVEN_UP = (
    "an earlier loop without a scheduler was left before its last step and may go on; call "
    "transformer._reset_stateful_cache() when a loop is given up"
)


def next_latent(result: Any) -> Any:
    """The next latent in what `step` returned: a tensor, a tuple, or an output class of diffusers."""
    if isinstance(result, tuple):
        return result[0] if result else None
    return getattr(result, "prev_sample", result)


class LoopWatch:
    """Observes the schedulers of one acceleration, and keeps the loop of each thread.

    `pipe` may exchange its schedulers. `given` are schedulers that the user names, as of a bare transformer or of
    another pipeline on the same transformer; a tuple has one for each output of the transformer.
    """

    def __init__(self, pipe: Any, given: Iterable[Any] = ()) -> None:
        self._pipe = pipe
        self._groups: list[tuple[Any, ...]] = []
        for group in given:
            self._groups.append(group if isinstance(group, tuple) else (group,))
        self._given = tuple(chain.from_iterable(self._groups))
        self._schedulers = schedulers_in(pipe, self._given)
        self._copies: weakref.WeakSet[Any] = weakref.WeakSet()
        self._named: weakref.WeakSet[Any] = weakref.WeakSet()  # by the user, and their copies
        for name, scheduler in self._schedulers.items():
            if name.startswith("schedulers["):
                self._named.add(scheduler)
        self._loops: dict[int, Loop] = {}  # by thread
        self._given_up: set[int] = set()  # threads that left a loop without a scheduler
        self._lock = threading.RLock()
        for scheduler in self._schedulers.values():
            observe(scheduler, self)
        for scheduler in self._given:
            self._adopt(scheduler)

    def remove(self) -> None:
        for scheduler in [*self._schedulers.values(), *self._copies]:
            stop_observing(scheduler, self)

    @property
    def loop(self) -> Loop | None:
        """The loop of this thread."""
        return self._loops.get(threading.get_ident())

    # What an observed scheduler tells

    def before(self, method: str, scheduler: Any, arguments: Mapping[str, Any]) -> None:
        if method != "step":
            return
        loop = self._stepped_by(scheduler)
        if loop is not None:
            loop.before_step(scheduler, arguments)

    def after(self, method: str, scheduler: Any, arguments: Mapping[str, Any], result: Any) -> None:
        if method == "set_timesteps":
            self._begin(scheduler)
            return
        loop = self._loop_of(scheduler)
        if loop is None:
            return
        if method == "step":
            loop.after_step(scheduler, next_latent(result))
            loop.noted_timestep = self._timestep_of(loop)
        else:
            loop.after_scaling(scheduler, arguments.get("sample"), result)

    def failed(self, method: str, scheduler: Any) -> None:
        if (loop := self._loop_of(scheduler)) is not None:
            loop.undeclare(FAILED.format(what=f"{method} of its scheduler"))

    def copied(self, scheduler: Any, copy: Any) -> None:
        self._copies.add(copy)
        if scheduler in self._named:
            self._named.add(copy)
        for loop in tuple(self._loops.values()):
            if id(scheduler) in loop.trajectories:
                loop.join(copy)

    def _loop_of(self, scheduler: Any) -> Loop | None:
        """The loop that a scheduler has begun, of this thread if there is one."""
        own = self.loop
        loops = [*self._loops.values()] if own is None else [own, *self._loops.values()]
        for loop in loops:
            if id(scheduler) in loop.trajectories:
                return loop
        return None

    def _stepped_by(self, scheduler: Any) -> Loop | None:
        """The loop that a scheduler steps. If this thread has another one, both take turns."""
        own = self.loop
        loop = self._loop_of(scheduler)
        if loop is not None and loop is not own:
            loop.undeclare(OTHER_THREAD)
        if own is not None and loop is None:
            own.undeclare(TWO_LOOPS)
        return loop

    def _begin(self, scheduler: Any) -> None:
        with self._lock:
            own = self.loop
            if own is not None and own.is_fresh:
                own.join(scheduler)  # pipelines set the timesteps twice, or of several schedulers
                if scheduler is self._main:
                    own.scheduler = scheduler
                return
            for loop in tuple(self._loops.values()):
                if id(scheduler) in loop.trajectories and loop is not own:
                    loop.undeclare(OTHER_THREAD)
            begun = Loop(scheduler)
            if own is not None:
                begun.outer_timestep = self._timestep_of_pipe()
            self._open(begun)

    @property
    def _main(self) -> Any | None:
        return next(iter(self._schedulers.values()), None)

    def _open(self, loop: Loop) -> Loop:
        alive = {thread.ident for thread in threading.enumerate()}
        for thread in list(self._loops):
            if thread not in alive:
                self._loops.pop(thread).is_over = True
        if self.loop is not None:
            self.loop.is_over = True
        self._loops[threading.get_ident()] = loop
        return loop

    def _adopt(self, scheduler: Any) -> None:
        """Begin a loop whose `set_timesteps` was called before the scheduler was observed, if it has not stepped."""
        has_begun = getattr(scheduler, "num_inference_steps", None) is not None
        if has_begun and getattr(scheduler, "step_index", None) is None:
            self._begin(scheduler)

    def _refresh(self) -> None:
        """Observe a scheduler that took the place of another one in the pipeline."""
        for name, known in tuple(self._schedulers.items()):
            now = getattr(self._pipe, name, known)
            if now is known or not hasattr(now, "set_timesteps"):
                continue
            stop_observing(known, self)
            observe(now, self)
            self._schedulers[name] = now
            if (loop := self.loop) is not None:
                loop.is_over = True
                del self._loops[threading.get_ident()]
            self._adopt(now)

    # What a call tells

    def find(self, context: CacheContext | None) -> Loop:
        """The loop of a call of this thread. Raises UndeclaredError where none is declared."""
        self._refresh()
        if not self._schedulers:
            return self._told_by(context)
        loop = self.loop
        if loop is None or loop.is_over:
            raise UndeclaredError(f"no observed scheduler has begun its loop, so it is computed in full: {DECLARE}")
        now = self._timestep_of(loop)
        if loop.outer_timestep is not None and self._timestep_of_pipe() is not loop.outer_timestep:
            if loop.windows or loop.scheduler in self._named:
                loop.undeclare(BETWEEN_STEPS)  # the pipeline's own loop goes on
            loop.outer_timestep = None  # else it was no callback, but the pipeline's next chunk
        elif loop.outer_timestep is None and loop.noted_timestep is not None and loop.noted_timestep is now:
            loop.undeclare(BETWEEN_STEPS)
        return loop

    def pair(self, loop: Loop, outputs: Sequence[OutputStream]) -> None:
        """Tell a loop, before its first call, which scheduler steps each output of the transformer."""
        if len(outputs) == 1 or loop.pairing.steppers or loop.scheduler is None:
            return
        named = [self._schedulers.get(output.scheduler) for output in outputs]
        for group in self._groups:
            if len(group) > 1 and group[0] is loop.scheduler:
                named = list(group)
        loop.pair(named[1:])

    def _told_by(self, context: CacheContext | None) -> Loop:
        """Without a scheduler, contexts tell the steps: a lower one begins a loop."""
        if context is None or None in (context.step_index, context.num_inference_steps, context.sigma):
            raise UndeclaredError(f"nothing tells the step of a call, so it is computed in full: {DECLARE}")
        loop, step = self.loop, context.step_index
        if loop is not None and not loop.is_over:
            reached = max((window.step for window in loop.windows.values()), default=-1)
            if step is None or step >= reached:
                return loop
            if loop.steps is not None and reached < loop.steps - 1:
                self._given_up.add(threading.get_ident())
        begun = self._open(Loop(None, context.num_inference_steps))
        if threading.get_ident() in self._given_up:
            begun.undeclare(GIVEN_UP)
        return begun

    def end(self) -> None:
        """The loop of this thread has ended."""
        self._given_up.discard(threading.get_ident())
        loop = self._loops.pop(threading.get_ident(), None)
        if loop is not None:
            loop.is_over = True

    def _timestep_of(self, loop: Loop) -> Any | None:
        """The pipeline's note of its timestep, for a loop of its own scheduler; None for one that the user named."""
        if loop.scheduler in self._named:
            return None
        return self._timestep_of_pipe()

    def _timestep_of_pipe(self) -> Any | None:
        """The pipeline's own note of its timestep: another object in each step."""
        return getattr(self._pipe, "_current_timestep", None)
