"""What torch.compile gets to see: the model's blocks and nothing of the plugin.

Decisions are Python on numbers. Traced, they would become graphs without tensors, guarded by values that change at
every step, and be compiled again and again. So compiled regions begin below the plugin, at the model's own forward
functions. A hook inside a compiled block would break its graph into pieces, at 0.4 ms for each call of a block on one
CPU; so where a block is compiled already, the hook goes around what was compiled.
"""

from collections.abc import Callable
from typing import Any

import torch
from diffusers.hooks import ModelHook
from diffusers.hooks.hooks import HookFunctionReference
from torch import nn

around_the_model = torch.compiler.disable(recursive=False)
"""For a function that calls the model: not traced itself, while the model below it is compiled."""

beside_the_model = torch.compiler.disable()
"""For a function that calls no model: never traced, nor anything that it calls."""


def hook_around_compiled(module: nn.Module, hook: ModelHook) -> Callable[[], None]:
    """Let a hook run around a module that `module.compile()` has compiled; returns what takes it off again.

    The module's compiled call, which `torch.nn.Module` keeps aside and prefers to `forward`, becomes the original
    forward of the hook. It stays one graph, also with `fullgraph=True`.
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
