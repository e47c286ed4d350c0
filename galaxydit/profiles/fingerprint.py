"""The identity of a model: its configuration, projections of its weights, and its adapters."""

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from galaxydit.adapters import adapters_of
from galaxydit.errors import plain_number
from galaxydit.families import FAMILIES
from galaxydit.profiles.schema import Model, Profile, Value
from galaxydit.runtime.recognition import class_names

PROJECTIONS = 8
ELEMENTS = 65_536
TOLERANCE = 3e-3
FUSED = re.compile(r"\.to_(added_)?(qkv|kv)\.")  # copies made by `fuse_qkv_projections`


def model_of(transformer: nn.Module) -> Model:
    """Identity of a transformer; a subclass, such as FSDP makes, has the class name of its family."""
    names = class_names(transformer)
    known = [name for name in names if name in FAMILIES]
    name = known[0] if known else names[0]
    return Model(name, plain_config(transformer), project_weights(transformer), adapters_of(transformer))


def project_weights(transformer: nn.Module) -> tuple[float, ...]:
    """Eight sums of projections of all weight matrices, with active adapters; empty if any is meta or quantised.

    They change about as the weights do: above TOLERANCE for a fine-tune, below for a cast to bfloat16.
    """
    sums = [0.0] * PROJECTIONS
    matrices = 0
    pattern = torch.cos(torch.arange(ELEMENTS, dtype=torch.float64, device="cpu") ** 2)
    adapters = adapters_of(transformer)
    for name, parameter in transformer.named_parameters():
        is_active = "lora_" not in name or any(f".{adapter}." in name for adapter in adapters)
        if parameter.ndim < 2 or not is_active or FUSED.search(name):
            continue
        matrix = loaded(transformer, name, parameter)
        if not is_readable(matrix):
            return ()
        projection = _projection(matrix, pattern)
        # The name of the matrix decides the sum that it belongs to, and its sign.
        digest = hashlib.sha256(name.replace(".base_layer.", ".").encode()).digest()
        if math.isfinite(projection):
            sign = 1 if digest[1] % 2 else -1
            sums[digest[0] % PROJECTIONS] += sign * projection
        matrices += 1
    if not matrices:
        return ()
    return tuple(round(value / math.sqrt(matrices), 9) for value in sums)


def _projection(matrix: Tensor, pattern: Tensor) -> float:
    """The product of the first weights and the pattern / the norm of these weights; 0 for zeros."""
    weights = matrix.detach().flatten()[:ELEMENTS].cpu().double()
    norm = float(torch.linalg.vector_norm(weights))
    if not norm > 0:
        return 0.0
    return float(weights @ pattern[: len(weights)]) / norm


def loaded(transformer: nn.Module, name: str, parameter: nn.Parameter) -> Tensor:
    """The weights of the `parameter` called `name`, also where sequential offloading keeps them in CPU memory."""
    if not parameter.is_meta:
        return parameter
    path, _, attribute = name.rpartition(".")
    hook = getattr(transformer.get_submodule(path), "_hf_hook", None)
    for part in (hook, *getattr(hook, "hooks", ())):
        in_cpu_memory = getattr(part, "weights_map", None)
        if in_cpu_memory is not None:
            return in_cpu_memory[attribute]
    return parameter


def is_readable(weights: Tensor) -> bool:
    """Whether weights are plain floating-point numbers: not quantised, no DTensor, not on the meta device."""
    plain = type(weights) in (nn.Parameter, Tensor) and weights.is_floating_point()
    return plain and weights.element_size() >= 2 and not weights.is_meta


class Mismatch(NamedTuple):
    """Why a profile does not belong to a model: what differs first, and the reason for people."""

    part: Literal["transformers", "class", "config", "adapters", "weights"]
    text: str


def profile_mismatch(profile: Profile, transformers: Sequence[nn.Module]) -> Mismatch | None:
    """Why a profile does not belong to the transformers of a pipeline; None if it does."""
    models = [model for model in (profile.model, profile.second_model) if model is not None]
    if len(models) != len(transformers):
        text = f"it is for a pipeline with {len(models)} denoising transformer(s), and this has {len(transformers)}"
        return Mismatch("transformers", text)
    for model, transformer in zip(models, transformers, strict=True):
        mismatch = model_mismatch(model, transformer)
        if mismatch is not None:
            return mismatch
    return None


def model_mismatch(profile: Model, transformer: nn.Module) -> Mismatch | None:
    """Why a transformer is not the model `profile`; None if it is, or a subclass.

    Only the configuration entries of `profile` are compared; weights only if both sides have projections.
    """
    names = class_names(transformer)
    if profile.class_name not in names:
        return Mismatch("class", f"it is for the class {profile.class_name}, and this is {names[0]}")
    settings = plain_config(transformer)
    for name, value in profile.config.items():
        if name not in settings or settings[name] != value:
            return Mismatch("config", f"it is for {name}={value}, and this model has {settings.get(name)}")
    adapters = adapters_of(transformer)
    if adapters != profile.adapters:
        return Mismatch("adapters", f"it is for adapters {list(profile.adapters)}, and {list(adapters)} are active")
    weights = project_weights(transformer) if profile.weights else ()
    if weights and not _alike(weights, profile.weights):
        return Mismatch("weights", "its weights are those of another checkpoint of this architecture")
    return None


def _alike(weights: Sequence[float], others: Sequence[float]) -> bool:
    if len(weights) != len(others):
        return False
    differences = [abs(value - other) for value, other in zip(weights, others, strict=True)]
    return not any(difference > TOLERANCE for difference in differences)


def plain_config(model: Any) -> dict[str, Value]:
    """The `plain_values` of a configuration, without names like "_x"."""
    config: Any = getattr(model, "config", {})
    public = {name: value for name, value in dict(config).items() if not name.startswith("_")}
    return plain_values(public)


def plain_values(settings: Mapping[str, Any]) -> dict[str, Value]:
    """The finite scalars, strings, None and sequences of integers (as tuples) among `settings`, which JSON can hold."""
    plain: dict[str, Value] = {}
    for name, given in settings.items():
        value = plain_number(given)
        if isinstance(value, float) and not math.isfinite(value):
            continue
        if isinstance(value, str | int | float | bool) or value is None:
            plain[name] = value
        elif isinstance(value, list | tuple) and all(type(item) is int for item in value):
            plain[name] = tuple(value)
    return plain
