"""Spectrum (Han et al., arXiv 2603.01623; github.com/hanjq17/Spectrum, its Wan2.1 backend).

The hidden state after the last block is fitted by Chebyshev polynomials T_0 to T_4 of the step, by ridge regression on
all full steps so far, with lambda = 0.1, and forecast in reused steps, whose output head runs. The forecast is mixed
with a linear extrapolation of the last two full steps: the polynomials have weight 1 in the paper; the repository
recommends 0.5 to 1, and its scripts set 0.5.

The first steps are full, 5 of 50 in the repository. Then every floor(N)-th step is full, and each of them adds `growth`
to the `window` N (the paper's alpha): the authors' N = 2 with growth 0.75 and 3 computes 14 and 10 of 50 steps. The
repository rounds steps and coefficients to bfloat16; here they have double precision.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any

import numpy as np
from diffusers import DiffusionPipeline
from diffusers.hooks.hooks import StateManager
from numpy.polynomial import chebyshev
from torch import Tensor, nn

from galaxydit.eval.methods.accumulation import check_branches, share_of_steps
from galaxydit.eval.methods.caches import AdapterHook, BranchState, bytes_in, hooked, restored
from galaxydit.eval.methods.method import Setting, method
from galaxydit.pipelines.trial import Attached
from galaxydit.runtime.recognition import blocks_of, family_of

DEGREE = 4
RIDGE = 0.1  # lambda
WARM_UP = 0.1  # of the steps: the authors' 5 of 50
WEIGHTS = (0.5, 1.0)  # of the polynomials: the repository's scripts, and the paper
PUBLISHED_GROWTHS = (0.75, 3.0)


class ForecastHook(AdapterHook):
    """Hook of one block: a full step runs it, and in a reused step the last block returns the forecast.

    The hooks of all blocks share `states`, which has for each branch the "step" and the "past" full steps with their
    hidden states.
    """

    def __init__(
        self, states: StateManager, full: Collection[int], steps: int, weight: float, is_first: bool, is_last: bool
    ) -> None:
        super().__init__()
        self.state_manager = states
        self.full = frozenset(full)
        self.steps = steps
        self.weight = weight
        self.is_first = is_first
        self.is_last = is_last

    def new_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        state = self.state_manager.get_state()
        if self.is_first:
            state["step"] = state.get("step", -1) + 1
        step = state["step"]
        if step in self.full:
            output = self.fn_ref.original_forward(*args, **kwargs)
            if self.is_last:
                state.setdefault("past", {})[step] = output
            return output
        if self.is_last:
            past: dict[int, Tensor] = state["past"]
            return combined(list(past.values()), forecast_weights(list(past), step, self.steps, self.weight))
        return args[0] if args else kwargs["hidden_states"]


def full_steps(steps: int, first: int, window: float, growth: float) -> list[int]:
    """Indices of the full steps: the `first` ones, then every floor(window)-th, each of which adds `growth` to it."""
    full = list(range(min(first, steps)))
    last = len(full) - 1
    while (last := last + math.floor(window)) < steps:
        full.append(last)
        window = round(window + growth, 3)
    return full


def forecast_weights(full: Sequence[int], step: int, steps: int, weight: float) -> list[float]:
    """Coefficients of the hidden states of the `full` steps in the forecast of `step`, of `steps`."""
    # tau = 2 t / T - 1 in [-1, 1]
    taus = 2 * np.array([*full, step]) / steps - 1
    *design, target = chebyshev.chebvander(taus, DEGREE)
    x = np.array(design)
    # x_t' (X' X + lambda I)^-1 X'
    polynomial = target @ np.linalg.solve(x.T @ x + RIDGE * np.eye(DEGREE + 1), x.T)
    linear = np.zeros(len(full))
    linear[-1] = 1.0
    if len(full) > 1:
        ahead = (step - full[-1]) / (full[-1] - full[-2])
        linear[-2:] = -ahead, 1 + ahead
    mixed: list[float] = (weight * polynomial + (1 - weight) * linear).tolist()
    return mixed


def combined(tensors: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """The weighted sum, in float32 and then in the dtype of the tensors."""
    total = tensors[0].float() * weights[0]
    for tensor, weight in zip(tensors[1:], weights[1:], strict=True):
        total.add_(tensor.float(), alpha=weight)
    return total.to(tensors[0].dtype)


def settings(steps: int) -> list[Setting]:
    """The authors' warm-up and longer ones, their first window and one that starts at 1, for speedups from 1.25 on."""
    growths = {
        (WARM_UP, 1.0): (0.05, 0.1, 0.25),
        (WARM_UP, 2.0): (0.0, 0.1, 0.25, 0.5, 0.75, 1.5, 3.0),
        (0.2, 1.0): (0.05, 0.1, 0.25),
        (0.2, 2.0): (0.0, 0.1, 0.25, 0.5, 0.75, 1.5),
        (0.4, 1.0): (0.1, 0.25),
        (0.4, 2.0): (0.0, 0.25, 0.75),
    }
    grid: list[Setting] = []
    for weight in (0.5, 0.75, 1.0):
        for (share, window), tried in growths.items():
            for growth in tried:
                grid.append(_setting(steps, share_of_steps(steps, share), window, growth, weight))
    return grid


def published_settings(steps: int) -> list[Setting]:
    first = share_of_steps(steps, WARM_UP)
    return [_setting(steps, first, 2.0, growth, weight) for weight, growth in product(WEIGHTS, PUBLISHED_GROWTHS)]


def _setting(steps: int, first: int, window: float, growth: float, weight: float) -> Setting:
    return {"steps": steps, "first": first, "window": window, "growth": growth, "weight": weight}


@method("Spectrum", "arXiv 2603.01623", settings, published=published_settings)
@contextmanager
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Iterator[Attached]:
    check_branches(pipe)
    blocks = blocks_of(pipe.transformer, family_of(pipe.transformer))
    steps = setting["steps"]
    full = full_steps(steps, setting["first"], setting["window"], setting["growth"])
    states = StateManager(BranchState)
    hooks = []
    for block in blocks:
        is_first = block is blocks[0]
        is_last = block is blocks[-1]
        hooks.append((block, ForecastHook(states, full, steps, setting["weight"], is_first, is_last)))
    with restored(pipe), hooked(pipe.transformer, hooks):
        yield Attached(lambda: bytes_in(states._state_cache))
