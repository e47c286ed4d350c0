"""The settings on which the PSNR of a verification depends, beside those with a field of their own in `Conditions`."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import nn

from galaxydit.adapters import adapter_scales
from galaxydit.profiles.fingerprint import plain_values
from galaxydit.profiles.schema import Value
from galaxydit.runtime.recognition import class_names
from galaxydit.schedulers import sigmas_in

SEEN_IN_SIGMAS = frozenset(
    (
        "num_train_timesteps",
        "beta_start",
        "beta_end",
        "beta_schedule",
        "trained_betas",
        "rescale_betas_zero_snr",
        "snr_shift_scale",
        "flow_shift",
        "shift",
        "shift_terminal",
        "base_shift",
        "max_shift",
        "base_image_seq_len",
        "max_image_seq_len",
        "use_dynamic_shifting",
        "time_shift_type",
        "invert_sigmas",
        "use_karras_sigmas",
        "use_exponential_sigmas",
        "use_beta_sigmas",
        "use_flow_sigmas",
        "use_lu_lambdas",
        "sigma_min",
        "sigma_max",
        "sigma_data",
        "sigma_schedule",
        "rho",
        "timestep_spacing",
        "timestep_type",
        "steps_offset",
        "interpolation_type",
        "prediction_type",
    )
)
"""Entries of a scheduler's configuration that only move its sigmas, which are compared themselves, or that belong to
the weights. Schedulers without sigmas are compared in these, too."""
OWN_FIELDS = ("guidance_scale", "guidance_scale_2")  # of `Conditions`
SECOND = "transformer_2 "  # begins names of what belongs to the second transformer
PIPELINE = "pipeline"
SCALE = "scale of adapter"
QUANTISED = "quantised weights"
ATTENTION = "attention backend"


def settings_of(pipe: Any, scheduler: Any, transformers: Iterable[nn.Module]) -> dict[str, Value]:
    """The values in force by name, such as "scheduler.solver_order"; of a pipeline, those of its latest call.

    The table of what counts: the class of the pipeline, arguments of its call that it keeps, the scheduler's
    configuration, scales of adapters, quantised weights and the attention backend. Those of a second transformer have
    names that begin with `SECOND`.
    """
    kept = dict[str, Any]()
    for name in _parameters(type(pipe).__call__):
        if name not in OWN_FIELDS and hasattr(pipe, f"_{name}"):
            kept[name] = getattr(pipe, f"_{name}")
    for name, value in (kept.pop("attention_kwargs", None) or {}).items():
        kept[f"attention_kwargs.{name}"] = value
    config = getattr(scheduler, "config", {})
    has_sigmas = sigmas_in(scheduler) is not None
    for name in _parameters(type(scheduler).__init__):
        if has_sigmas and name in SEEN_IN_SIGMAS:
            continue
        if name in config:
            kept[f"scheduler.{name}"] = config[name]
    if "DiffusionPipeline" in class_names(pipe):
        kept[PIPELINE] = type(pipe).__name__
    for prefix, transformer in zip(("", SECOND), transformers, strict=False):
        for name, scale in adapter_scales(transformer).items():
            kept[f"{prefix}{SCALE} {name}"] = scale
        kept[f"{prefix}{QUANTISED}"] = any(map(_is_quantised, transformer.parameters()))
        kept[f"{prefix}{ATTENTION}"] = _attention_of(transformer)
    return plain_values(kept)


def usual_settings(pipe: Any, scheduler: Any) -> dict[str, Value]:
    """The values that a calibration has where its profile does not say: defaults of the classes.

    A default of None stands for another argument, and a noise schedule belongs to a model, so they are left out.
    """
    usual = dict[str, Any]()
    for name, default in _parameters(type(pipe).__call__).items():
        if default is not None:
            usual[name] = default
    for name, default in _parameters(type(scheduler).__init__).items():
        if name not in SEEN_IN_SIGMAS:
            usual[f"scheduler.{name}"] = default
    return plain_values(usual)


def differing_settings(
    known: Mapping[str, Value], pipe: Any, scheduler: Any, transformers: Iterable[nn.Module]
) -> list[str]:
    """Texts on the settings in force that differ from the `known` ones of a profile, or else from the usual ones."""
    texts = []
    measured = usual_settings(pipe, scheduler) | dict(known)
    for name, value in settings_of(pipe, scheduler, transformers).items():
        expected = measured.get(name, _usual_of(name, value))
        if name == PIPELINE and expected in class_names(pipe):
            continue
        if not _are_alike(value, expected):
            texts.append(
                f"{name}={_shown(value)}, and the profile was measured with {_shown(expected)}: the speedup is met all "
                "the same, the quality is unknown"
            )
    return texts


def _usual_of(name: str, value: Value) -> Value:
    """The usual value of a setting that no signature has; `value` itself if nothing is usual."""
    name = name.removeprefix(SECOND)
    if name.startswith(SCALE) or name == "attention_kwargs.scale":
        return 1.0
    if name == QUANTISED:
        return False
    if name == ATTENTION or name.startswith("attention_kwargs."):
        return None
    return value


def _attention_of(transformer: nn.Module) -> str | None:
    """Attention backends that were chosen for layers, sorted; None without any."""
    backends = set()
    for module in transformer.modules():
        backend = getattr(getattr(module, "processor", None), "_attention_backend", None)
        if backend is not None:
            backends.add(str(backend))
    return ", ".join(sorted(backends)) or None


def _are_alike(value: Value, expected: Value) -> bool:
    empty = (None, ())  # both ways to say nothing
    return value == expected or (value in empty and expected in empty)


def _shown(value: Value) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return repr(value)


def _is_quantised(parameter: nn.Parameter) -> bool:
    kind = type(parameter)
    is_plain = kind is nn.Parameter or kind.__name__ in ("DTensor", "FakeTensor")  # sharded, and without values
    return not is_plain or not parameter.is_floating_point() or parameter.element_size() < 2


def _parameters(function: Callable[..., Any]) -> dict[str, Any]:
    """Names and defaults of a function's arguments."""
    parameters = inspect.signature(function).parameters
    return {name: parameter.default for name, parameter in parameters.items()}
