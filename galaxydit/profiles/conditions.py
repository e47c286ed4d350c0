"""How a generation differs from the conditions of its profile."""

import math
from typing import Any

from galaxydit.adapters import adapters_of
from galaxydit.policies.policy import FEW_STEPS
from galaxydit.profiles.schema import Profile
from galaxydit.runtime.session import Source

SIGMA_TOLERANCE = 1e-3
SERVED_SHARE = 0.28
"""Share of the steps of a calibration below which generations are computed in full by default. At 2x the profile of
wan-tiny, for 50 steps, is 6.5 dB ahead of half the steps without reuse at 14 steps, 0.6 dB at 10 (4 captions)."""


def differences(
    profile: Profile, short_in_full: bool, steps: int, sigmas: tuple[float, ...] | None, source: Source
) -> list[str]:
    """How a generation differs from the conditions of its profile, as sentences for the report.

    With `short_in_full`, generations of fewer steps than the profile serves are computed in full.
    """
    conditions = profile.conditions
    differing = _sigma_differences(conditions.sigmas, steps, sigmas) if conditions.sigmas else []
    if differing and profile.kind == "published":
        differing = [
            f"steps or flow shift differ from those of the published measurements ({conditions.steps} steps, shift "
            f"{conditions.flow_shift}): the planned steps keep their places among all steps"
        ]
    if steps <= FEW_STEPS:
        differing = []  # all steps are computed, and the report says so
    elif steps < fewest_steps(profile):
        done = "all are computed by default" if short_in_full else "reuse can be worse than computing fewer steps"
        differing = [
            f"{steps} steps are too few for the profile, which was measured with {conditions.steps}, so {done}: take "
            f"fewer steps to be faster, or `galaxydit calibrate --steps {steps}`"
        ]
    for name in ("guidance_scale", "guidance_scale_2"):
        guidance, known = getattr(source.pipe, f"_{name}", None), getattr(conditions, name)
        if guidance is not None and known not in (None, guidance):
            how = "planned from measurements" if profile.kind == "published" else "measured"
            differing.append(
                f"{name}={guidance:g}, and the profile was {how} at {known:g}: the speedup is met all the same, the "
                "quality is unknown"
            )
    boundary = boundary_of(source.pipe)
    if boundary != conditions.boundary and profile.second_model is not None:
        differing.append(
            f"the second transformer takes over at a noise level of {boundary}, and the profile was measured with "
            f"{conditions.boundary}: its steps were chosen for that"
        )
    scheduler = type(source.scheduler).__name__
    if scheduler not in (conditions.scheduler, "NoneType") and conditions.scheduler:
        differing.append(f"scheduler is {scheduler}, and the profile was measured with {conditions.scheduler}")
    adapters = adapters_of(source.transformer)
    if adapters != profile.model.adapters:
        differing.append(
            f"adapters {list(adapters)} are active, and the profile was measured with "
            f"{list(profile.model.adapters)}: calibrate again with them"
        )
    return differing


def notes_and_warnings(
    profile: Profile, short_in_full: bool, steps: int, sigmas: tuple[float, ...] | None, source: Source
) -> tuple[list[str], list[str]]:
    """The differences as notes for the report, and as warnings; one of the two lists is empty.

    The user is warned where a difference voids what was measured, or leaves the generation without reuse. A published
    profile states no measured quality, so other differences from its conditions are notes.
    """
    differing = differences(profile, short_in_full, steps, sigmas, source)
    warns = profile.kind == "measured" or FEW_STEPS < steps < fewest_steps(profile)
    return ([], differing) if warns else (differing, [])


def fewest_steps(profile: Profile) -> int:
    """The fewest steps of a generation that a profile serves."""
    return math.ceil(round(SERVED_SHARE * profile.conditions.steps, 9))


def boundary_of(pipe: Any) -> float | None:
    """The noise level below which the second transformer of a pipeline computes; None without a second transformer."""
    return getattr(getattr(pipe, "config", None), "boundary_ratio", None)


def _sigma_differences(known: tuple[float, ...], steps: int, sigmas: tuple[float, ...] | None) -> list[str]:
    if steps != len(known):
        return [
            f"{steps} steps, and the profile was measured with {len(known)}: its planned steps keep their places among "
            "all steps, its curves are interpolated in sigma"
        ]
    if sigmas is None:
        return ["the scheduler gives no sigmas: even steps are assumed"]
    largest = max(abs(a - b) for a, b in zip(sigmas, known, strict=True))
    if largest > SIGMA_TOLERANCE:
        return [
            f"sigmas differ from the calibrated ones by up to {largest:.3f} (another flow shift): the profile's "
            "planned steps keep their places among all steps, its curves are interpolated in sigma"
        ]
    return []
