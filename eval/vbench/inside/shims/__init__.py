"""Replacements for modules that upstream imports and that today's packages moved or dropped: one file each, which
names the upstream line.

A shim does nothing where the package still has what upstream asks for.
"""

import importlib
import pkgutil


def install(suite: str, dimension: str) -> None:
    """Install the shims that a dimension or all of a suite needs; the others would only load packages."""
    for module in pkgutil.iter_modules(__path__):
        shim = importlib.import_module(f"{__name__}.{module.name}")
        if {suite, dimension} & set(shim.NEEDED_BY):
            shim.install()
