"""Shims restore names and behaviour that newer packages dropped and upstream, the benchmark's own code, still uses.

Each names upstream's line, and does nothing if the package still has the name.
"""

import sys
import types
from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from typing import Any


def install(suite: str, dimension: str) -> None:
    """Install only the shims that the suite ("vbench" or "vbench2") or the dimension needs."""
    for shim, needed_by in SHIMS.items():
        if {suite, dimension} & set(needed_by):
            shim()


def numpy_function_base() -> None:
    """`from numpy.lib.function_base import disp`: vbench/third_party/umt/datasets/kinetics.py:5, kinetics_sparse.py:6.

    numpy 2 dropped the module. The datasets import `disp` and never call it.
    """
    _restore("numpy.lib.function_base", disp=print)


def pkg_resources_packaging() -> None:
    """`from pkg_resources import packaging`: clip/clip.py:6 (openai-clip), vbench/third_party/ViCLIP/viclip_text.py:4.

    setuptools 82 dropped pkg_resources, so this shim hands upstream the package `packaging` itself.
    """
    import packaging.version  # upstream uses packaging.version.parse

    _restore("pkg_resources", packaging=packaging)


def _restore(module: str, **names: Any) -> None:
    if module not in sys.modules and find_spec(module) is None:
        sys.modules[module] = types.ModuleType(module)
        vars(sys.modules[module]).update(names)


def timm_create_model() -> None:
    """`@register_model` above `vit_large_patch16_224`: vbench/third_party/umt/models/modeling_finetune.py:347.

    timm's `create_model` now passes `cache_dir`, which upstream's class does not accept, so this shim drops it.
    """
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


def torchvision_write_video() -> None:
    """`from torchvision.io import write_video`: vbench2/utils.py:22, which every dimension of VBench-2.0 imports.

    torchvision dropped its video writer. vbench2 imports it and never calls it.
    """
    import torchvision.io

    if not hasattr(torchvision.io, "write_video"):
        torchvision.io.write_video = None


OF_CLIP = ("background_consistency", "aesthetic_quality", "appearance_style", "temporal_style", "overall_consistency")
SHIMS: dict[Callable[[], None], tuple[str, ...]] = {
    numpy_function_base: ("human_action",),
    pkg_resources_packaging: ("human_action", *OF_CLIP),
    timm_create_model: ("human_action",),
    torchvision_write_video: ("vbench2",),
}
"""Each shim with the dimensions, or the suite, that need it."""
