"""One method of `timed_methods.METHODS` on its own copy of the transformer: run, time and count its denoising steps."""

import copy
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import torch
from diffusers import WanTransformer3DModel

from galaxydit.eval.latency.model_shapes import ForcedSteps
from galaxydit.eval.latency.random_models import Inputs
from galaxydit.eval.latency.timed_methods import METHODS, ForcedScheduler
from galaxydit.runtime.guidance import CONDITIONAL, UNCONDITIONAL, guide
from galaxydit.stopwatch import BEGIN, END, Stopwatch

THREAD_TIME = "thread time"  # of one thread, which other processes do not lengthen


def clock_name(device: torch.device) -> str:
    """Name of the clock: "CUDA events" on a GPU; on a CPU "thread time" with one thread, else "wall clock"."""
    if device.type == "cuda":
        return "CUDA events"
    if torch.get_num_threads() == 1:
        return THREAD_TIME
    return "wall clock"  # which other processes lengthen


def moment(device: torch.device) -> Any:
    """The moment after the work that has been queued so far; on a GPU an event, so that the host does not wait."""
    if device.type == "cuda":
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(device))
        return event
    if torch.get_num_threads() == 1:
        return time.thread_time()
    return time.perf_counter()


def elapsed_ms(start: Any, end: Any) -> float:
    """Milliseconds between two moments; on a GPU the device has to have reached both."""
    if isinstance(start, torch.cuda.Event):
        return start.elapsed_time(end)
    return 1000 * (end - start)


BRANCHES = (CONDITIONAL, UNCONDITIONAL)
GUIDANCE_SCALE = 5.0
BACKEND = "inductor"  # of torch.compile


def sigma_of(step: int) -> float:
    """Noise level of a step: falls enough to extrapolate, and too little to change SeaCache's filter."""
    return 0.5 - 1e-4 * step


@dataclass(frozen=True)
class Timing:
    """The milliseconds of each step of a run, and its memory and joules."""

    milliseconds: list[float]
    peak_bytes: int | None  # weights included; None on a CPU
    bytes_held: int | None  # by the method between steps; None if unknown
    joules: float | None = None  # nan if a reading failed, None without a counter


class TimedTrajectory:
    """A method attached to a copy of a transformer that shares its tensors, so hooks affect no other copy.

    `method` is a key of `timed_methods.METHODS`, `compiled` the copy's blocks.
    """

    def __init__(
        self,
        method: str,
        forced: ForcedSteps,
        transformer: WanTransformer3DModel,
        inputs: Inputs,
        compiled: bool = False,
    ) -> None:
        self.forced = forced
        self.inputs = inputs
        # `deepcopy` takes these as copied already.
        tensors = {id(tensor): tensor for tensor in [*transformer.parameters(), *transformer.buffers()]}
        self.transformer: WanTransformer3DModel = copy.deepcopy(transformer, tensors)
        self.device = inputs.latents[0].device
        if compiled:
            self.transformer.compile_repeated_blocks(backend=BACKEND)
        self.scheduler = ForcedScheduler()
        pipe = SimpleNamespace(transformer=self.transformer, scheduler=self.scheduler)
        self._attachment = METHODS[method](pipe, forced)
        self.attached = self._attachment.__enter__()

    def run(self, steps: int) -> Timing:
        """The timing of the first `steps` steps; the method is reset afterwards."""
        on_gpu = self.device.type == "cuda"
        before = 0
        if on_gpu:
            before = torch.cuda.memory_allocated(self.device)
            torch.cuda.reset_peak_memory_stats(self.device)
        watch = Stopwatch(self.device)
        watch.mark(BEGIN)
        moments = [moment(self.device)]
        for _ in self._denoised(steps):
            moments.append(moment(self.device))
        watch.mark(END)
        milliseconds = [elapsed_ms(start, end) for start, end in pairwise(moments)]
        peak = None
        held = self.attached.bytes_held()
        if on_gpu:
            peak = torch.cuda.max_memory_allocated(self.device)
            if held is None:
                held = max(0, torch.cuda.memory_allocated(self.device) - before)
        self._reset()
        return Timing(milliseconds, peak, held, watch.joules(BEGIN, END))

    def count_syncs(self, steps: int) -> float | None:
        """Host synchronizations that PyTorch reports per step; None on a CPU."""
        if self.device.type != "cuda":
            return None
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                list(self._denoised(steps))
            finally:
                torch.cuda.set_sync_debug_mode("default")
        self._reset()
        return sum("called a synchronizing" in str(warning.message) for warning in caught) / steps

    def count_blocks(self, steps: int) -> tuple[int, int]:
        """Block evaluations of a full and a reused step, both branches; not for compiled blocks.

        Raises RuntimeError if steps of one kind differ, because then the method did not decide as forced.
        """
        calls: list[object] = []
        counts: dict[str, set[int]] = {"full": set(), "reused": set()}
        with ExitStack() as hooks:
            for block in self.transformer.blocks:
                hooks.enter_context(block.ffn.register_forward_pre_hook(lambda *_: calls.append(None)))
            for is_full in self._denoised(steps):
                counts["full" if is_full else "reused"].add(len(calls))
                calls.clear()
        self._reset()
        for kind, block_counts in counts.items():
            if len(block_counts) > 1:
                raise RuntimeError(f"{kind} steps ran {sorted(block_counts)} blocks: the decisions were not as forced")
        return max(counts["full"]), max(counts["reused"], default=0)

    def _reset(self) -> None:
        (self.attached.reset or self.transformer._reset_stateful_cache)()

    @torch.no_grad()
    def _denoised(self, steps: int) -> Iterator[bool]:
        """Run denoising steps, and yield after each whether it is full.

        The scheduler hands on one of two latents, which changes before a full step.
        """
        which = 1 if 0 in self.forced.full else 0
        self.scheduler.set_timesteps(self.forced.steps)
        try:
            for step in range(steps):
                is_full = step in self.forced.full
                latents = self.inputs.latents[which]
                timestep = self.inputs.timesteps[which]
                context = {"step_index": step, "num_inference_steps": self.forced.steps, "sigma": sigma_of(step)}
                predictions = []
                for branch, text in zip(BRANCHES, self.inputs.text, strict=True):
                    with self.transformer.cache_context(branch, **context):
                        predictions.append(self.transformer(latents, timestep, text, return_dict=False)[0])
                guided = guide(predictions[0], predictions[1], GUIDANCE_SCALE)
                if step + 1 in self.forced.full:
                    which = 1 - which
                self.scheduler.next_latent = self.inputs.latents[which]
                self.scheduler.step(guided, timestep, latents)
                yield is_full
        except Exception:
            self._reset()  # or the methods after this one lack its memory
            raise
