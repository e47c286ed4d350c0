"""Shims restore names and behaviour that newer packages dropped and upstream, the benchmark's own code, still uses.

A shim is one file, which names upstream's line, and does nothing if the package still has the name.
"""

import importlib
import pkgutil


def install(suite: str, dimension: str) -> None:
    """Install only the shims that the suite ("vbench" or "vbench2") or the dimension needs."""
    for module in pkgutil.iter_modules(__path__):
        shim = importlib.import_module(f"{__name__}.{module.name}")
        if {suite, dimension} & set(shim.NEEDED_BY):
            shim.install()
