"""One transformer call, as it is known before anything runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class StepInfo:
    """A step: its index from 0, the number of steps, and its noise level in [0, 1] (`schedulers.noise_level`). Without
    the scheduler's sigmas, `sigma` is the cache context's, or else timestep / 1000."""

    step: int
    steps: int
    sigma: float

    @property
    def is_last(self) -> bool:
        return self.step == self.steps - 1


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a transformer in a declared loop.

    Attributes:
        component: of the pipeline, such as "transformer_2".
        window: the window or tile that `cache_context` names; "" for the whole latent.
        branch: "cond" or "uncond"; "call 0", "call 1" if the pipeline names none; with the window's name before it.
        latent: the transformer's `hidden_states`, `(rows, ...)`; `inputs` holds all of its arguments by name.
        changed: names of the conditions that differ from those of this branch in the step before.
        is_guided: whether the pipeline guides this step; None where it does not say.
        guidance_scale: 1 without guidance, and where the pipeline does not say.
        proxies: tensors that the first block has shown until now, for a `galaxydit.Reuse`, by name of the proxy.
    """

    component: str
    window: str
    branch: str
    info: StepInfo
    latent: Tensor
    inputs: Mapping[str, Any]
    changed: tuple[str, ...] = ()
    is_guided: bool | None = None
    guidance_scale: float = 1.0
    proxies: Mapping[str, Tensor] = field(default_factory=dict)
