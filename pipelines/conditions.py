"""What determines the videos of a pipeline besides prompts and seeds, as plain data: its conditions, versions, code."""

import ast
import hashlib
import json
import platform
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from diffusers import DiffusionPipeline
from torch import nn

import galaxydit
from galaxydit.adapters import adapter_states
from galaxydit.families import FAMILIES
from galaxydit.pipelines.runs.unit import hash_of
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.profiles.fingerprint import is_readable, loaded, plain_config
from galaxydit.runtime.recognition import family_of, transformers_of

SAMPLED = 1024  # values of each tensor
PACKAGE = Path(galaxydit.__file__).parent
FOLDERS = (
    *("", "policies", "profiles", "runtime", "pipelines", "pipelines/wan_tiny", "calibration"),
    *("eval/methods", "eval/metrics"),
)
PACKAGES = ("diffusers", "torch", "transformers", "scipy", "numpy", "av")


def package_versions() -> dict[str, str]:
    """Versions of the packages that results depend on, by name; the plugin itself may run from its source tree.

    A package that is not installed is left out, because machines that only compute need no av.
    """
    return {"galaxydit": galaxydit.__version__} | _installed_versions()


@cache
def _installed_versions() -> dict[str, str]:
    versions = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


@cache
def code_identity() -> str:
    """16 digits of a SHA-256 of the code and data that results depend on, without comments and docstrings."""
    digest = hashlib.sha256()
    for folder in FOLDERS:
        for path in sorted((PACKAGE / folder).iterdir()):
            if path.suffix == ".py":
                digest.update(without_texts(path.read_text(encoding="utf-8")).encode())
            elif path.suffix == ".json":
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def without_texts(code: str) -> str:
    """The syntax tree as text, without docstrings and the strings below constants."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [each for each in node.body if not _is_text(each)]
    return ast.dump(tree)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def device_name(pipe: DiffusionPipeline) -> str:
    """The device on which the pipeline computes, such as "NVIDIA H200" or "cpu x86_64"."""
    device = pipe._execution_device  # pipe.device is the CPU where weights are offloaded
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} {platform.machine()}"


def product_name(device: torch.device) -> str:
    """Such as "NVIDIA H200" or "AMD EPYC 9654"."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cpuinfo = Path("/proc/cpuinfo")
    names = []
    if cpuinfo.exists():
        names = re.findall(r"model name\s*: (.+)", cpuinfo.read_text(encoding="utf-8"))
    if names:
        return names[0]
    return platform.processor() or platform.machine()


def conditions_of(pipe: DiffusionPipeline, settings: GenerationSettings) -> dict[str, Any]:
    """Everything but prompts and seeds that determines a pipeline's videos, for JSON.

    "transformers", "weights" and "configs" (hashes) are by component; "plugins", if families of transformers come from
    some, holds hashes of their code by name.
    """
    transformers = {}
    plugins = {}
    for name, transformer in transformers_of(pipe).items():
        transformers[name] = {
            "config": plain_config(transformer),
            "dtype": str(transformer.dtype),
            "adapters": hash_of(adapter_states(transformer)),
        }
        plugin = FAMILIES.plugin_of(family_of(transformer).class_name)
        if plugin is not None:
            plugins[plugin.name] = plugin.digest
    weights = weights_of(pipe)
    configs = {}
    for name, part in pipe.components.items():
        if config := getattr(part, "config", None) or _tokens_of(part):
            configs[name] = hash_of(_plain(config))
    return {
        "pipeline": type(pipe).__name__,
        "config": plain_config(pipe),
        "transformers": transformers,
        "weights": weights,
        "configs": configs,
        "scheduler": _plain(pipe.scheduler.config),
        "settings": asdict(settings),
        **({"plugins": plugins} if plugins else {}),
    }


def weights_of(pipe: DiffusionPipeline) -> dict[str, str]:
    """`hash_weights` of each component that has some, by its name."""
    return {name: hash_weights(part) for name, part in pipe.components.items() if isinstance(part, nn.Module)}


def hash_weights(module: nn.Module) -> str:
    """16 digits of a SHA-256 of evenly spaced values of all readable parameters, adapters included.

    Equal parameters count once and without names, because offloading separates tied ones.
    """
    hashes = set()
    for name, parameter in module.named_parameters():
        weights = loaded(module, name, parameter).detach()
        if not is_readable(weights):  # such as quantised ones
            if type(weights.data) is not torch.Tensor or weights.is_meta:
                continue
            weights = weights.data.contiguous().view(torch.uint8)
        values = weights.flatten()[:: max(1, weights.numel() // SAMPLED)].cpu().double()
        hashes.add(hashlib.sha256(values.numpy().tobytes()).hexdigest())
    return hashlib.sha256("".join(sorted(hashes)).encode()).hexdigest()[:16]


def _tokens_of(part: Any) -> dict[str, Any]:
    """A tokenizer.json without "padding" and "truncation", those of the last call; empty for other components."""
    backend = getattr(part, "backend_tokenizer", None)
    content = {}
    if backend is not None:
        content = json.loads(backend.to_str())
    return {name: value for name, value in content.items() if name not in ("padding", "truncation")}


def _plain(config: Any) -> dict[str, str]:
    if isinstance(config, Mapping):
        values = config
    else:
        values = getattr(config, "to_dict", dict)()
    plain = {}
    for name, value in values.items():
        if not name.startswith(("_", "transformers_version")):
            plain[name] = str(value)
    return plain
