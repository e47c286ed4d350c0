"""Part c: 2x together with attention backends and with weights in fp8, eager, denoising alone."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from diffusers import WanTransformer3DModel

from galaxydit.errors import refusal
from galaxydit.eval.gpu.measured_video import PLAIN, Scale, video_row
from galaxydit.eval.gpu.pipeline_part import MODEL, BuiltPipeline
from galaxydit.eval.gpu.random_pipeline import SHAPES
from galaxydit.eval.gpu.turns import MeasuredPart, Turn
from galaxydit.eval.latency.random_models import build_transformer
from galaxydit.pipelines.additions import set_attention

STEPS = 30  # more than the general schedule computes in full
PLAIN_STEPS = 6  # enough for the seconds of a plain step, and a fifth of the time
H100_SECONDS = {PLAIN: 12.0, "2x": 22.0}
FLASH_FACTOR = 1.4  # of seconds, with FlashAttention-2's kernel (eval/results/costs/table.md)


def _attention(backend: str, transformer: WanTransformer3DModel) -> None:
    set_attention([transformer], backend)


def _fp8_storage(transformer: WanTransformer3DModel) -> None:
    """Weights kept in fp8 and widened in each call, by diffusers: half of the memory, no faster products."""
    set_attention([transformer], "native")
    transformer.enable_layerwise_casting(storage_dtype=torch.float8_e4m3fn, compute_dtype=torch.bfloat16)


def _fp8_products(transformer: WanTransformer3DModel) -> None:
    """Weights and inputs in fp8, multiplied as such, by torchao."""
    if transformer.device.type != "cuda":
        expected = "a GPU that multiplies fp8 (compute capability 8.9 or newer)"
        raise refusal("device", str(transformer.device), expected, "run this part on such a GPU")
    from torchao.quantization import Float8DynamicActivationFloat8WeightConfig, quantize_

    set_attention([transformer], "native")
    quantize_(transformer.blocks, Float8DynamicActivationFloat8WeightConfig())


ADDITIONS: dict[str, tuple[float, Callable[[WanTransformer3DModel], None]]] = {
    "native attention": (1.0, partial(_attention, "native")),
    "_native_cudnn attention": (1.0, partial(_attention, "_native_cudnn")),
    "_native_flash attention": (FLASH_FACTOR, partial(_attention, "_native_flash")),
    "fp8 storage": (1.0, _fp8_storage),
    "fp8 products": (1.0, _fp8_products),
}
"""By name, the factor of its expected seconds, and the change of a new transformer."""


def compositions_part(scale: Scale) -> MeasuredPart:
    """Part c: of each addition, a few plain steps and a whole denoising at 2x."""
    built = BuiltPipeline(scale, STEPS)
    added = ""

    def add(name: str) -> None:
        """Give the pipeline a new transformer with this addition, and warm it up."""
        nonlocal added
        if added == name:
            return
        added = ""
        shape = SHAPES[scale.model(MODEL)].transformer
        pipe = built.pipe
        pipe.register_modules(transformer=build_transformer(shape, scale.device, torch.bfloat16))
        ADDITIONS[name][1](pipe.transformer)
        video_row(pipe, replace(built.settings, steps=1), PLAIN, decode=False)
        added = name

    def measure(name: str, variant: str) -> dict[str, Any]:
        add(name)
        settings = built.settings if variant != PLAIN else replace(built.settings, steps=PLAIN_STEPS)
        row = video_row(built.pipe, settings, variant, decode=False)
        return {"model": scale.model(MODEL), "compiled": False, "addition": name} | row

    turns = []
    for name, (factor, _) in ADDITIONS.items():
        for variant, seconds in H100_SECONDS.items():
            turns.append(Turn(f"{name}, {variant}", 1, factor * seconds, partial(measure, name, variant)))
    about = f"2x with {', '.join(ADDITIONS)}"
    return MeasuredPart("c", about, partial(built.prepare, compiled=False), 8.0, tuple(turns))
