"""Hooks on blocks, their parts and observed modules, through which the engine acts below one transformer."""

from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from galaxydit.proxies import Place
from galaxydit.runtime.engine import Engine
from galaxydit.runtime.registration import PluginHook
from galaxydit.torch_compile import around_the_model


class PlacedHook(PluginHook):
    """Hook on a block, a part of the first block, or an observed module. `run` is the engine's `Stack.run_block`,
    `run_part` or `run_module`; `place` is the block's index, the part's key in `Family.parts`, or the module's path."""

    def __init__(self, run: Callable[..., Any], place: Any) -> None:
        super().__init__()
        self.run = run
        self.place = place

    @around_the_model
    def new_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if self.removed:
            return self.fn_ref.original_forward(*args, **kwargs)
        return self.run(self.place, self.fn_ref.original_forward, args, kwargs)


def module_hooks(engine: Engine) -> Iterator[tuple[str, PlacedHook]]:
    """Paths below the transformer, with the hook on the module there."""
    family = engine.family
    stack = engine.stack
    blocks = []
    for name in family.stacks:
        for index in range(len(getattr(engine.transformer, name))):
            blocks.append(f"{name}.{index}")
    for index in stack.hooked_blocks:
        yield blocks[index], PlacedHook(stack.run_block, index)
    parts: list[str] = []
    modules = list(engine.observer.modules)
    for proxy in stack.watched_proxies:
        if proxy.part is not None:
            group = modules if proxy.place is Place.MODULE else parts
            group.append(proxy.part)
    # Several proxies may read one module, which gets one hook.
    for part in dict.fromkeys(parts):
        yield f"{blocks[0]}.{family.parts[part]}", PlacedHook(stack.run_part, part)
    for path in dict.fromkeys(modules):
        yield path, PlacedHook(stack.run_module, path)
