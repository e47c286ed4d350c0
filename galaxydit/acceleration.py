"""`accelerate`: attach the plugin to a pipeline or a transformer, and remove it again."""

import warnings
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from galaxydit.config import GalaxyDiTConfig
from galaxydit.description import refuse_unworkable
from galaxydit.energy import meter_of
from galaxydit.errors import GalaxyDiTError, NoEffectWarning, check_choice, check_count, refusal
from galaxydit.families import family_of, transformers_of, unwrap_compiled
from galaxydit.other_caches import forward_of_another
from galaxydit.outcome import Goal
from galaxydit.policies.proxy_threshold import ProxyThreshold
from galaxydit.policies.schedule import Schedule
from galaxydit.profiles.conditions import notes_and_warnings
from galaxydit.profiles.resolve import Settings, resolve
from galaxydit.profiles.schema import Profile
from galaxydit.proxies import PROXIES
from galaxydit.report import Report
from galaxydit.request import AUTO, LOSSLESS, Request
from galaxydit.runtime.engine import Engine
from galaxydit.runtime.hooks import RootHook, module_hooks
from galaxydit.runtime.observer import Observer
from galaxydit.runtime.registration import HookSet, hook_of
from galaxydit.runtime.session import DEFAULT_REPORTS, Session
from galaxydit.runtime.source import Source
from galaxydit.runtime.timing import EdgeHook


def accelerate(
    pipe: Any,
    *,
    speedup: float | None = None,
    policy: str = AUTO,
    max_error: float | None = None,
    profile: Profile | str | Path | None = None,
    threshold: float | None = None,
    min_psnr: float | None = None,
    quality: str | None = None,
    proxy: str | None = None,
    warmup: float | None = None,
    config: GalaxyDiTConfig | None = None,
    scheduler: Any | None = None,
    keep_reports: int | None = DEFAULT_REPORTS,
) -> "Acceleration":
    """Make a diffusers pipeline, or a bare transformer, reuse the steps that change little.

    The steps that are still computed are the full steps. A proxy is a cheap tensor whose change shows how much the
    output of the transformer is about to change. A profile holds measurements of one model, usually those of a
    calibration (`galaxydit calibrate`), and the full steps planned from them.

    Args:
        pipe: a diffusers pipeline, or one of its transformers.
        speedup: block evaluations without the plugin, divided by those with it; from 1 to the number of steps divided
            by the number of always-computed steps. Every generation reaches this speedup, except generations of 8 steps
            or fewer, which are computed in full. By default 2.0. With the default, and with `quality` or `min_psnr`,
            generations of fewer than 0.28 times the profile's steps are also computed in full.
        policy: how full steps are chosen for a speedup. "schedule" computes planned steps. "proxy" is GalaxyDiT's
            (arXiv 2512.03451): it reuses while the model's proxy has moved less than a threshold, which the profile's
            calibration solved for this speedup, or which is learned during the generation. "auto" takes the policy
            that did better on the held-out prompts of the profile's calibration, and "schedule" if the calibration did
            not compare them.
        max_error: largest expected relative error of a reused step, at least 0. A step whose expected error is larger
            is computed, even if `speedup` is then missed.
        profile: a `Profile`, the name of a shipped profile, or a file of `galaxydit calibrate`. By default the shipped
            profile of this model; without a profile, `general_schedule` plans full steps, and `max_error` learns errors
            during the generation.
        threshold: for manual tuning, the rule of arXiv 2512.03451: the first fifth of the steps is computed, then steps
            are reused while the summed change of the proxy is below the threshold. Larger is faster, 0 reuses nothing.
        min_psnr: instead of a speedup, a PSNR against the plain video in dB. On held-out prompts, the profile's
            calibration measured the mean PSNR at some speedups. The plugin takes the largest of these speedups where
            the lower end of the mean's 95 % interval is at least `min_psnr`. Needs a measured profile, and promises a
            mean, not each video.
        quality: instead of a speedup, "lossless" (every step is computed), or a name for a speedup: "high" (1.5),
            "balanced" (2.0) or "fast" (3.0).
        proxy: one of `galaxydit.PROXIES`; by default the proxy of the profile if it was measured, else the proxy of the
            best published quality that this kind of transformer offers (`galaxydit.profiles.resolve.documented_proxy`).
        warmup: share of first steps that are always computed, in [0, 1]; by default the share that the profile sets for
            the speedup; without a profile, 0.2 or 0.4 / speedup, whichever is less; with `threshold`, or with
            `max_error` and no speedup, 0.2.
        config: all settings, instead of the arguments from `speedup` to `warmup`.
        scheduler: for a bare transformer, the scheduler that drives it; a pipeline has its own. Without a scheduler,
            full steps do not correct the error of the reused steps before them (`GalaxyDiTConfig.correction`), and
            calls can be reused only inside a `cache_context` that gives the step (`apply_galaxydit`).
        keep_reports: how many reports `Acceleration.reports` keeps; None keeps all.

    Returns:
        An `Acceleration`, active at once; use it as a context manager or call `remove()`.

    Raises:
        GalaxyDiTError: settings are not allowed, contradict each other, or are given together with `config`; no plan
            can serve the speedup; the profile did not measure the PSNR; the transformer is unsupported, or accelerated
            or cached already; the profile is damaged, or belongs to another model.
    """
    request = Request(speedup, policy, max_error, threshold, min_psnr, quality, profile, proxy, warmup)
    if config is not None and not isinstance(config, GalaxyDiTConfig):
        raise refusal("config", config, "a GalaxyDiTConfig", "pass for example GalaxyDiTConfig(Threshold(0.1))")
    if config is not None and request != Request():
        given = [field.name for field in fields(Request) if getattr(request, field.name) != field.default]
        raise GalaxyDiTError(f"config is given together with {', '.join(given)}", "pass either config or these")
    is_scheduler = hasattr(scheduler, "timesteps") or hasattr(scheduler, "set_timesteps")
    if scheduler is not None and (isinstance(scheduler, type) or not is_scheduler):
        raise refusal("scheduler", scheduler, "an instance of a diffusers scheduler", "pass for example pipe.scheduler")
    if keep_reports is not None:
        check_count("keep_reports", keep_reports, minimum=1)
    if proxy is not None:
        check_choice("proxy", proxy, tuple(PROXIES))
    settings = Settings(config) if config is not None else resolve(pipe, request)
    acceleration = Acceleration(
        pipe,
        settings.config,
        scheduler,
        profile=settings.profile,
        notes=settings.notes,
        warnings=settings.warnings,
        goal=settings.goal,
        keep_reports=keep_reports,
    )
    if settings.config.history_length == 0 and quality != LOSSLESS:
        warnings.warn("galaxydit: threshold=0 reuses nothing; raise it to go faster", NoEffectWarning, stacklevel=2)
    return acceleration


def apply_galaxydit(
    transformer: nn.Module, config: GalaxyDiTConfig | None = None, *, scheduler: Any | None = None
) -> "Acceleration":
    """Attach the plugin to one transformer, in the manner of diffusers' `apply_*` hooks; return the `Acceleration`.

    `config` has the settings, by default `GalaxyDiTConfig()`. `scheduler` is the scheduler that drives the transformer.
    Without a `scheduler`, a call can be reused only inside diffusers' `transformer.cache_context("cond",
    step_index=..., num_inference_steps=..., sigma=...)`, which states the guidance branch and the step. Raises the
    errors of `accelerate`. `remove_galaxydit(transformer)` removes the plugin again.
    """
    return accelerate(transformer, config=config or GalaxyDiTConfig(), scheduler=scheduler)


def remove_galaxydit(transformer: nn.Module) -> None:
    """Remove the plugin from a transformer and from the rest of its pipeline; without the plugin, do nothing."""
    hook = hook_of(unwrap_compiled(transformer))
    if isinstance(hook, RootHook):
        hook.engine.session.close()
        hook.hooks.remove()


def remove(pipe: Any) -> None:
    """Remove the plugin from a pipeline or a transformer whose `Acceleration` was not kept."""
    for transformer in transformers_of(pipe).values():
        remove_galaxydit(transformer)


class Acceleration:
    """The plugin attached to one pipeline: a context manager that keeps the reports of its generations.

    Args:
        pipe: the pipeline, or a bare transformer.
        config: the settings.
        scheduler: for a bare transformer, the scheduler that drives it.
        profile: the profile that `config` was made from. The report of each generation says how its conditions differ
            from the conditions under which the profile was measured.
        notes: sentences that are added to every report.
        warnings: sentences that are added to every report and also raised as Python warnings.
        goal: the request of the user, such as a speedup; None if the user passed `config`.
        observer: receives the tensors of every transformer call.
        engine: called once for each transformer with the arguments of `Engine`, the class that decides whether a call
            of the transformer is computed or predicted; pass a subclass to decide or predict in another way.
        keep_reports: how many reports of generations are kept; None keeps all.
    """

    def __init__(
        self,
        pipe: Any,
        config: GalaxyDiTConfig,
        scheduler: Any | None = None,
        *,
        profile: Profile | None = None,
        notes: tuple[str, ...] = (),
        warnings: tuple[str, ...] = (),
        goal: Goal | None = None,
        observer: Observer | None = None,
        engine: Callable[..., Engine] = Engine,
        keep_reports: int | None = DEFAULT_REPORTS,
    ) -> None:
        self.config = config
        self.profile = profile
        transformers = transformers_of(pipe)
        families = {name: family_of(transformer) for name, transformer in transformers.items()}
        for name, transformer in transformers.items():
            refuse_unworkable(name, transformer, families[name], config)
        self._pipe, self._transformers = pipe, transformers
        source = Source(pipe, next(iter(transformers.values())), scheduler)
        meter_of(source.device)  # opened now, because that takes seconds, which would count in a generation
        schedule = config.policy.schedule if isinstance(config.policy, ProxyThreshold) else config.policy
        short_in_full = isinstance(schedule, Schedule) and schedule.fewest_steps > 0
        compared = None if profile is None else partial(notes_and_warnings, profile, short_in_full)
        self._session = Session(config, source, notes, compared, keep_reports, warnings, goal)
        self._hooks = HookSet()
        self._hooks.timesteps = getattr(source.scheduler, "timesteps", None)
        self._entered = 0  # how many `with` blocks are open
        try:
            for name, transformer in transformers.items():
                own = engine(transformer, name, families[name], self._session, observer)
                self._hooks.add(transformer, RootHook(own, self._hooks), is_root=True)
                for path, hook in module_hooks(own):
                    self._hooks.add(transformer.get_submodule(path), hook)
                self._hooks.refresh()
            if not isinstance(pipe, nn.Module):
                self._attach_edges(pipe)
        except BaseException:
            self.remove()
            raise

    def __repr__(self) -> str:
        source = "no profile" if self.profile is None else f"profile {self.profile.name!r}"
        return f"<Acceleration of {type(self._pipe).__name__}: {type(self.config.policy).__name__}, {source}>"

    def _attach_edges(self, pipe: Any) -> None:
        encoders = [getattr(pipe, name, None) for name in ("text_encoder", "text_encoder_2", "text_encoder_3")]
        decoder = getattr(getattr(pipe, "vae", None), "decoder", None)
        for module in (*encoders, decoder):
            if isinstance(module, nn.Module):
                self._hooks.add(module, EdgeHook(self._session, self._missed, encodes_text=module is not decoder))

    def _replaced(self) -> str:
        """Error text if a hooked transformer was replaced in the pipeline, else an empty string."""
        if isinstance(self._pipe, nn.Module) or not self._hooks.are_attached:
            return ""
        for name, transformer in self._transformers.items():
            now = getattr(self._pipe, name, None)
            if isinstance(now, nn.Module) and all(module is not transformer for module in now.modules()):
                return (
                    f"{type(self._pipe).__name__}.{name} was replaced after accelerate(), so galaxydit is not on it: "
                    "call remove() on the Acceleration, and accelerate(pipe) again"
                )
        return ""

    def _missed(self) -> str:
        """Why the pipeline's last generation did not reach the plugin, else an empty string.

        The scheduler shows that a generation ran: its timesteps were set anew since the last call of a hooked
        transformer.
        """
        timesteps = getattr(self._session.source.scheduler, "timesteps", None)
        if self._hooks.are_attached and timesteps is not self._hooks.timesteps:
            for name, transformer in self._transformers.items():
                reached = getattr(hook_of(transformer), "around", None)
                if forward_of_another(transformer) is not None and vars(transformer)["forward"] is not reached:
                    return (
                        f"{name}.forward was replaced after accelerate(), so a generation ran without galaxydit: undo "
                        f"this (`del {name}.forward`), call remove() on the Acceleration, and accelerate(pipe) again"
                    )
        return self._replaced()

    @property
    def reports(self) -> list[Report]:
        """The reports of the last `keep_reports` finished generations and of the one under way, oldest first."""
        return self._session.reports

    @property
    def report(self) -> Report:
        """The report of the last generation that reached the plugin. Raises GalaxyDiTError before the first one, and
        if a transformer of the pipeline was replaced since, because the plugin is not attached to the new one.
        """
        if replaced := self._replaced():
            raise GalaxyDiTError(replaced)
        missed = self._missed()
        if not self.reports:
            raise GalaxyDiTError(missed or "report does not exist yet: generate something first")
        if missed:
            self._session.warn_and_note(missed)
        return self.reports[-1]

    def remove(self) -> None:
        """Remove the plugin. Reports stay; removing twice does nothing."""
        if missed := self._missed():
            self._session.warn_and_note(missed)
        self._session.close()
        self._hooks.remove()

    def __enter__(self) -> "Acceleration":
        if not self._hooks.are_attached:
            raise GalaxyDiTError("this Acceleration was removed, so it does nothing; call accelerate() again")
        self._entered += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._entered -= 1
        if self._entered == 0:
            self.remove()
