"""Proxies, families and compared methods of other packages and files: found by entry points, or loaded by name."""

import hashlib
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from galaxydit.errors import GalaxyDiTError, refusal, short_reason

METHODS_GROUP, PROXIES_GROUP, FAMILIES_GROUP = "galaxydit.methods", "galaxydit.proxies", "galaxydit.families"
Entry = TypeVar("Entry")


@dataclass(frozen=True)
class Plugin:
    """A package or a file that adds proxies, families or compared methods."""

    name: str  # of the package, or of the file such as "pooled.py"
    module: str  # name in `sys.modules`
    spec: str = ""  # by which another process loads it: a module, or the path of a file; "" for an installed one

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the Python files of the package, or of the file."""
        top = sys.modules[self.module.partition(".")[0]]  # without a file if it is a namespace
        path = Path(top.__file__ or sys.modules[self.module].__file__ or "")
        files = sorted(path.parent.rglob("*.py")) if path.name == "__init__.py" else [path]
        digest = hashlib.sha256()
        for file in files:
            digest.update(f"{file.relative_to(path.parent)}\n".encode() + file.read_bytes())
        return digest.hexdigest()


_loading: ContextVar[Plugin | None] = ContextVar("galaxydit_plugin", default=None)
_loaded: dict[str, Plugin] = {}  # by module
_groups: set[str] = set()  # of entry points that are loaded
_declaring: set[str] = set()  # modules that declare methods


class Registry(MutableMapping[str, Entry], Generic[Entry]):
    """Entries by name: built-in ones, those that a program assigns, and those of plugins.

    Installed plugins are loaded when a name is looked up that is not there, or all names are. Raises GalaxyDiTError
    then for a plugin that cannot be loaded, or whose entry has a name that is taken.
    """

    def __init__(self, kind: type[Entry], key: str, group: str, entries: Mapping[str, Entry]) -> None:
        self.kind, self.key, self.group = kind, key, group
        self._entries = {**entries}
        self._plugins: dict[str, Plugin] = {}
        _registries.append(self)

    def __getitem__(self, name: str) -> Entry:
        if name not in self._entries:
            load_installed(self.group)
        return self._entries[name]

    def __setitem__(self, name: str, entry: Entry) -> None:
        plugin = _loading.get()
        if plugin is not None:
            if self._entries.get(name, entry) is not entry:
                owner = self._plugins.get(name)
                holder = "galaxydit" if owner is None else f"the plugin {owner.name!r}"
                raise refusal(self.key, name, f"a name that {holder} does not have already", "rename it in the plugin")
            self._plugins.setdefault(name, plugin)
        elif self._entries.get(name) is not entry:
            self._plugins.pop(name, None)
        self._entries[name] = entry

    def __delitem__(self, name: str) -> None:
        del self._entries[name]
        self._plugins.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        load_installed(self.group)
        return iter(tuple(self._entries))

    def __len__(self) -> int:
        load_installed(self.group)
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<{len(self._entries)} entries: {', '.join(self._entries)}>"

    @property
    def has_plugins(self) -> bool:
        """Whether a plugin added an entry."""
        load_installed(self.group)
        return bool(self._plugins)

    def plugin_of(self, name: str) -> Plugin | None:
        """The plugin that added the entry of this name, if one did."""
        return self._plugins.get(name)

    def take(self, value: Any) -> bool:
        """Add the entries among the values of a module, or one entry; returns whether there was one."""
        values = vars(value).values() if isinstance(value, ModuleType) else [value]
        entries = [each for each in values if isinstance(each, self.kind)]
        for entry in entries:
            if not any(entry is each for each in self._entries.values()):  # else imported from elsewhere
                self[getattr(entry, self.key)] = entry
        return bool(entries)


_registries: list[Registry[Any]] = []


def load_plugin(module_or_file: str | Path) -> Plugin:
    """Import a module, or a file ending in .py, and add what it declares to galaxydit.

    Its `Proxy` and `Family` values and its methods (`galaxydit.eval.methods.method.method`) are known afterwards, as
    those of `--plugin` and of installed entry points are; workers on Ray load it, too. Loading it twice does nothing.
    Raises GalaxyDiTError for a module or a file that is not there, cannot be imported or declares nothing, and for a
    name that exists already.
    """
    text = str(module_or_file)
    path = Path(text).expanduser()
    is_file = path.suffix == ".py"
    if is_file:
        if not path.is_file():
            raise refusal("plugin", text, "a file that is there", "check the path")
        path = path.resolve()
        unique = hashlib.sha256(str(path).encode()).hexdigest()[:8]
        plugin = Plugin(path.name, f"galaxydit_plugin_{path.stem}_{unique}", str(path))
    else:
        plugin = Plugin(text.partition(".")[0], text, text)
        if not _is_found(text):
            cure = "install its package, add its folder to PYTHONPATH, or pass the path of a file that ends in .py"
            raise refusal("plugin", text, "a module that Python finds", cure)
    known = _loaded.get(plugin.module)
    if known is not None and known.spec:  # an entry point may name a part of the module
        return known
    with _errors_named(plugin, "mend it, or leave it out"):
        module = _import_file(plugin.module, path) if is_file else import_module(plugin.module)
        found = [registry.take(module) for registry in _registries]
        if not any(found) and not _adds(plugin):
            raise GalaxyDiTError("it declares no method, proxy or family")
    _loaded[plugin.module] = plugin
    return plugin


def load_installed(group: str) -> None:
    """Load the entry points of a group, once. Raises GalaxyDiTError for one that cannot be loaded."""
    if group in _groups:
        return
    _groups.add(group)  # now, because a plugin may look something up
    try:
        for point in sorted(entry_points(group=group), key=lambda each: (each.name, each.value)):
            _load_entry_point(point)
    except BaseException:
        _groups.discard(group)
        raise


def _load_entry_point(point: EntryPoint) -> None:
    plugin = Plugin(point.module.partition(".")[0], point.module)
    package = plugin.name if point.dist is None else point.dist.name
    with _errors_named(plugin, f"mend it, or remove it: pip uninstall {package}"):
        value = point.load()
        found = [registry.take(value) for registry in _registries if registry.group == point.group]
        if not any(found) and not (point.group == METHODS_GROUP and _adds(plugin)):
            what = point.group.removeprefix("galaxydit.")
            raise GalaxyDiTError(f"its entry point {point.name} = {point.value} of {point.group} holds no {what}")
    _loaded.setdefault(point.module, plugin)


def loaded_plugins() -> tuple[str, ...]:
    """What `load_plugin` was given in this process, for other processes of the same run."""
    return tuple(plugin.spec for plugin in _loaded.values() if plugin.spec)


def plugin_of(module: str) -> Plugin | None:
    """The plugin that a module belongs to, None for other modules."""
    top = module.partition(".")[0]
    return next((plugin for plugin in _loaded.values() if plugin.module.partition(".")[0] == top), None)


def note_declaration(module: str) -> None:
    """Note that a module declares a method."""
    _declaring.add(module)


def _adds(plugin: Plugin) -> bool:
    """Whether a plugin declared a method, or assigned an entry by itself."""
    top = plugin.module.partition(".")[0]
    assigned = any(plugin in registry._plugins.values() for registry in _registries)
    return assigned or any(module.partition(".")[0] == top for module in _declaring)


def _is_found(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # its package is not there, or the name is none
        return module in sys.modules
    except Exception:  # of its package, which the import repeats and names
        return True


def _import_file(name: str, path: Path) -> ModuleType:
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _errors_named(plugin: Plugin, cure: str) -> Iterator[None]:
    """Context in which `plugin` is loading; whatever it raises becomes a GalaxyDiTError that names it."""
    what = f"the plugin {plugin.name!r} cannot be loaded"
    token = _loading.set(plugin)
    try:
        yield
    except GalaxyDiTError as error:
        raise GalaxyDiTError(f"{what}: {error.problem}", error.cure or cure) from error
    except (Exception, SystemExit) as error:
        raise GalaxyDiTError(f"{what} ({short_reason(error, 300)})", cure) from error
    finally:
        _loading.reset(token)
