"""Limit torch.compile to the model: the plugin's numbers change at every step, so traced decisions would recompile."""

from collections.abc import Callable
from typing import Any

import torch
from diffusers.hooks import ModelHook
from diffusers.hooks.hooks import HookFunctionReference
from torch import nn

around_the_model = torch.compiler.disable(recursive=False)
"""Decorator for a function that calls the model: it is not traced, but the model below it is compiled."""

beside_the_model = torch.compiler.disable()
"""Decorator for a function that calls no model: neither it nor anything that it calls is traced."""


def hook_around_compiled(module: nn.Module, hook: ModelHook) -> Callable[[], None]:
    """Run a hook around a module that `module.compile()` compiled, which stays one graph; returns the undo function.

    `torch.nn.Module` prefers the stored compiled call to `forward`; a hook inside would break its graph (0.4 ms a call
    on one CPU).
    """
    compiled = module._compiled_call_impl
    hook.fn_ref = HookFunctionReference()
    hook.fn_ref.original_forward = compiled

    def call(*args: Any, **kwargs: Any) -> Any:
        return hook.new_forward(module, *args, **kwargs)

    module._compiled_call_impl = call

    def undo() -> None:
        if module._compiled_call_impl is call:  # else it was compiled anew meanwhile
            module._compiled_call_impl = compiled

    return undo
