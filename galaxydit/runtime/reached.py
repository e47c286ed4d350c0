"""Whether generations of an accelerated pipeline reached the plugin."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from galaxydit.other_caches import forward_of_another
from galaxydit.runtime.registration import HookSet, hook_of


def replaced(pipe: Any, transformers: Mapping[str, nn.Module], hooks: HookSet) -> str:
    """Error text if a hooked transformer was replaced in the pipeline, else an empty string."""
    if isinstance(pipe, nn.Module) or not hooks.are_attached:
        return ""
    for name, transformer in transformers.items():
        now = getattr(pipe, name, None)
        if isinstance(now, nn.Module) and all(module is not transformer for module in now.modules()):
            return (
                f"{type(pipe).__name__}.{name} was replaced after accelerate(), so galaxydit is not on it: "
                "call remove() on the Acceleration, and accelerate(pipe) again"
            )
    return ""


def missed(pipe: Any, transformers: Mapping[str, nn.Module], hooks: HookSet, timesteps: Any) -> str:
    """Why the pipeline's last generation did not reach the plugin, else an empty string. The scheduler's `timesteps`
    show that one ran: they were set anew since the last call of a hooked transformer."""
    if hooks.are_attached and timesteps is not hooks.timesteps:
        for name, transformer in transformers.items():
            reached = getattr(hook_of(transformer), "around", None)
            if forward_of_another(transformer) is not None and vars(transformer)["forward"] is not reached:
                return (
                    f"{name}.forward was replaced after accelerate(), so a generation ran without galaxydit: undo "
                    f"this (`del {name}.forward`), call remove() on the Acceleration, and accelerate(pipe) again"
                )
    return replaced(pipe, transformers, hooks)
