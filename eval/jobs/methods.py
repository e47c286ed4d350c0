"""The ways to generate that a job's variants can name: what options each takes, and one generation with it.

The plugin and fewer steps are known here; everything else comes from the arena, under its name in small letters with
hyphens ("uniform skip order 0" is uniform-skip-order-0). The arena has fewer steps too, but counts what ran, for which
a job would have to measure the model first, and works with one transformer alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field, create_model

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.jobs.job import Variant
from galaxydit.eval.jobs.record import BASELINE
from galaxydit.eval.jobs.tables import Count, Number, Positive, Table, Text

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline

    from galaxydit.eval.compare.compute_counter import Part
    from galaxydit.eval.compare.method import Method
    from galaxydit.pipelines.generate import Generation
    from galaxydit.pipelines.settings import GenerationSettings

PLUGIN, FEWER_STEPS = "galaxydit", "fewer-steps"


class PluginKeys(Table):
    """Options of the plugin."""

    speedup: Annotated[float, Field(ge=1)] | None = None
    max_error: Positive | None = None
    threshold: Number | None = None
    profile: Text | None = None


class FewerStepsKeys(Table):
    """Options of fewer steps."""

    steps: Count


OWN: dict[str, type[Table]] = {PLUGIN: PluginKeys, FEWER_STEPS: FewerStepsKeys}
EXAMPLE_STEPS = 50  # for which methods of the arena are asked what their settings look like


@dataclass(frozen=True)
class Made:
    """A video with what it took: block evaluations done / those of the plain run, and the plugin's report, if any."""

    generation: "Generation"
    compute_fraction: float
    report: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class PlainCompute:
    """What a plain step of this model runs, to count the arena's methods against."""

    parts: "tuple[Part, ...]"
    calls_per_step: int

    def flops(self, steps: int) -> float:
        """Of a plain generation."""
        return sum(part.flops for part in self.parts) * self.calls_per_step * steps


def method_names() -> tuple[str, ...]:
    """All that a variant can name."""
    return (*OWN, *(name for name in _arena() if name not in OWN))


def options_of(name: str) -> type[BaseModel]:
    """The options of a method; those that all its settings have must be given.

    Raises GalaxyDiTError if a package is missing.
    """
    if name in OWN:
        return OWN[name]
    method = _arena()[name]
    if not method.is_available:
        raise GalaxyDiTError(
            f"method {name!r} needs {method.needs}, which is not installed: pip install 'galaxydit[bench]'"
        )
    examples = method.settings(EXAMPLE_STEPS)
    keys: dict[str, Any] = {}
    for key, value in {key: value for setting in examples for key, value in setting.items()}.items():
        kind: Any = list if isinstance(value, list | tuple) else type(value)
        needed = all(key in setting for setting in examples)
        example = Field(examples=[value]) if needed else Field(default=None, examples=[value])
        keys[key] = (kind if needed else kind | None, example)
    return create_model(name, __base__=Table, **keys)


def is_from_arena(name: str) -> bool:
    """Whether the arena brings it; its compute is then counted from outside."""
    return name not in (BASELINE, *OWN)


def needs_calibration(name: str) -> bool:
    """Whether the method measures something on other prompts before it can run."""
    return is_from_arena(name) and _arena()[name].calibrate is not None


def calibrate(
    pipe: "DiffusionPipeline", name: str, prompts: Sequence[str], settings: "GenerationSettings", seed: int
) -> Any:
    """What the method measures beforehand, ready for JSON."""
    measure = _arena()[name].calibrate
    return None if measure is None else measure(pipe, prompts, settings, seed)


def check_on(pipe: "DiffusionPipeline", variant: Variant) -> None:
    """Attach the plugin once, so that a setting that does not suit the model is refused before anything runs."""
    if variant.method != PLUGIN:
        return
    import galaxydit

    try:
        galaxydit.accelerate(pipe, **variant.options).remove()
    except GalaxyDiTError as error:
        raise GalaxyDiTError(f"variants.{variant.name}: {error}") from error


def make(
    pipe: "DiffusionPipeline",
    variant: Variant,
    prompt: str,
    settings: "GenerationSettings",
    seed: int,
    *,
    calibration: Any = None,
    plain: PlainCompute | None = None,
) -> Made:
    """One video. `plain` is needed by the arena's methods."""
    import galaxydit
    from galaxydit.pipelines.generate import generate

    if variant.method == BASELINE:
        return Made(generate(pipe, prompt, settings, seed), 1.0)
    if variant.method == FEWER_STEPS:
        fewer = replace(settings, steps=variant.options["steps"])
        return Made(generate(pipe, prompt, fewer, seed), variant.options["steps"] / _steps(settings))
    if variant.method == PLUGIN:
        with galaxydit.accelerate(pipe, **variant.options) as acceleration:
            generation = generate(pipe, prompt, settings, seed)
        report = acceleration.report
        return Made(generation, report.compute_fraction, report.to_dict())
    if plain is None:
        raise ValueError(f"plain is None, and {variant.method} does not tell what it computes: pass a PlainCompute")
    return _make_in_arena(pipe, variant, prompt, settings, seed, calibration, plain)


def _make_in_arena(
    pipe: "DiffusionPipeline",
    variant: Variant,
    prompt: str,
    settings: "GenerationSettings",
    seed: int,
    calibration: Any,
    plain: PlainCompute,
) -> Made:
    from galaxydit.eval.compare.compute_counter import ComputeCounter, only_transformer
    from galaxydit.pipelines.generate import generate

    method = _arena()[variant.method]
    changed = settings if method.generation is None else method.generation(settings, variant.options)
    with (
        method.attach(pipe, variant.options, calibration),
        ComputeCounter(only_transformer(pipe), plain.parts) as counter,
    ):
        generation = generate(pipe, prompt, changed, seed)
    return Made(generation, counter.flops / plain.flops(_steps(settings)))


def measure_plain_compute(
    pipe: "DiffusionPipeline", prompt: str, settings: "GenerationSettings", seed: int
) -> PlainCompute:
    """From plain generations of a few steps."""
    from galaxydit.eval.compare.compute_counter import measure_parts, only_transformer
    from galaxydit.pipelines.generate import generate

    parts = measure_parts(pipe, prompt, settings, seed)
    calls = 0

    def count(*_: Any) -> None:
        nonlocal calls
        calls += 1

    hook = only_transformer(pipe).register_forward_hook(count)
    try:
        generate(pipe, prompt, replace(settings, steps=2), seed)
    finally:
        hook.remove()
    return PlainCompute(parts, calls // 2)


def _steps(settings: "GenerationSettings") -> int:
    if settings.steps is None:
        raise ValueError("steps is None, allowed is a whole number from 1: set steps in the job file")
    return settings.steps


def _arena() -> "dict[str, Method]":
    """The arena's methods by the name that a job file uses."""
    from galaxydit.eval.compare.methods.uniform_skip import SPEEDUPS
    from galaxydit.eval.compare.registry import every_method

    return {method.slug: method for method in every_method(SPEEDUPS)}
