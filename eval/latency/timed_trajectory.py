"""One method on its own copy of the transformer, and how a stretch of a trajectory is run and timed."""

import copy
from dataclasses import dataclass

import torch
from diffusers import WanTransformer3DModel

from galaxydit.eval.latency_clock import StepClock, SyncCounter, allocated_bytes, peak_bytes, start_peak
from galaxydit.eval.latency_methods import METHODS, Attached
from galaxydit.eval.latency_models import Inputs
from galaxydit.eval.latency_plan import Plan

BRANCHES = ("cond", "uncond")
GUIDANCE_SCALE = 5.0


def sigma_of(step: int) -> float:
    """Falls a little from step to step: enough to extrapolate along, too little for a filter to see."""
    return 0.5 - 1e-4 * step


def share_weights(transformer: WanTransformer3DModel) -> WanTransformer3DModel:
    """A copy of the modules on the same tensors: hooks and compilation of one leave the others alone."""
    tensors = {id(tensor): tensor for tensor in [*transformer.parameters(), *transformer.buffers()]}
    return copy.deepcopy(transformer, tensors)


@dataclass(frozen=True)
class Timing:
    """The steps of one stretch: whether each was full, and its milliseconds."""

    kinds: list[bool]
    milliseconds: list[float]
    peak_bytes: int | None
    bytes_held: int | None


class Variant:
    """A method at work on a copy of a transformer; with a backend of torch.compile, its blocks are compiled."""

    def __init__(
        self,
        method: str,
        plan: Plan,
        transformer: WanTransformer3DModel,
        inputs: Inputs,
        *,
        proxy: str,
        backend: str | None = None,
    ) -> None:
        self.plan = plan
        self.inputs = inputs
        self.transformer = share_weights(transformer)
        self.device = inputs.latents[0].device
        if backend is not None:
            self.transformer.compile_repeated_blocks(backend=backend)
        self.attached: Attached = METHODS[method].attach(self.transformer, plan, proxy)

    def run(self, steps: int) -> Timing:
        """The first `steps` steps, timed; what the method keeps is let go afterwards."""
        before = allocated_bytes(self.device)
        start_peak(self.device)
        kinds = self.plan.kinds(steps)
        clock = StepClock(self.device)
        clock.mark()
        for step, which in self._steps(kinds):
            self._denoise(step, which)
            clock.mark()
        milliseconds = clock.milliseconds()
        held = self.attached.bytes_held()
        after = allocated_bytes(self.device)
        if held is None and before is not None and after is not None:
            held = max(0, after - before)
        timing = Timing(kinds, milliseconds, peak_bytes(self.device), held)
        self.attached.reset()
        return timing

    def count_syncs(self, steps: int) -> float | None:
        """How often the host waits for the device in a step, mean over the first `steps`; None on a CPU."""
        counter = SyncCounter(self.device)
        with counter.watching():
            for step, which in self._steps(self.plan.kinds(steps)):
                self._denoise(step, which)
        self.attached.reset()
        return None if counter.count is None else counter.count / steps

    def count_blocks(self, steps: int) -> tuple[float, float]:
        """Block evaluations of a full and of a reused step, both branches together; of an eager variant only."""
        count = 0

        def add(*_: object) -> None:
            nonlocal count
            count += 1

        handles = [block.ffn.register_forward_pre_hook(add) for block in self.transformer.blocks]
        kinds = self.plan.kinds(steps)
        counts: dict[bool, list[int]] = {True: [], False: []}
        for step, which in self._steps(kinds):
            before = count
            self._denoise(step, which)
            counts[kinds[step]].append(count - before)
        for handle in handles:
            handle.remove()
        self.attached.reset()
        for kind, found in counts.items():
            if len(set(found)) > 1:
                name = "full" if kind else "reused"
                raise RuntimeError(f"{name} steps ran {sorted(set(found))} blocks: the decisions were not as forced")
        return float(counts[True][0]), float(counts[False][0]) if counts[False] else 0.0

    def _steps(self, kinds: list[bool]) -> list[tuple[int, int]]:
        """Each step with the index of its input, which changes where the step is full."""
        which, steps = 0, []
        for step, is_full in enumerate(kinds):
            which = 1 - which if is_full else which
            steps.append((step, which))
        return steps

    @torch.no_grad()
    def _denoise(self, step: int, which: int) -> None:
        """One step as a pipeline does it: a call for each branch, guidance, an Euler step (whose result is let go)."""
        latents, timestep = self.inputs.latents[which], self.inputs.timesteps[which]
        predictions = []
        for branch, text in zip(BRANCHES, self.inputs.text, strict=True):
            context = {"step_index": step, "num_inference_steps": self.plan.steps, "sigma": sigma_of(step)}
            with self.transformer.cache_context(branch, **context):
                predictions.append(self.transformer(latents, timestep, text, return_dict=False)[0])
        conditional, unconditional = predictions
        guided = unconditional + GUIDANCE_SCALE * (conditional - unconditional)
        torch.add(latents, guided, alpha=sigma_of(step + 1) - sigma_of(step))
