"""What attaching the methods of others takes: leaving no trace, and seeing what their hooks keep."""

import ast
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from diffusers import DiffusionPipeline
from torch import nn

import galaxydit
from galaxydit import reuse
from galaxydit.eval.arena.method import Attached

REGISTRY = "_diffusers_hook"  # diffusers makes one wherever it looks; an empty one does nothing


@contextmanager
def accelerated(pipe: DiffusionPipeline, **arguments: Any) -> Iterator[Attached]:
    """The plugin at work, with the arguments of `galaxydit.accelerate`."""
    with galaxydit.accelerate(pipe, **arguments) as acceleration:
        yield Attached(lambda: acceleration.report.bytes_held)


@contextmanager
def leaving_no_trace(pipe: DiffusionPipeline) -> Iterator[None]:
    """Afterwards, all attributes of the pipeline and of its transformer's modules are what they were.

    Caches take their hooks off, and leave a forward method, a flag or some bookkeeping behind.
    """
    owners = [pipe, *pipe.transformer.modules()]
    before = [dict(vars(owner)) for owner in owners]
    try:
        yield
    finally:
        for owner, attributes in zip(owners, before, strict=True):
            for name in set(vars(owner)) - set(attributes) - {REGISTRY}:
                del vars(owner)[name]
            vars(owner).update(attributes)


def tensors_in_hooks(transformer: nn.Module) -> Callable[[], int]:
    """A function that tells the bytes of all tensors that diffusers hooks below the transformer keep right now."""
    hooks = [
        hook
        for module in transformer.modules()
        if hasattr(module, REGISTRY)
        for hook in getattr(module, REGISTRY).hooks.values()
    ]

    def held() -> int:
        kept: dict[int, int] = {}
        for hook in hooks:
            for name, value in vars(hook).items():
                if "state" in name:
                    collect_tensors(value, kept)
        return sum(kept.values())

    return held


def collect_tensors(value: Any, kept: dict[int, int]) -> None:
    """Note every tensor inside containers and state objects, as address and bytes, so that none counts twice."""
    if isinstance(value, torch.Tensor):
        kept[value.data_ptr()] = value.numel() * value.element_size()
    elif isinstance(value, dict):
        for item in value.values():
            collect_tensors(item, kept)
    elif isinstance(value, list | tuple):
        for item in value:
            collect_tensors(item, kept)
    elif hasattr(value, "__dict__") and not isinstance(value, nn.Module | type) and not callable(value):
        collect_tensors(vars(value), kept)


def core_identity(pipe: DiffusionPipeline) -> str:
    """SHA-256 of the plugin's code: results of methods that run on it are void once it changes."""
    return code_identity(sorted(Path(galaxydit.__file__).parent.glob("*.py")))


def prediction_identity(pipe: DiffusionPipeline) -> str:
    """SHA-256 of the plugin's predictions: with a fixed schedule, nothing else of it has a say in the video."""
    return code_identity([Path(reuse.__file__)])


def code_identity(paths: Sequence[Path]) -> str:
    """SHA-256 of Python files, comments and docstrings left out."""
    digest = hashlib.sha256()
    for path in paths:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
                del node.body[0]
        digest.update(ast.dump(tree).encode())
    return digest.hexdigest()


def spread(low: float, high: float, count: int) -> tuple[float, ...]:
    """`count` numbers from low to high in equal ratios, with three significant digits."""
    return tuple(float(f"{low * (high / low) ** (index / (count - 1)):.3g}") for index in range(count))
