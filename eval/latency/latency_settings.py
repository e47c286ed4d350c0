"""Settings of a latency run: models, sizes and methods by name, checked without torch."""

import re
from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from galaxydit.errors import check_choice, check_count, listed, plain_fields, refusal
from galaxydit.eval.latency.model_shapes import PRESETS, evenly_forced, parse_size
from galaxydit.eval.methods.method_registry import is_installed
from galaxydit.policies.policy import FEW_STEPS

Mode = Literal["eager", "compiled", "both"]
METHODS = (
    "plain",
    "galaxydit output",
    "galaxydit residual",
    "galaxydit output, no proxy",
    "galaxydit residual, no proxy",
    "FirstBlockCache",
    "SeaCache",
    "cache-dit",
)
INSTALLED = METHODS if is_installed("cache_dit") else METHODS[:-1]


@dataclass(frozen=True)
class LatencySettings:
    """Options of `galaxydit latency`. Raises GalaxyDiTError for a value that is not allowed."""

    model: Annotated[str, typer.Option(help="1.3B, 14B or tiny: a Wan2.1 transformer of that shape.")] = "tiny"
    size: Annotated[str, typer.Option(help="480p, 720p, tiny or WIDTHxHEIGHTxFRAMES.")] = "tiny"
    steps: Annotated[int, typer.Option(help=f"Denoising steps, at least {FEW_STEPS + 1}.")] = 50
    fraction: Annotated[float, typer.Option(help="Share of full steps that is forced.")] = 0.5
    repeats: Annotated[int, typer.Option(help="Turns of each method.")] = 3
    methods: Annotated[list[str] | None, typer.Option("--method", help="Only this method; may be repeated.")] = None
    mode: Annotated[
        Mode | None, typer.Option(help="How the blocks run; by default both ways on a GPU, eagerly on a CPU.")
    ] = None
    attention: Annotated[str | None, typer.Option(help="An attention backend of diffusers, such as sage.")] = None
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda or cuda:N; by default the GPU if the machine has one.")
    ] = None

    def __post_init__(self) -> None:
        plain_fields(self)
        if self.methods is not None:
            object.__setattr__(self, "methods", [*listed("methods", self.methods)])
        check_choice("model", self.model, tuple(PRESETS))
        check_count("steps", self.steps, FEW_STEPS + 1)
        check_count("repeats", self.repeats, 1)
        for name in self.methods or ():
            check_choice("method", name, METHODS)
            if name not in INSTALLED:
                raise refusal("method", name, "an installed method", "pip install 'galaxydit[bench]'")
        parse_size(self.size)
        evenly_forced(self.steps, self.fraction)
        if self.device is not None and not re.fullmatch(r"cpu|cuda(:\d+)?", self.device):
            raise refusal("device", self.device, "cpu, cuda or cuda:N", "pass for example cuda:1")
