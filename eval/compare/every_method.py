"""Every compared method (one way to generate a video faster), and the selection of methods by name.

A new method is a file in `methods/` and a name in `registry.py`.
"""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from galaxydit.eval.compare import methods as folder
from galaxydit.eval.compare.method import Method
from galaxydit.eval.compare.registry import ABLATION, ABLATIONS, ALL, METHOD_SOURCES, PUBLISHED, check_methods

_MODULES = [import_module(f"{folder.__name__}.{file.name}") for file in iter_modules(folder.__path__)]
_DEFINED = [method for module in _MODULES for method in getattr(module, "METHODS", None) or (module.METHOD,)]
EVERY_METHOD: Sequence[Method] = sorted(_DEFINED, key=lambda method: [*METHOD_SOURCES].index(method.name))
"""All methods that the files of `methods/` define as `METHODS` or `METHOD`, in the order of `registry.py`. The import
raises ValueError for a method whose name `registry.py` does not list."""


def choose_methods(names: Sequence[str]) -> tuple[Method, ...]:
    """The methods of these names, which may be names of groups, in the order of `registry.py`.

    Three names stand for groups: "ablations" for the ablations, "published" for the other methods whose settings are
    scored without tuning (published settings, and the repeated plain run), and "all" for the methods that are in
    neither of these groups. A group omits methods whose packages are not installed. Raises GalaxyDiTError for an empty
    list, an unknown name, and the name of a method whose package is not installed.
    """
    check_methods(names)

    def is_chosen(method: Method) -> bool:
        group = ABLATIONS if method.source == ABLATION else ALL if method.tuned else PUBLISHED
        return method.name in names or (group in names and method.is_available)

    return tuple(method for method in EVERY_METHOD if is_chosen(method))


def with_profiles(methods: Sequence[Method], paths: Sequence[Path]) -> tuple[Method, ...]:
    """Return `methods` with each method that follows a profile replaced by one copy for each profile file in `paths`.

    A profile holds the plugin's calibration for a model. With several files, the name of a copy ends with the stem of
    its file. Without files, the methods are unchanged.
    """
    suffixes = {path: f" {path.stem}" if len(paths) > 1 else "" for path in paths}
    chosen: list[Method] = []
    for method in methods:
        follow = method.with_profile if paths else None
        chosen += [method] if follow is None else [follow(path, suffix) for path, suffix in suffixes.items()]
    return tuple(chosen)
