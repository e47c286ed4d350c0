"""Quantised weights of files with scales beside them, as of "scaled fp8" files: multiplied, or refused."""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from galaxydit.errors import GalaxyDiTError, refusal

MULTIPLIED = ("scale_weight", "weight_scale", "weight_scale_inv")
"""Last parts of the names of scales. All three multiply, although DeepSeek's files call the last one an inverse."""
ACTIVATIONS = ("scale_input", "input_scale")  # for layers that also quantise their inputs, which diffusers does not
MARK = "scaled_fp8"
COMPANIONS = (*MULTIPLIED, *ACTIVATIONS, "weight_scale_2", "comfy_quant", MARK)
FORMATS = ("float8_e4m3fn", "float8_e5m2", "int8_tensorwise")  # others pack, rotate or reorder their values
DESCRIBED = "_quantization_metadata"  # of a file's header, in place of tensors named "comfy_quant"
BLOCK = 128  # rows and columns that share a scale in DeepSeek's files, whose last blocks may be smaller
CURE = "take the file in bf16, fp16, fp32 or GGUF"


def apply_scales(file: str, weights: dict[str, Any], dtype: torch.dtype) -> None:
    """Multiply weights by the scales beside them, in `dtype`, and remove what only concerns scales, in place.

    `layer.scale_weight` or `layer.weight_scale` is the scale of `layer.weight`: one number, one for each row, or one
    for each block. Raises GalaxyDiTError for formats and shapes that are not known, and for fp8 weights without a scale
    beside others that have one.
    """
    scaled = set[str]()
    is_scaled = False
    for name in list(weights):
        layer, _, kind = name.rpartition(".")
        if kind in MULTIPLIED:
            weight = f"{layer}.weight"
            if weight not in weights:
                raise GalaxyDiTError(f"model={file!r} has {name} without {weight}", CURE)
            if weight in scaled:
                raise refusal("model", file, f"one scale for each weight, not {name} beside another", CURE)
            weights[weight] = _product(file, name, weights[weight], weights.pop(name), dtype)
            scaled.add(weight)
        elif kind == "comfy_quant":
            is_scaled = True
            _check_format(file, name, bytes(weights.pop(name).flatten().tolist()))
        elif kind in (*ACTIVATIONS, MARK):
            is_scaled |= kind == MARK
            del weights[name]
    for name, value in weights.items():
        is_integer = name.endswith(".weight") and not value.is_floating_point() and not hasattr(value, "quant_type")
        if is_integer or ((scaled or is_scaled) and _is_quantised(value)):
            raise GalaxyDiTError(f"model={file!r}: {name} is quantised and has no scale beside it", CURE)


def _is_quantised(value: Any) -> bool:
    return value.dtype in (torch.int8, torch.float8_e4m3fn, torch.float8_e5m2)


def _product(file: str, name: str, weight: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`weight` times `scale`, multiplied in float32. Raises GalaxyDiTError if they do not fit or are of formats not
    known, and for a product that `dtype` does not hold."""
    known = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    spread = None
    if scale.dtype in known:
        spread = _spread(scale.float(), weight.shape)
    if spread is None or not (_is_quantised(weight) or weight.dtype in known):
        shapes = f"{scale.dtype} {tuple(scale.shape)} for a weight of {weight.dtype} {tuple(weight.shape)}"
        expected = f"scales that are numbers for a weight, its rows or its blocks, not {name} ({shapes})"
        raise refusal("model", file, expected.replace("torch.", ""), CURE)
    if not spread.isfinite().all():
        raise refusal("model", file, f"finite scales, unlike {name}", "download it again")
    product = (weight.float() * spread).to(dtype)
    if not product.isfinite().all():
        expected = f"weights that are finite in {dtype} once multiplied, unlike those with {name}"
        raise refusal("model", file, expected.replace("torch.", ""), "download it again, or load it in another dtype")
    return product


def _spread(scale: torch.Tensor, shape: torch.Size) -> torch.Tensor | None:
    """`scale` in a form that broadcasts against `shape`; None if it belongs to no part of such a weight."""
    if scale.numel() == 1:
        return scale.reshape(())
    if scale.ndim == 1 and len(scale) == shape[0]:
        return scale.reshape(-1, *[1] * (len(shape) - 1))
    if scale.ndim != len(shape):
        return None
    if all(count in (1, size) for count, size in zip(scale.shape, shape, strict=True)):
        return scale
    # Rows and columns of a block; 0 where blocks do not fit
    sizes = []
    for count, size in zip(scale.shape, shape, strict=True):
        sizes.append(size // count if size % count == 0 else 0)
    if [math.ceil(size / BLOCK) for size in shape] == list(scale.shape):
        sizes = [BLOCK] * len(shape)
    elif len(shape) != 2 or 0 in sizes or sizes[0] not in (1, sizes[1]):
        return None
    for dim, (block, size) in enumerate(zip(sizes, shape, strict=True)):
        scale = scale.repeat_interleave(block, dim).narrow(dim, 0, size)
    return scale


def refuse_scales(paths: Iterable[Path]) -> None:
    """Raise GalaxyDiTError for scales in files of a model's folder, which diffusers drops unless configured, and for
    integers and other companions of fp8 weights."""
    for path in paths:
        settings = path.with_name("config.json")
        if settings.is_file() and "quantization_config" in settings.read_text("utf-8"):
            continue
        try:
            with safe_open(path, "pt") as tensors:
                dtypes = {name: tensors.get_slice(name).get_dtype() for name in tensors.keys()}  # noqa: SIM118
                scales = _scales_among(dtypes)
        except (OSError, SafetensorError):
            continue  # diffusers says what is wrong, or does not load it
        if scales:
            expected = f"weights without scales beside them, such as {scales[0]} in {path.parent.name}"
            raise refusal(
                "model", str(path.parent.parent), expected, f"{CURE}, or pass it as a single file with a base"
            )


def _scales_among(dtypes: Mapping[str, str]) -> list[str]:
    """Names of the tensors of a file, of these dtypes in safetensors' words, that are scales or need some."""
    weights = {name.removesuffix(".weight"): dtype for name, dtype in dtypes.items() if name.endswith(".weight")}
    layers = []
    for layer, dtype in weights.items():
        if dtype.startswith("F8"):
            layers.append(f"{layer}.")
    found = []
    for layer, dtype in weights.items():
        if dtype.startswith(("I", "U")):
            found.append(f"{layer}.weight")
    for name in dtypes:
        kind = name.rpartition(".")[2]
        is_beside_fp8 = any(name.startswith(layer) for layer in layers)
        if kind in COMPANIONS or (is_beside_fp8 and kind not in ("weight", "bias", "scale_shift_table")):
            found.append(name)
    return found


def check_header(file: str, header: Mapping[str, str] | None) -> None:
    """Raise GalaxyDiTError if the header of a safetensors file describes a layer in a format that is not known."""
    described = (header or {}).get(DESCRIBED)
    if described is None:
        return
    try:
        layers = json.loads(described)["layers"].items()
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise refusal("model", file, f"a header with a readable {DESCRIBED}", "download it again") from error
    for name, description in layers:
        _check_format(file, name, json.dumps(description))


def _check_format(file: str, name: str, text: str | bytes) -> None:
    """Raise GalaxyDiTError unless ComfyUI's description of a layer names a format of plain scales."""
    try:
        description = json.loads(text)
        found = description["format"]
    except (ValueError, TypeError, KeyError) as error:
        raise refusal("model", file, f"a readable description of {name}", "download it again") from error
    if found not in FORMATS or set(description) - {"format", "full_precision_matrix_mult"}:
        raise refusal("model", file, f"weights in {' or '.join(FORMATS)}, unlike {name} ({text!r})", CURE)
