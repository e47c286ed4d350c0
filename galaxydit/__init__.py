"""Training-free acceleration of diffusers video pipelines: compute the steps that matter, reuse the others."""

from galaxydit.acceleration import Acceleration, accelerate, describe
from galaxydit.config import Config
from galaxydit.errors import FullComputeWarning, GalaxyDiTError, NoEffectWarning
from galaxydit.proxies import PROXIES
from galaxydit.report import Report

__all__ = [
    "PROXIES",
    "Acceleration",
    "Config",
    "FullComputeWarning",
    "GalaxyDiTError",
    "NoEffectWarning",
    "Report",
    "accelerate",
    "describe",
]
__version__ = "0.1.0"
