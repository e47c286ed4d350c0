"""Training-free acceleration of diffusers video pipelines: compute the steps that matter, reuse the others."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from galaxydit.acceleration import Acceleration as Acceleration
    from galaxydit.acceleration import accelerate as accelerate
    from galaxydit.acceleration import apply_galaxydit as apply_galaxydit
    from galaxydit.acceleration import remove as remove
    from galaxydit.acceleration import remove_galaxydit as remove_galaxydit
    from galaxydit.calibration.calibration import Calibration as Calibration
    from galaxydit.calibration.calibration import calibrate as calibrate
    from galaxydit.calibration.learn import learn as learn
    from galaxydit.config import GalaxyDiTConfig as GalaxyDiTConfig
    from galaxydit.description import TransformerDescription as TransformerDescription
    from galaxydit.description import describe as describe
    from galaxydit.errors import DataWarning as DataWarning
    from galaxydit.errors import ExtrapolationWarning as ExtrapolationWarning
    from galaxydit.errors import FullComputeWarning as FullComputeWarning
    from galaxydit.errors import GalaxyDiTError as GalaxyDiTError
    from galaxydit.errors import NoEffectWarning as NoEffectWarning
    from galaxydit.errors import ProfileWarning as ProfileWarning
    from galaxydit.errors import UnknownFamilyWarning as UnknownFamilyWarning
    from galaxydit.eval.cost.cost_estimate import Estimate as Estimate
    from galaxydit.eval.cost.cost_estimate import estimate as estimate
    from galaxydit.extrapolation import Reuse as Reuse
    from galaxydit.pipelines.loading import load_pipeline as load_pipeline
    from galaxydit.pipelines.recommended_call import use_recommended_settings as use_recommended_settings
    from galaxydit.plugins import Registry
    from galaxydit.plugins import load_plugin as load_plugin
    from galaxydit.policies.general_schedule import general_schedule as general_schedule
    from galaxydit.policies.online import Online as Online
    from galaxydit.policies.schedule import FixedSteps as FixedSteps
    from galaxydit.policies.schedule import Schedule as Schedule
    from galaxydit.policies.threshold import Threshold as Threshold
    from galaxydit.profiles.noise_levels import NoiseLevels as NoiseLevels
    from galaxydit.profiles.noise_levels import noise_levels as noise_levels
    from galaxydit.profiles.profile_registry import load_profile as load_profile
    from galaxydit.profiles.schema import Profile as Profile
    from galaxydit.proxies import Proxy as Proxy
    from galaxydit.report import CallRecord as CallRecord
    from galaxydit.report import Report as Report
    from galaxydit.runtime.observer import Observer as Observer


PROXIES: "Registry[Proxy]"
"""All proxies by name, such as "block_residual"; a new entry, or a plugin, adds one."""

__version__ = "0.3.0"

_NAMES = {
    "acceleration": "Acceleration accelerate apply_galaxydit remove remove_galaxydit",
    "calibration.calibration": "Calibration calibrate",
    "calibration.learn": "learn",
    "description": "TransformerDescription describe",
    "config": "GalaxyDiTConfig",
    "errors": (
        "DataWarning ExtrapolationWarning FullComputeWarning GalaxyDiTError NoEffectWarning ProfileWarning "
        "UnknownFamilyWarning"
    ),
    "eval.cost.cost_estimate": "Estimate estimate",
    "extrapolation": "Reuse",
    "pipelines.loading": "load_pipeline",
    "pipelines.recommended_call": "use_recommended_settings",
    "plugins": "load_plugin",
    "policies.general_schedule": "general_schedule",
    "policies.online": "Online",
    "policies.schedule": "FixedSteps Schedule",
    "policies.threshold": "Threshold",
    "profiles.noise_levels": "NoiseLevels noise_levels",
    "profiles.profile_registry": "load_profile",
    "profiles.schema": "Profile",
    "proxies": "PROXIES Proxy",
    "report": "CallRecord Report",
    "runtime.observer": "Observer",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOMES)


if not TYPE_CHECKING:  # type checkers would accept any name

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used, so that `galaxydit --help` does not wait for diffusers."""
        if name not in _HOMES:
            raise AttributeError(f"module 'galaxydit' has no attribute {name!r}")
        return getattr(importlib.import_module(f"galaxydit.{_HOMES[name]}"), name)
