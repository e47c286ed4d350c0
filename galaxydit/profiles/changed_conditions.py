"""Differences between a generation and the conditions for which its profile was measured."""

import math
from typing import Any

from galaxydit.adapters import adapters_of
from galaxydit.errors import is_number, plain_number
from galaxydit.policies.policy import FEW_STEPS
from galaxydit.profiles.generation_settings import OWN_FIELDS, differing_settings
from galaxydit.profiles.schema import Profile
from galaxydit.runtime.recognition import transformers_of
from galaxydit.runtime.source import Source

SIGMA_TOLERANCE = 1e-3
SERVED_SHARE = 0.28
"""Generations of fewer steps than this share of the profile's steps are computed in full by default. The profile of
the test model wan-tiny was measured with 50 steps. At 2x in generations of 14 steps, its PSNR is 6.5 dB above that of
7 steps without reuse; in generations of 10 steps, 0.6 dB above that of 5 steps (4 captions)."""


def notes_and_warnings(
    profile: Profile,
    short_in_full: bool,
    steps: int,
    sigmas: tuple[float, ...] | None,
    source: Source,
    latent_shape: tuple[int, ...],
    first: int = 0,
) -> tuple[list[str], list[str]]:
    """`(notes, warnings)`: how a generation differs from its profile's conditions, so that its PSNR is unknown. Another
    size is a note, and so is guidance that is not told.

    `latent_shape` is without the batch, `first` the step that the generation began with; `short_in_full` says whether
    too short generations are computed in full.
    """
    conditions = profile.conditions
    differing: list[str] = []
    if conditions.sigmas:
        differing = _sigma_differences(conditions.sigmas, steps, sigmas)
    if first > 0:
        differing.append(
            f"the generation began with step {first + 1} of {steps} (video to video), and the profile was measured "
            "from noise: the quality is unknown"
        )
    if steps <= FEW_STEPS:
        differing = []  # all steps are computed, and the report says so
    elif steps < fewest_steps(profile):
        done = "all are computed by default" if short_in_full else "reuse can be worse than computing fewer steps"
        differing = [
            f"{steps} steps are too few for the profile, which was measured with {conditions.steps}, so {done}; "
            f"`galaxydit calibrate --steps {steps}` measures one"
        ]
    notes = []
    for name in OWN_FIELDS:
        guidance = plain_number(_guidance_of(source.pipe, name))
        known = getattr(conditions, name)
        if guidance is None and known is not None and name == OWN_FIELDS[0]:
            notes.append(f"the {name} of this generation is not told, and the profile was measured at {known:g}")
        if isinstance(guidance, str):
            differing.append(f"guidance comes from {guidance}, and the profile was measured with a plain scale")
        if is_number(guidance) and known is not None and guidance != known:
            differing.append(
                f"{name}={guidance:g}, and the profile was measured at {known:g}: the speedup is met all the same, the "
                "quality is unknown"
            )
    boundary = boundary_of(source.pipe)
    if boundary != conditions.boundary and profile.second_model is not None:
        differing.append(
            f"the second transformer takes over at a noise level of {boundary}, and the profile was measured with "
            f"{conditions.boundary}: its steps were chosen for that"
        )
    scheduler = type(source.scheduler).__name__
    is_same = scheduler in (conditions.scheduler, "NoneType") or not conditions.scheduler
    if not is_same:
        differing.append(f"scheduler is {scheduler}, and the profile was measured with {conditions.scheduler}")
    compared = source.scheduler if is_same else None
    transformers = transformers_of(source.pipe)
    differing += differing_settings(conditions.settings, source.pipe, compared, transformers.values())
    models = (profile.model, profile.second_model)
    for (name, transformer), model in zip(transformers.items(), models, strict=False):
        dtype = dtype_of(transformer)
        adapters = adapters_of(transformer)
        if dtype and conditions.dtype not in ("", dtype):
            differing.append(
                f"the {name} computes in {dtype}, and the profile was measured in {conditions.dtype}: the speedup is "
                "met all the same, the quality is unknown"
            )
        if model is not None and adapters != model.adapters:
            differing.append(
                f"adapters {list(adapters)} of the {name} are active, and the profile was measured with "
                f"{list(model.adapters)}: calibrate again with them"
            )
    if conditions.latent_shape and latent_shape != conditions.latent_shape:
        notes.append(
            f"the latent has shape {list(latent_shape)} without the batch, and the profile is for "
            f"{list(conditions.latent_shape)}: schedules hardly depend on the size, but the PSNR was not measured here"
        )
    return notes, differing


def _guidance_of(pipe: Any, name: str) -> float | str | None:
    """A pipeline's guidance scale, the class of a guider that does more than scale, or None."""
    guider = getattr(pipe, name.replace("guidance_scale", "guider"), None)
    if guider is None:
        return getattr(pipe, f"_{name}", None)
    usual = {"_start": 0.0, "_stop": 1.0, "guidance_rescale": 0.0, "use_original_formulation": False}
    is_plain = all(getattr(guider, field, None) == value for field, value in usual.items())
    kind = type(guider).__name__
    if kind != "ClassifierFreeGuidance" or not is_plain:
        return kind
    if not getattr(guider, "_enabled", True):
        return 1.0
    return guider.guidance_scale


def fewest_steps(profile: Profile) -> int:
    """Fewest steps that a profile serves: `SERVED_SHARE` of its own, rounded up."""
    return math.ceil(round(SERVED_SHARE * profile.conditions.steps, 9))


def dtype_of(transformer: Any) -> str:
    """A transformer's dtype, such as "bfloat16"; "" without one."""
    return str(getattr(transformer, "dtype", "")).removeprefix("torch.")


def boundary_of(pipe: Any) -> float | None:
    """Noise level below which the second transformer computes; None without one."""
    return getattr(getattr(pipe, "config", None), "boundary_ratio", None)


def _sigma_differences(known: tuple[float, ...], steps: int, sigmas: tuple[float, ...] | None) -> list[str]:
    if steps != len(known):
        return [
            f"{steps} steps, and the profile was measured with {len(known)}: its planned steps keep their places among "
            f"all steps, which cost wan-tiny 1 to 1.5 dB; `galaxydit calibrate --steps {steps}` measures one"
        ]
    if sigmas is None:
        return ["the scheduler gives no sigmas: even steps are assumed"]
    largest = max(abs(sigma - calibrated) for sigma, calibrated in zip(sigmas, known, strict=True))
    if largest > SIGMA_TOLERANCE:
        return [
            f"sigmas differ from the calibrated ones by up to {largest:.3f} (another flow shift): the profile's "
            "planned steps keep their places among all steps, its curves are interpolated in sigma"
        ]
    return []
