"""Limit torch.compile to the model: nothing of the plugin is traced.

Decisions are Python code on numbers. If they were traced, torch.compile would guard graphs by values that change at
every step and compile them again and again. So compiled regions begin below the plugin, at the model's own forward
functions. A hook inside a compiled block would break its graph, which costs 0.4 ms for each call of a block on one CPU,
so where a block is compiled already, the hook goes around the compiled call.
"""

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
    """Let a hook run around a module that `module.compile()` has compiled; returns the function that removes the hook.

    `torch.nn.Module` stores the compiled call and prefers it to `forward`. The compiled call becomes the original
    forward of the hook and stays one graph, also with `fullgraph=True`.
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
