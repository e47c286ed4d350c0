"""The settings of the arguments of `accelerate`, `Acceleration.set` and `Acceleration.using`, checked."""

import warnings
from dataclasses import fields
from typing import Any

from galaxydit.config import GalaxyDiTConfig
from galaxydit.errors import GalaxyDiTError, NoEffectWarning, check_choice, check_count, refusal
from galaxydit.profiles.resolve import resolve
from galaxydit.profiles.settings import Settings
from galaxydit.proxies import PROXIES
from galaxydit.request import LOSSLESS, Request


def settings_for(pipe: Any, request: Request, config: GalaxyDiTConfig | None) -> Settings:
    """The settings of a request or of `config`; warns of a threshold that reuses nothing. Raises GalaxyDiTError for
    both together, and the errors of `resolve`."""
    if config is not None and not isinstance(config, GalaxyDiTConfig):
        raise refusal("config", config, "a GalaxyDiTConfig", "pass for example GalaxyDiTConfig(Threshold(0.1))")
    if config is not None and request != Request():
        given = [field.name for field in fields(Request) if getattr(request, field.name) != field.default]
        raise GalaxyDiTError(f"config is given together with {', '.join(given)}", "pass either config or these")
    if request.proxy is not None:
        check_choice("proxy", request.proxy, tuple(PROXIES))
    settings = Settings(config) if config is not None else resolve(pipe, request)
    if settings.config.history_length == 0 and request.quality != LOSSLESS:
        warnings.warn("galaxydit: threshold=0 reuses nothing; raise it to go faster", NoEffectWarning, stacklevel=3)
    return settings


def check_attaching(scheduler: Any, keep_reports: Any, on_report: Any) -> None:
    """Raise GalaxyDiTError for one of these arguments that is not allowed."""
    is_scheduler = hasattr(scheduler, "timesteps") or hasattr(scheduler, "set_timesteps")
    if scheduler is not None and (isinstance(scheduler, type) or not is_scheduler):
        raise refusal("scheduler", scheduler, "an instance of a diffusers scheduler", "pass for example pipe.scheduler")
    if keep_reports is not None:
        check_count("keep_reports", keep_reports, minimum=1)
    if on_report is not None and not callable(on_report):
        raise refusal("on_report", on_report, "a function of a report", "pass for example on_report=print")
