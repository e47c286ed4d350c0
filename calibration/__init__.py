"""Calibration: record generations, rank proxies, fit errors, plan speedups, verify, and build the profile."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from galaxydit.calibration.calibration import Calibration, calibrate
    from galaxydit.calibration.recording import Recording
    from galaxydit.calibration.samples import read_prompts
    from galaxydit.calibration.verify import VerifiedPrompt

_MODULES = {
    "Calibration": "calibration",
    "Recording": "recording",
    "VerifiedPrompt": "verify",
    "calibrate": "calibration",
    "read_prompts": "samples",
}

__all__ = ["Calibration", "Recording", "VerifiedPrompt", "calibrate", "read_prompts"]


def __getattr__(name: str) -> Any:
    """Imported when it is asked for: diffusers takes seconds to load."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"galaxydit.calibration.{_MODULES[name]}"), name)
