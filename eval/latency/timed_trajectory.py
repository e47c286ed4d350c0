"""One method on its own copy of the transformer: run, time and count its steps."""

import copy
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from types import SimpleNamespace

import torch
from diffusers import WanTransformer3DModel

from galaxydit.eval.compare.method import Attached
from galaxydit.eval.latency.device_clock import StepClock, host_waits
from galaxydit.eval.latency.forced_steps import ForcedSteps
from galaxydit.eval.latency.random_models import Inputs
from galaxydit.eval.latency.timed_methods import METHODS

BRANCHES = ("cond", "uncond")
GUIDANCE_SCALE = 5.0


def sigma_of(step: int) -> float:
    """Sigma of a step: falls enough for extrapolation, and too little for SeaCache's filter to change."""
    return 0.5 - 1e-4 * step


def share_weights(transformer: WanTransformer3DModel) -> WanTransformer3DModel:
    """Copy the modules but share their tensors, so that hooks and compilation do not affect the other copies."""
    tensors = {id(tensor): tensor for tensor in [*transformer.parameters(), *transformer.buffers()]}
    return copy.deepcopy(transformer, tensors)


@dataclass(frozen=True)
class Timing:
    """The milliseconds of each step of a run, and its memory; None if the device or the method does not expose it."""

    milliseconds: list[float]
    peak_bytes: int | None
    bytes_held: int | None


class TimedTrajectory:
    """A method attached to a copy of a transformer; with a backend of torch.compile its blocks are compiled."""

    def __init__(
        self,
        method: str,
        forced: ForcedSteps,
        transformer: WanTransformer3DModel,
        inputs: Inputs,
        *,
        proxy: str,
        backend: str | None = None,
    ) -> None:
        self.forced = forced
        self.inputs = inputs
        self.transformer = share_weights(transformer)
        self.device = inputs.latents[0].device
        if backend is not None:
            self.transformer.compile_repeated_blocks(backend=backend)
        self._attachment = METHODS[method](SimpleNamespace(transformer=self.transformer), forced, proxy)
        self.attached: Attached = self._attachment.__enter__()

    def run(self, steps: int) -> Timing:
        """Run and time the first `steps` steps, then reset the method."""
        on_gpu = self.device.type == "cuda"
        before = torch.cuda.memory_allocated(self.device) if on_gpu else 0
        if on_gpu:
            torch.cuda.reset_peak_memory_stats(self.device)
        clock = StepClock(self.device)
        for _ in self._denoised(steps):
            clock.mark()
        milliseconds = clock.milliseconds()
        held = self.attached.bytes_held()
        if held is None and on_gpu:
            held = max(0, torch.cuda.memory_allocated(self.device) - before)
        peak = torch.cuda.max_memory_allocated(self.device) if on_gpu else None
        self._reset()
        return Timing(milliseconds, peak, held)

    def count_syncs(self, steps: int) -> float | None:
        """Synchronizations of the host per step, mean over the first `steps`; None without CUDA."""
        if self.device.type != "cuda":
            return None
        count = host_waits(lambda: list(self._denoised(steps)))
        self._reset()
        return count / steps

    def count_blocks(self, steps: int) -> tuple[int, int]:
        """Block evaluations of a full and of a reused step, both branches together. Not for compiled blocks."""
        count = 0

        def add(*_: object) -> None:
            nonlocal count
            count += 1

        counts: dict[bool, set[int]] = {True: set(), False: set()}
        with ExitStack() as hooks:
            for block in self.transformer.blocks:
                hooks.enter_context(block.ffn.register_forward_pre_hook(add))
            for is_full in self._denoised(steps):
                counts[is_full].add(count)
                count = 0
        self._reset()
        for is_full, found in counts.items():
            if len(found) > 1:
                kind = "full" if is_full else "reused"
                raise RuntimeError(f"{kind} steps ran {sorted(found)} blocks: the decisions were not as forced")
        return max(counts[True]), max(counts[False], default=0)

    def _reset(self) -> None:
        (self.attached.reset or self.transformer._reset_stateful_cache)()

    def _denoised(self, steps: int) -> Iterator[bool]:
        """Denoise step by step, and yield after each whether it was full. The input changes at full steps."""
        which = 0
        for step in range(steps):
            is_full = step in self.forced.full
            which = 1 - which if is_full else which
            self._denoise(step, which)
            yield is_full

    @torch.no_grad()
    def _denoise(self, step: int, which: int) -> None:
        """One step of a pipeline: a call per branch, guidance and an Euler step, whose result is dropped."""
        latents, timestep = self.inputs.latents[which], self.inputs.timesteps[which]
        predictions = []
        for branch, text in zip(BRANCHES, self.inputs.text, strict=True):
            context = {"step_index": step, "num_inference_steps": self.forced.steps, "sigma": sigma_of(step)}
            with self.transformer.cache_context(branch, **context):
                predictions.append(self.transformer(latents, timestep, text, return_dict=False)[0])
        conditional, unconditional = predictions
        guided = unconditional + GUIDANCE_SCALE * (conditional - unconditional)
        torch.add(latents, guided, alpha=sigma_of(step + 1) - sigma_of(step))
