"""Observe the methods of a scheduler on the instance, so that it tells when a loop begins and when a step is over."""

import functools
import inspect
import threading
import types
import weakref
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Protocol

METHODS = ("set_timesteps", "scale_model_input", "step")


class Watcher(Protocol):
    """What an observed scheduler tells its watchers."""

    def before(self, method: str, scheduler: Any, arguments: Mapping[str, Any]) -> None: ...
    def after(self, method: str, scheduler: Any, arguments: Mapping[str, Any], result: Any) -> None: ...
    def failed(self, method: str, scheduler: Any) -> None: ...
    def copied(self, scheduler: Any, copy: Any) -> None: ...


class ObservedMethod:
    """Stands in for one method of a scheduler, on the instance.

    It is an object, because a closure would make a copy of the scheduler step the original. A deep copy is observed,
    too: pipelines copy their scheduler to step a second latent or single frames. A pickle has the plain method.
    """

    everywhere: ClassVar[weakref.WeakSet["ObservedMethod"]] = weakref.WeakSet()  # also what another tool replaced
    _inside = threading.local()  # a method that runs in this thread calls others of the scheduler, which tell nothing

    def __init__(self, scheduler: Any, name: str, plain: Any) -> None:
        self.scheduler = scheduler
        self.name = name
        self.plain = plain
        self.was_on_instance = name in vars(scheduler)  # another tool had put it there
        self.everywhere.add(self)
        self.watchers: list[Watcher] = []  # two pipelines may share a scheduler
        # `inspect.signature` follows `__wrapped__`: pipelines look for parameters such as `eta` and `sigmas`.
        functools.update_wrapper(self, plain)
        self._parameters = list(inspect.signature(plain).parameters)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if getattr(self._inside, "is_running", False):
            return self.plain(*args, **kwargs)
        watchers = tuple(self.watchers)
        arguments = dict(zip(self._parameters, args, strict=False)) | kwargs
        self._inside.is_running = True
        try:
            for watcher in watchers:
                watcher.before(self.name, self.scheduler, arguments)
            result = self.plain(*args, **kwargs)
            for watcher in watchers:
                watcher.after(self.name, self.scheduler, arguments, result)
        except BaseException:
            for watcher in watchers:
                watcher.failed(self.name, self.scheduler)
            raise
        finally:
            self._inside.is_running = False
        return result

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        copied = memo.get(id(self.scheduler))  # `deepcopy` notes the new object before it copies attributes
        if copied is None:
            return self
        plain = _plain(copied, self.name, getattr(self.plain, "__func__", None))
        method = ObservedMethod(copied, self.name, plain)
        method.was_on_instance = self.was_on_instance
        method.watchers = list(self.watchers)
        for watcher in self.watchers:
            watcher.copied(self.scheduler, copied)
        return method

    def __reduce__(self) -> Any:
        # A pickle has the scheduler before its attributes, so this becomes the method of the class.
        return getattr, (self.scheduler, self.name)


def _plain(scheduler: Any, name: str, function: Any | None) -> Any:
    """The method of the class, or the function that another tool bound to the original, bound to this scheduler."""
    return types.MethodType(function or getattr(type(scheduler), name), scheduler)


def observe(scheduler: Any, watcher: Watcher) -> None:
    """Tell the watcher of this scheduler from now on; a second time changes nothing."""
    for name in METHODS:
        if not hasattr(scheduler, name):
            continue
        method = vars(scheduler).get(name)
        if not isinstance(method, ObservedMethod):
            method = ObservedMethod(scheduler, name, getattr(scheduler, name))
            setattr(scheduler, name, method)
        if watcher not in method.watchers:
            method.watchers.append(watcher)


def stop_observing(scheduler: Any, watcher: Watcher) -> None:
    """Leave the scheduler as it was before `observe`, unless another watcher is told of it."""
    for method in tuple(ObservedMethod.everywhere):
        if method.scheduler is not scheduler or watcher not in method.watchers:
            continue
        method.watchers.remove(watcher)
        is_in_place = vars(scheduler).get(method.name) is method  # else another tool has replaced it
        if method.watchers or not is_in_place:
            continue
        if method.was_on_instance:
            setattr(scheduler, method.name, method.plain)
        else:
            delattr(scheduler, method.name)


def schedulers_in(pipe: Any, given: Iterable[Any] = ()) -> dict[str, Any]:
    """The schedulers of a pipeline by component, "scheduler" first, and those that the user names."""
    found: dict[str, Any] = {}
    for name in ["scheduler", *getattr(pipe, "components", {})]:
        component = getattr(pipe, name, None)
        if hasattr(component, "set_timesteps") and hasattr(component, "step"):
            found[name] = component
    for index, scheduler in enumerate(given):
        if all(scheduler is not known for known in found.values()):
            found[f"schedulers[{index}]"] = scheduler
    return found
