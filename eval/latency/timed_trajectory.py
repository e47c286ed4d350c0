"""One method of `timed_methods.METHODS` on its own copy of the transformer: run, time and count its denoising steps.

A full step runs all blocks of the transformer, a reused step reuses earlier outputs. The input of a step forces which
of the two it is.
"""

import copy
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from types import SimpleNamespace

import torch
from diffusers import WanTransformer3DModel

from galaxydit.clock import synchronize
from galaxydit.energy import difference, read
from galaxydit.eval.latency.device_clock import StepClock
from galaxydit.eval.latency.latency_settings import ForcedSteps
from galaxydit.eval.latency.random_models import Inputs
from galaxydit.eval.latency.timed_methods import METHODS

BRANCHES = ("cond", "uncond")
GUIDANCE_SCALE = 5.0
BACKEND = "inductor"  # of torch.compile


def sigma_of(step: int) -> float:
    """The sigma (noise level) of a step: 0.5 at step 0, and 0.0001 less at each next step.

    It falls enough to extrapolate, and too little to change SeaCache's filter.
    """
    return 0.5 - 1e-4 * step


@dataclass(frozen=True)
class Timing:
    """The milliseconds of each step of a run, and the memory and joules of the run.

    Attributes:
        peak_bytes: peak memory of the device, weights included; None on a CPU.
        bytes_held: bytes that the method keeps between steps; None if neither the method nor a GPU tells them.
        joules: energy of the device in the run; nan if a reading failed, None without an energy counter.
    """

    milliseconds: list[float]
    peak_bytes: int | None
    bytes_held: int | None
    joules: float | None = None


class TimedTrajectory:
    """A method attached to a copy of a transformer, to run denoising steps.

    The copy has its own modules but shares the tensors of `transformer`, so hooks and compilation affect no other copy.

    Args:
        method: a key of `timed_methods.METHODS`, such as "plain".
        forced: number of steps, and indices of the steps that have to be full.
        transformer: the transformer that is copied.
        inputs: two latents, each with its timestep, between which the steps switch, and the text embedding of each
            guidance branch.
        compiled: whether torch.compile compiles the blocks of the copy.
    """

    def __init__(
        self,
        method: str,
        forced: ForcedSteps,
        transformer: WanTransformer3DModel,
        inputs: Inputs,
        compiled: bool = False,
    ) -> None:
        self.forced, self.inputs = forced, inputs
        tensors = {id(tensor): tensor for tensor in [*transformer.parameters(), *transformer.buffers()]}
        self.transformer: WanTransformer3DModel = copy.deepcopy(transformer, tensors)
        self.device = inputs.latents[0].device
        if compiled:
            self.transformer.compile_repeated_blocks(backend=BACKEND)
        self._attachment = METHODS[method](SimpleNamespace(transformer=self.transformer), forced)
        self.attached = self._attachment.__enter__()

    def run(self, steps: int) -> Timing:
        """The timing of the first `steps` steps, which are run once. Afterwards the method is reset."""
        on_gpu = self.device.type == "cuda"
        before = torch.cuda.memory_allocated(self.device) if on_gpu else 0
        if on_gpu:
            torch.cuda.reset_peak_memory_stats(self.device)
        synchronize(self.device)
        before_joules, clock = read(self.device), StepClock(self.device)
        for _ in self._denoised(steps):
            clock.mark()
        milliseconds = clock.milliseconds()
        joules = difference(before_joules, read(self.device))
        held = self.attached.bytes_held()
        if held is None and on_gpu:
            held = max(0, torch.cuda.memory_allocated(self.device) - before)
        peak = torch.cuda.max_memory_allocated(self.device) if on_gpu else None
        self._reset()
        return Timing(milliseconds, peak, held, joules)

    def count_syncs(self, steps: int) -> float | None:
        """Host synchronizations that PyTorch reports per step, mean over the first `steps` steps; None on a CPU."""
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
        """Block evaluations of a full step and of a reused step (0 if none ran), both guidance branches together.

        Runs the first `steps` steps; not for compiled blocks. Raises RuntimeError if steps of one kind differ in their
        block evaluations, because then the method did not decide as forced.
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
        """Run the first `steps` denoising steps, and yield after each whether it is one of the full steps.

        A step computes what a pipeline's step does: a transformer call for each guidance branch, guidance and an Euler
        step. But the result of the Euler step is dropped, and the input of each step is one of the two latents in
        `inputs`, with its timestep: a reused step gets the same latent as the step before, a full step the other one.
        """
        which = 0
        try:
            for step in range(steps):
                is_full = step in self.forced.full
                which = 1 - which if is_full else which
                latents, timestep = self.inputs.latents[which], self.inputs.timesteps[which]
                context = {"step_index": step, "num_inference_steps": self.forced.steps, "sigma": sigma_of(step)}
                predictions = []
                for branch, text in zip(BRANCHES, self.inputs.text, strict=True):
                    with self.transformer.cache_context(branch, **context):
                        predictions.append(self.transformer(latents, timestep, text, return_dict=False)[0])
                conditional, unconditional = predictions
                guided = unconditional + GUIDANCE_SCALE * (conditional - unconditional)
                torch.add(latents, guided, alpha=sigma_of(step + 1) - sigma_of(step))
                yield is_full
        except Exception:
            self._reset()  # or the methods after this one lack its memory
            raise
