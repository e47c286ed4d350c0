"""`from pkg_resources import packaging`: clip/clip.py:6 (openai-clip), vbench/third_party/ViCLIP/viclip_text.py:4.

setuptools 82 dropped pkg_resources, so this shim hands upstream the package `packaging` itself.
"""

import sys
import types
from importlib.util import find_spec

NEEDED_BY = (
    "background_consistency",
    "aesthetic_quality",
    "human_action",
    "appearance_style",
    "temporal_style",
    "overall_consistency",
)


def install() -> None:
    if "pkg_resources" not in sys.modules and find_spec("pkg_resources") is None:
        import packaging.version  # upstream uses packaging.version.parse

        module = types.ModuleType("pkg_resources")
        vars(module)["packaging"] = packaging
        sys.modules["pkg_resources"] = module
