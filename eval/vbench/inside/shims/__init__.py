"""Shims: they restore names and behaviour that newer versions of packages dropped, and that upstream still uses.

Upstream is the benchmark's own code. Each shim is one file, which names the line of upstream. A shim does nothing if
the package still has the name or the behaviour.
"""

import importlib
import pkgutil


def install(suite: str, dimension: str) -> None:
    """Install only the shims that the suite ("vbench" or "vbench2") or the dimension needs."""
    for module in pkgutil.iter_modules(__path__):
        shim = importlib.import_module(f"{__name__}.{module.name}")
        if {suite, dimension} & set(shim.NEEDED_BY):
            shim.install()
