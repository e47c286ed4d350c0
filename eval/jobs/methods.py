"""The ways to generate that a job's variants can name: what options each takes, and one generation with it.

The plugin and fewer steps are known here. Everything else comes from the comparison, under its name in small letters
with hyphens ("uniform skip order 0" is uniform-skip-order-0). Fewer steps are known here too, because the comparison
counts compute, for which a model may have one transformer only.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, make_dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Gt

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.compare.catalogue import CATALOGUE, slug_of
from galaxydit.eval.jobs.job import Variant
from galaxydit.eval.jobs.record import BASELINE

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline

    from galaxydit.eval.compare.compute_counter import Part
    from galaxydit.eval.compare.method import Method
    from galaxydit.pipelines.generate import Generation
    from galaxydit.pipelines.settings import GenerationSettings

PLUGIN, FEWER_STEPS = "galaxydit", "fewer-steps"
EXAMPLE_STEPS = 50  # for which methods of the comparison tell what their settings look like


@dataclass(frozen=True)
class PluginOptions:
    """Options of the plugin."""

    speedup: Annotated[float, Ge(1)] | None = None
    max_error: Annotated[float, Gt(0)] | None = None
    threshold: Annotated[float, Ge(0)] | None = None
    profile: str | None = None


@dataclass(frozen=True)
class FewerStepsOptions:
    """Options of fewer steps."""

    steps: Annotated[int, Ge(1)]


OWN: dict[str, type] = {PLUGIN: PluginOptions, FEWER_STEPS: FewerStepsOptions}


@dataclass(frozen=True)
class Generated:
    """A video with what it took.

    Attributes:
        compute_fraction: block evaluations done / those of the plain generation, None if only `flops` were counted.
        flops: operations counted in the blocks, None if they were not counted.
        report: the plugin's, as a mapping.
    """

    generation: "Generation"
    compute_fraction: float | None = None
    flops: float | None = None
    report: Mapping[str, Any] | None = None


def method_names() -> tuple[str, ...]:
    """All that a variant can name."""
    return (*OWN, *(name for name in map(slug_of, CATALOGUE) if name not in OWN))


def options_of(name: str) -> type:
    """The options of a method as a dataclass; those that all its settings have must be given.

    Raises GalaxyDiTError if a package is missing.
    """
    if name in OWN:
        return OWN[name]
    method = _compared()[name]
    if not method.is_available:
        raise GalaxyDiTError(
            f"method={name!r} is not allowed: expected an installed {method.needs}; pip install 'galaxydit[bench]'"
        )
    examples = method.settings(EXAMPLE_STEPS)
    kinds = {
        key: list if isinstance(value, list | tuple) else type(value) for one in examples for key, value in one.items()
    }
    needed = [key for key in kinds if all(key in one for one in examples)]
    optional = [(key, kinds[key] | None, field(default=None)) for key in kinds if key not in needed]
    return make_dataclass(name.replace("-", "_"), [*((key, kinds[key]) for key in needed), *optional])


def is_compared(name: str) -> bool:
    """Whether the method comes from the comparison; its compute is then counted from outside."""
    return name not in (BASELINE, *OWN)


def needs_calibration(name: str) -> bool:
    """Whether the method measures something on other prompts before it can run."""
    return is_compared(name) and _compared()[name].calibrate is not None


def calibrate(
    pipe: "DiffusionPipeline", name: str, prompts: Sequence[str], settings: "GenerationSettings", seed: int
) -> Any:
    """What the method measures beforehand, ready for JSON."""
    measure = _compared()[name].calibrate
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


def generate_variant(
    pipe: "DiffusionPipeline",
    variant: Variant,
    prompt: str,
    settings: "GenerationSettings",
    seed: int,
    *,
    calibration: Any = None,
    parts: "Sequence[Part]" = (),
) -> Generated:
    """One video. `parts`, from `measure_parts`, are what to count in a baseline and in methods of the comparison."""
    import galaxydit
    from galaxydit.eval.compare.compute_counter import ComputeCounter, only_transformer
    from galaxydit.pipelines.generate import generate

    if variant.method == FEWER_STEPS:
        fewer, steps = variant.options["steps"], settings.steps
        if steps is None:
            raise GalaxyDiTError("steps is missing: expected a whole number from 1; set steps in the job file")
        return Generated(generate(pipe, prompt, replace(settings, steps=fewer), seed), fewer / steps)
    if variant.method == PLUGIN:
        with galaxydit.accelerate(pipe, **variant.options) as acceleration:
            generation = generate(pipe, prompt, settings, seed)
        report = acceleration.report
        return Generated(generation, report.compute_fraction, report=report.to_dict())
    if variant.method == BASELINE and not parts:
        return Generated(generate(pipe, prompt, settings, seed), 1.0)
    method = None if variant.method == BASELINE else _compared()[variant.method]
    if method is not None and method.generation is not None:
        settings = method.generation(settings, variant.options)
    with (
        nullcontext() if method is None else method.attach(pipe, variant.options, calibration),
        ComputeCounter(only_transformer(pipe), tuple(parts)) as counter,
    ):
        generation = generate(pipe, prompt, settings, seed)
    return Generated(generation, 1.0 if method is None else None, counter.flops)


def _compared() -> "dict[str, Method]":
    """The methods of the comparison by the name that a job file uses."""
    from galaxydit.eval.compare.registry import EVERY_METHOD

    return {method.slug: method for method in EVERY_METHOD}
