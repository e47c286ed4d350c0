"""`@register_model` above `vit_large_patch16_224`: vbench/third_party/umt/models/modeling_finetune.py:347.

timm's `create_model` now passes `cache_dir`, which upstream's class does not accept, so this shim drops it.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

NEEDED_BY = ("human_action",)


def install() -> None:
    from timm.models import registry

    register = registry.register_model
    if getattr(register, "drops_cache_dir", False):
        return

    def register_model(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def build(*arguments: Any, cache_dir: Any = None, **named: Any) -> Any:
            return function(*arguments, **named)

        return register(build)

    register_model.drops_cache_dir = True  # type: ignore[attr-defined]
    registry.register_model = register_model
