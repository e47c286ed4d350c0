"""Limit torch.compile to the model: the plugin's numbers change at every step, so traced decisions would recompile."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from diffusers.hooks import ModelHook

around_the_model = torch.compiler.disable(recursive=False)
"""Decorator for a function that calls the model: it is not traced, but the model below it is compiled."""

beside_the_model = torch.compiler.disable()
"""Decorator for a function that calls no model: neither it nor anything that it calls is traced."""


class HookedCall:
    """The compiled call of a module with a hook around it."""

    def __init__(self, module: nn.Module, hook: "ModelHook") -> None:
        self.module, self.hook = module, hook

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.hook.new_forward(self.module, *args, **kwargs)


def hook_around_compiled(module: nn.Module, hook: "ModelHook") -> Callable[[], None]:
    """Run a hook around a module that `module.compile()` compiled, which stays one graph; returns the undo function.

    `torch.nn.Module` prefers the stored compiled call to `forward`; a hook inside would break its graph (0.4 ms a call
    on one CPU).
    """
    from diffusers.hooks.hooks import HookFunctionReference  # seconds, which reading a profile does not need

    hook.fn_ref = HookFunctionReference()
    hook.fn_ref.original_forward = module._compiled_call_impl
    call = HookedCall(module, hook)
    module._compiled_call_impl = call

    def undo() -> None:
        outer, current = None, module._compiled_call_impl  # hooks of other settings may be around this hook
        while current is not call and isinstance(current, HookedCall):
            outer, current = current.hook.fn_ref, current.hook.fn_ref.original_forward
        if current is not call:
            return  # it was compiled anew meanwhile
        if outer is None:
            module._compiled_call_impl = hook.fn_ref.original_forward
        else:
            outer.original_forward = hook.fn_ref.original_forward

    return undo
