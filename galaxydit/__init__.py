"""Training-free acceleration of diffusers video pipelines: compute the steps that matter, reuse the others."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from galaxydit.acceleration import Acceleration, accelerate, describe
    from galaxydit.config import Config
    from galaxydit.errors import FullComputeWarning, GalaxyDiTError, NoEffectWarning, ProfileWarning
    from galaxydit.plan import Plan
    from galaxydit.profile import Profile
    from galaxydit.proxies import PROXIES
    from galaxydit.report import Report

__all__ = [
    "PROXIES",
    "Acceleration",
    "Config",
    "FullComputeWarning",
    "GalaxyDiTError",
    "NoEffectWarning",
    "Plan",
    "Profile",
    "ProfileWarning",
    "Report",
    "accelerate",
    "describe",
]
__version__ = "0.1.0"

_HOMES = {
    "Acceleration": "acceleration",
    "Config": "config",
    "FullComputeWarning": "errors",
    "GalaxyDiTError": "errors",
    "NoEffectWarning": "errors",
    "PROXIES": "proxies",
    "Plan": "plan",
    "Profile": "profile",
    "ProfileWarning": "errors",
    "Report": "report",
    "accelerate": "acceleration",
    "describe": "acceleration",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `galaxydit --help` should not wait for diffusers."""
    if name not in _HOMES:
        raise AttributeError(f"module 'galaxydit' has no attribute {name!r}")
    return getattr(importlib.import_module(f"galaxydit.{_HOMES[name]}"), name)
