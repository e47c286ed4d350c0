"""Training-free acceleration of diffusers video pipelines: compute the steps that matter, reuse the others."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from galaxydit.acceleration import (
        Acceleration,
        TransformerDescription,
        accelerate,
        apply_galaxydit,
        describe,
        remove,
        remove_galaxydit,
    )
    from galaxydit.calibration import Calibration, calibrate
    from galaxydit.errors import (
        FullComputeWarning,
        GalaxyDiTError,
        NoEffectWarning,
        ProfileWarning,
        UnknownFamilyWarning,
    )
    from galaxydit.policies.config import GalaxyDiTConfig
    from galaxydit.policies.general_schedule import general_schedule
    from galaxydit.policies.online import Online
    from galaxydit.policies.schedule import FixedSteps, Schedule
    from galaxydit.policies.threshold import Threshold
    from galaxydit.profiles.registry import load_profile
    from galaxydit.profiles.schema import Profile
    from galaxydit.proxies import PROXIES, Proxy
    from galaxydit.report import CallRecord, Report
    from galaxydit.runtime.observer import Observer

__version__ = "0.1.0"

_HOMES = {
    "acceleration": (
        "Acceleration",
        "TransformerDescription",
        "accelerate",
        "apply_galaxydit",
        "describe",
        "remove",
        "remove_galaxydit",
    ),
    "calibration": ("Calibration", "calibrate"),
    "errors": (
        "FullComputeWarning",
        "GalaxyDiTError",
        "NoEffectWarning",
        "ProfileWarning",
        "UnknownFamilyWarning",
    ),
    "policies.config": ("GalaxyDiTConfig",),
    "policies.general_schedule": ("general_schedule",),
    "policies.online": ("Online",),
    "policies.schedule": ("FixedSteps", "Schedule"),
    "policies.threshold": ("Threshold",),
    "profiles.registry": ("load_profile",),
    "profiles.schema": ("Profile",),
    "proxies": ("PROXIES", "Proxy"),
    "report": ("CallRecord", "Report"),
    "runtime.observer": ("Observer",),
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "PROXIES",
    "Acceleration",
    "Calibration",
    "CallRecord",
    "FixedSteps",
    "FullComputeWarning",
    "GalaxyDiTConfig",
    "GalaxyDiTError",
    "NoEffectWarning",
    "Observer",
    "Online",
    "Profile",
    "ProfileWarning",
    "Proxy",
    "Report",
    "Schedule",
    "Threshold",
    "TransformerDescription",
    "UnknownFamilyWarning",
    "accelerate",
    "apply_galaxydit",
    "calibrate",
    "describe",
    "general_schedule",
    "load_profile",
    "remove",
    "remove_galaxydit",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `galaxydit --help` does not wait for diffusers."""
    if name not in _MODULES:
        raise AttributeError(f"module 'galaxydit' has no attribute {name!r}")
    return getattr(importlib.import_module(f"galaxydit.{_MODULES[name]}"), name)
