"""`from torchvision.io import write_video`: vbench2/utils.py:22, which every dimension of VBench-2.0 imports.

torchvision dropped its video writer. vbench2 imports it and never calls it.
"""

from typing import Any

NEEDED_BY = ("vbench2",)


def install() -> None:
    import torchvision.io

    if not hasattr(torchvision.io, "write_video"):
        torchvision.io.write_video = _refuse


def _refuse(*_: Any, **__: Any) -> None:
    raise NotImplementedError("torchvision has no video writer any more")
