"""Shims: replacements for what upstream, the benchmark's own code, expects of packages that have changed since.

Each shim is one file, which names the upstream line. A shim does nothing where the package still has what upstream
asks for.
"""

import importlib
import pkgutil


def install(suite: str, dimension: str) -> None:
    """Install the shims that this suite or dimension needs. Other shims would only load packages."""
    for module in pkgutil.iter_modules(__path__):
        shim = importlib.import_module(f"{__name__}.{module.name}")
        if {suite, dimension} & set(shim.NEEDED_BY):
            shim.install()
