"""Upper limit of methods that compute the full steps of the plugin's schedule and predict the others.

A float32 copy of the transformer computes reused steps; the 16-bit rounding error of the last full step is added,
because every prediction from cached outputs repeats it. The method saves no time.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

from diffusers import DiffusionPipeline
from torch import nn

from galaxydit.calibration.full_precision import widen
from galaxydit.eval.methods.caches import AdapterHook, hooked, restored
from galaxydit.eval.methods.fewer_steps import scheduled_steps
from galaxydit.eval.methods.galaxydit_methods import AT_SPEEDUPS
from galaxydit.eval.methods.method import Setting, method
from galaxydit.pipelines.compute_counter import only_transformer
from galaxydit.pipelines.trial import Attached


class ExactPrediction(AdapterHook):
    """Outside `full_steps`, the output of the copy `exact` plus the rounding error of the last full step."""

    def __init__(self, exact: nn.Module, full_steps: Collection[int]) -> None:
        super().__init__()
        self.exact = exact
        self.full_steps = frozenset(full_steps)

    def new_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        state = self.state_manager.get_state()
        step = state["step"] = state.get("step", -1) + 1
        if step not in self.full_steps:
            exact = self.exact(*args, **kwargs)[0] + state["rounding"]
            return (exact.to(kwargs["hidden_states"].dtype),)
        (output,) = self.fn_ref.original_forward(*args, **kwargs)
        if step + 1 not in self.full_steps:
            state["rounding"] = output.float() - self.exact(*args, **kwargs)[0]
        return (output,)


@method("exact predictions", "ablation", lambda steps: [{**setting, "of": steps} for setting in AT_SPEEDUPS])
@contextmanager
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Iterator[Attached]:
    transformer = only_transformer(pipe)
    exact = deepcopy(transformer).float()
    exact.register_forward_pre_hook(widen, with_kwargs=True)
    hook = ExactPrediction(exact, scheduled_steps(pipe, setting["speedup"], setting["of"]))
    with restored(pipe), hooked(transformer, [(transformer, hook)]):
        yield Attached(lambda: 0, hook.state_manager.reset)
