"""LoRAs of a pipeline, loaded into each of its transformers, with a word on all that a LoRA does not reach."""

import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from diffusers import DiffusionPipeline
from diffusers.loaders.lora_base import LORA_WEIGHT_NAME_SAFE
from safetensors import SafetensorError, safe_open

from galaxydit.errors import DataWarning, refusal, short_reason
from galaxydit.pipelines.scaled_weights import COMPANIONS
from galaxydit.runtime.recognition import transformers_of

FIRST = "transformer"
SECOND = "transformer_2"
CURE = "pass a LoRA in safetensors that was made for this model"
UNUSED = ("dora_scale", "lora_magnitude", "lora_mid", "hada_", "lokr_", "oft_")  # DoRA, LoCon, LoHa, LoKr and OFT


def add_loras(pipe: DiffusionPipeline, lora: str | None, lora_2: str | None = None) -> None:
    """Load LoRAs from a safetensors file, a folder or the hub: `lora` into the transformer, `lora_2` into the second.

    `lora` alone goes into both transformers of a model that has two. A DataWarning names each transformer without LoRA
    and tensors without effect. Raises GalaxyDiTError if a LoRA does not fit, or without the package peft.
    """
    value: Any
    for name, value in (("lora", lora), ("lora_2", lora_2)):
        if not isinstance(value, str | Path | None):
            raise refusal(name, value, "the name of one LoRA", "pass a text, a second LoRA by load_lora_weights")
    field, given = ("lora_2", lora_2) if lora is None else ("lora", lora)
    if find_spec("peft") is None:
        raise refusal(field, given, "an installed peft, which loads it", "pip install 'galaxydit[lora]'")
    if not hasattr(pipe, "load_lora_weights"):
        raise refusal(field, given, f"none, because {type(pipe).__name__} loads no LoRA", "leave it out")
    transformers = transformers_of(pipe)
    targets = [name for name in (FIRST, SECOND) if name in transformers and name in pipe._lora_loadable_modules]
    if lora_2 is not None and SECOND not in targets:
        expected = f"None, because {type(pipe).__name__} has no second transformer that takes a LoRA"
        raise refusal("lora_2", lora_2, expected, "leave it out")
    for name in targets:
        if name == SECOND and lora_2 is not None:
            _load(pipe, "lora_2", lora_2, name)
        elif lora is not None:
            _load(pipe, "lora", lora, name)
    if lora_2 is None and len(targets) == 2:
        _warn(f"lora={lora!r} is loaded into {FIRST} and into {SECOND}; pass the LoRA of {SECOND} as lora_2 (--lora-2)")
    for name, transformer in transformers.items():
        if not _tuned(transformer):
            _warn(f"{name} has no LoRA: {field}={given!r} has no layers for it")


def _load(pipe: DiffusionPipeline, field: str, lora: str, component: str) -> None:
    """Load a LoRA into one transformer; into the first also what it has for text encoders."""
    _refuse_unused(field, lora)
    into_second = {"load_into_transformer_2": True} if component == SECOND else {}
    try:
        pipe.load_lora_weights(lora, use_safetensors=True, **into_second)
        weights: Any = pipe.lora_state_dict(lora, use_safetensors=True)
    except Exception as error:  # whatever diffusers and PEFT raise for files that do not fit
        reason = short_reason(error, 300)
        raise refusal(field, lora, f"one that {type(pipe).__name__} can load ({reason})", CURE) from error
    # PEFT leaves parameters of which the file lacks one half, or has more than halves, without values.
    empty = [path for path, value in getattr(pipe, component).named_parameters() if value.is_meta]
    if empty:
        raise refusal(field, lora, f"one with both halves of each layer and no biases, unlike {_first(empty)}", CURE)
    # Files name the layers of both transformers "transformer."; some classes return the alphas beside the weights.
    parts = {name: getattr(pipe, name, None) for name in pipe._lora_loadable_modules if name != SECOND}
    parts |= {FIRST: getattr(pipe, component)}
    tuned: set[str] = set()
    for name, part in parts.items():
        tuned |= {f"{name}.{path}" for path in _tuned(part)}
    if not tuned:
        raise refusal(field, lora, f"one with layers of {type(pipe).__name__}", CURE)
    names = weights[0] if isinstance(weights, tuple) else weights
    layers = {name.partition(".lora_")[0] for name in names if ".lora_" in name}
    if unused := sorted(layers - tuned):
        _warn(f"{field}={lora!r}: {len(unused)} of its {len(layers)} layers are not of {component}: {_first(unused)}")


def _tuned(part: Any) -> list[str]:
    """Paths of a component's layers with a LoRA."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    if part is None:
        return []
    return [path for path, module in part.named_modules() if isinstance(module, BaseTunerLayer)]


def _refuse_unused(field: str, lora: str) -> None:
    """Raise GalaxyDiTError for a file that is not there, and for a local LoRA with tensors that diffusers drops: those
    of other methods than LoRA, and scales.

    Warns of changes of norms and biases that diffusers drops, which are zero in most files.
    """
    path = Path(lora)
    if path.suffix == ".safetensors" and not path.exists():
        raise refusal(field, lora, "an existing file", f"check the spelling; a path starts at {Path.cwd()}")
    files = [path] if path.is_file() else sorted(path.glob("*.safetensors"))
    if len(files) > 1 and LORA_WEIGHT_NAME_SAFE not in [file.name for file in files]:
        expected = f"a folder with one LoRA, not with {_first([file.name for file in files])}"
        raise refusal(
            field, lora, expected, "pass a file; two files of a model with two transformers as lora and lora_2"
        )
    for file in files:
        try:
            with safe_open(file, "pt") as tensors:
                names = list(tensors.keys())
                changes = [name for name in _dropped_changes(names) if tensors.get_tensor(name).float().any()]
        except (OSError, SafetensorError):
            return  # `load_lora_weights` says what is wrong
        if changes:
            _warn(f"{field}={lora!r}: {len(changes)} of its tensors are not used by diffusers: {_first(changes)}")
        for name in names:
            if any(kind in name for kind in UNUSED) or name.rpartition(".")[2] in COMPANIONS:
                expected = f"a LoRA without {name}, which diffusers does not use"
                cure = "take a plain LoRA without DoRA and quantisation, or it merged into the model"
                raise refusal(field, lora, expected, cure)


def _dropped_changes(names: list[str]) -> list[str]:
    """Names of tensors that diffusers (0.42) leaves out where it converts a LoRA with the names of Wan's authors."""
    has_projection = any("time_projection" in name and name.endswith(".weight") for name in names)
    changes = [name for name in names if name.endswith((".diff", ".diff_b"))]
    dropped = []
    for name in changes:
        if "norm" in name or ("time_projection" in name and not has_projection):
            dropped.append(name)
    return dropped


def _first(names: list[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


def _warn(text: str) -> None:
    warnings.warn(f"galaxydit: {text}", DataWarning, stacklevel=2)
