"""`accelerate`: attach the plugin to a pipeline or a transformer, and remove it again."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from torch import nn

from galaxydit.config import GalaxyDiTConfig
from galaxydit.description import refuse_accelerated, refuse_unworkable
from galaxydit.energy import meter_of
from galaxydit.errors import GalaxyDiTError, check_count, check_keywords, proposing, refusal
from galaxydit.profiles.resolve import Settings, settings_for
from galaxydit.profiles.schema import Profile
from galaxydit.proxies import Proxy, ProxyName
from galaxydit.report import Report
from galaxydit.request import AUTO, PolicyName, QualityName, Request, RequestArguments
from galaxydit.runtime.attachment import Attachment, Attachments
from galaxydit.runtime.engine import Engine
from galaxydit.runtime.hooks import RootHook, missed, replaced
from galaxydit.runtime.listener import Listener
from galaxydit.runtime.loop_watch import LoopWatch
from galaxydit.runtime.observer import Observer
from galaxydit.runtime.recognition import family_of, transformers_of, unwrap_compiled
from galaxydit.runtime.registration import HookSet, hook_of
from galaxydit.runtime.scheduler_arguments import check_outputs, check_schedulers
from galaxydit.runtime.session import DEFAULT_REPORTS, Session
from galaxydit.runtime.source import Source
from galaxydit.runtime.timing import edge_hooks


@proposing
def accelerate(
    pipe: Any,
    *,
    speedup: float | None = None,
    policy: PolicyName = AUTO,
    max_error: float | None = None,
    profile: Profile | str | Path | None = None,
    threshold: float | None = None,
    min_psnr: float | None = None,
    quality: QualityName | None = None,
    proxy: ProxyName | Proxy | None = None,
    warmup: float | None = None,
    few_steps: int | None = None,
    config: GalaxyDiTConfig | None = None,
    scheduler: Any | None = None,
    schedulers: Sequence[Any] = (),
    keep_reports: int | None = DEFAULT_REPORTS,
    on_report: Callable[[Report], None] | None = None,
) -> "Acceleration":
    """Make a diffusers pipeline, or a bare transformer, reuse the steps that change little.

    Args:
        pipe: a diffusers pipeline, or one of its transformers.
        speedup: block evaluations without the plugin, divided by those with it, at least 1; by default 2.0. Generations
            of 8 steps or fewer are computed in full, without a profile those of 25 or fewer; by default, and for
            `quality` or `min_psnr`, those of fewer than 0.28 times the profile's steps. `few_steps` replaces all this.
        policy: how full steps are chosen. "schedule" computes planned steps; "proxy" computes them earlier or later
            where the sample's proxy moves faster or slower than the calibration's mean, or than its own so far, and
            never has more than one full step more or fewer than the plan; "auto" takes the better one of the profile's
            calibration, else "schedule"; "paper" repeats the last full step's residual, uncorrected, by `threshold` or
            a calibration.
        max_error: largest expected relative error of a reused step, at least 0, even if `speedup` is then missed.
        profile: a `Profile`, a file of `galaxydit calibrate`, "hf://owner/name" on the Hugging Face Hub, or the name
            of a shipped profile; by default that of this model, else `general_schedule` plans full steps.
        threshold: for manual tuning, as in arXiv 2512.03451: after the first fifth, steps are reused while the summed
            change of the proxy is below it. Larger is faster, 0 reuses nothing; reuse as there: `policy="paper"`.
        min_psnr: instead of a speedup, a PSNR against the plain video in dB: the largest speedup whose mean PSNR on the
            calibration's held-out prompts has a 95 % interval above it. Needs a measured profile.
        quality: instead of a speedup, "lossless" (every step is computed), or a name for a speedup: "high" (1.5),
            "balanced" (2.0) or "fast" (3.0).
        proxy: the name of one of `galaxydit.PROXIES`, or a `galaxydit.Proxy` of one's own; by default the profile's,
            else `profiles.configure.documented_proxy`.
        warmup: share of first steps that are always computed, in [0, 1]; by default the profile's for the speedup,
            without one at most 0.04, and with `threshold`, "paper" or `max_error` alone 0.2.
        few_steps: generations of this many steps or fewer are computed in full, at least 0, and no others for the
            number of their steps.
        config: all settings, instead of the arguments from `speedup` to `few_steps`.
        scheduler: for a bare transformer, the scheduler that drives it; without, see `apply_galaxydit`. A tuple has
            one for each output, in their order, such as (video, audio).
        schedulers: further ones that drive the transformer, such as those of other pipelines that share it; tuples as
            for `scheduler`.
        keep_reports: how many reports `Acceleration.reports` keeps; None keeps all.
        on_report: called with the report of each generation when it ends, for example to log it. An error is warned of.

    Returns an `Acceleration`, active at once; use it as a context manager or call `remove()`. Raises GalaxyDiTError for
    settings that are not allowed, contradict each other or cannot be served, a transformer that is unsupported,
    accelerated or cached already, and a profile that is damaged or another model's.
    """
    request = Request(speedup, policy, max_error, threshold, min_psnr, quality, profile, proxy, warmup, few_steps)
    check_schedulers(scheduler, schedulers)
    if keep_reports is not None:
        keep_reports = check_count("keep_reports", keep_reports, minimum=1)
    if on_report is not None and not callable(on_report):
        raise refusal("on_report", on_report, "a function of a report", "pass for example on_report=print")
    settings = settings_for(pipe, request, config)
    return Acceleration(
        pipe, settings, scheduler, schedulers=schedulers, keep_reports=keep_reports, on_report=on_report
    )


@proposing
def apply_galaxydit(
    transformer: nn.Module, config: GalaxyDiTConfig | None = None, *, scheduler: Any | None = None
) -> "Acceleration":
    """Attach the plugin to one transformer, in the manner of diffusers' `apply_*` hooks; return the `Acceleration`.

    Without a `scheduler`, nothing is corrected, and a call can be reused only inside diffusers' `cache_context("cond",
    step_index=..., num_inference_steps=..., sigma=...)` of the transformer. Raises the errors of `accelerate`.
    """
    return accelerate(transformer, config=config or GalaxyDiTConfig(), scheduler=scheduler)


def remove_galaxydit(transformer: nn.Module) -> None:
    """Remove the plugin from a transformer and the rest of its pipeline."""
    if isinstance(hook := hook_of(unwrap_compiled(transformer)), RootHook):
        hook.detach()


def remove(pipe: Any) -> None:
    """Remove the plugin from a pipeline or a transformer whose `Acceleration` was not kept."""
    for transformer in transformers_of(pipe).values():
        remove_galaxydit(transformer)


class Acceleration:
    """The plugin attached to one pipeline: a context manager that keeps the reports of its generations.

    `observer` gets the tensors of every call, a subclass of `Engine` decides in another way; others: see `accelerate`.
    """

    def __init__(
        self,
        pipe: Any,
        settings: Settings | GalaxyDiTConfig,
        scheduler: Any | None = None,
        *,
        schedulers: Sequence[Any] = (),
        observer: Observer | None = None,
        engine: Callable[..., Engine] = Engine,
        keep_reports: int | None = DEFAULT_REPORTS,
        on_report: Callable[[Report], None] | None = None,
    ) -> None:
        transformers = transformers_of(pipe)
        self._families = {name: family_of(transformer) for name, transformer in transformers.items()}
        for name, transformer in transformers.items():
            refuse_accelerated(name, transformer)
        self._pipe, self._transformers, self._observer, self._engine = pipe, transformers, observer, engine
        given = (*(() if scheduler is None else (scheduler,)), *schedulers)
        for family in self._families.values():
            check_outputs(given, family)
        first = scheduler[0] if isinstance(scheduler, tuple) else scheduler
        self._source = Source(pipe, next(iter(transformers.values())), first)
        self._session = Session(self._source, keep_reports, Listener(on_report))
        workable = self._workable(settings if isinstance(settings, Settings) else Settings(settings))
        self._attachments = Attachments(self._attachment(workable))
        meter_of(self._source.device)  # opened now, because that takes seconds, which would count in a generation
        self._hooks = HookSet()
        self._hooks.timesteps = getattr(self._source.scheduler, "timesteps", None)
        self._entered: list[None] = []  # an entry for each open `with` block, in any thread
        self._watch = LoopWatch(pipe, given)
        try:
            for name, transformer in transformers.items():
                hook = RootHook(name, self._attachments, self._watch, self._hooks, self._detach)
                self._hooks.add(transformer, hook, is_root=True)
                if hasattr(transformer, "enable_cache"):
                    self._hooks.cover(transformer, "enable_cache", hook, hook.refuse_cache)
            self._attachments.base.place()
            for module, hook in edge_hooks(pipe, self._session, self._missed):
                self._hooks.add(module, hook)
        except BaseException:
            self.remove()
            raise

    def _workable(self, settings: Settings) -> Settings:
        """These settings. Raises GalaxyDiTError if a transformer's family lacks their proxy or reuse."""
        for name, transformer in self._transformers.items():
            refuse_unworkable(transformer, self._families[name], settings.config)
        return settings

    def _attachment(self, settings: Settings) -> Attachment:
        engines = {}
        for name, transformer in self._transformers.items():
            family = self._families[name]
            engines[name] = self._engine(transformer, name, family, self._session, settings.config, self._observer)
        return Attachment(self._session, settings.terms(), engines, settings)

    def __repr__(self) -> str:
        source = "no profile" if self.profile is None else f"profile {self.profile.name!r}"
        return f"<Acceleration of {type(self._pipe).__name__}: {type(self.config.policy).__name__}, {source}>"

    def _missed(self) -> str:
        return missed(self._pipe, self._transformers, self._hooks, getattr(self._source.scheduler, "timesteps", None))

    @property
    def config(self) -> GalaxyDiTConfig:
        return self._attachments.base.config

    @property
    def profile(self) -> Profile | None:
        """The profile that the settings come from; reports say how a generation differs from its conditions."""
        profile: Profile | None = self._attachments.base.settings.profile
        return profile

    def set(self, *, config: GalaxyDiTConfig | None = None, **request: Unpack[RequestArguments]) -> None:
        """Take the settings of a new `accelerate` with these arguments and, by default, the profile given before. A
        generation that is under way keeps its own. Raises the errors of `accelerate`."""
        self._attachments.replace(partial(self._attachment, self._requested(config, {**request})))

    def using(
        self, *, config: GalaxyDiTConfig | None = None, **request: Unpack[RequestArguments]
    ) -> AbstractContextManager[Attachment]:
        """Context manager for one request: generations that this thread or asyncio task begins inside have the settings
        of `set` with these arguments. It yields their `config`, `report` and `reports`; these join
        `Acceleration.reports` at its end. Raises the errors of `accelerate`."""
        return self._attachments.opened(partial(self._attachment, self._requested(config, {**request})))

    def _requested(self, config: GalaxyDiTConfig | None, arguments: dict[str, Any]) -> Settings:
        self._attachments.refuse_removed()
        check_keywords("set() or using()", arguments, [field.name for field in fields(Request)] + ["config"])
        given: dict[str, Any] = {"profile": None if config else self._attachments.base.settings.given}
        request = Request(**given | arguments)
        return self._workable(settings_for(self._pipe, request, config))

    @property
    def reports(self) -> list[Report]:
        """The reports of the last `keep_reports` finished generations and of the one under way, oldest first."""
        return self._session.reports()

    @property
    def report(self) -> Report:
        """The last generation's. Raises GalaxyDiTError before the first, and if a transformer was replaced since."""
        if text := replaced(self._pipe, self._transformers, self._hooks):
            raise GalaxyDiTError(text)
        text = self._missed()
        if not self.reports:
            raise GalaxyDiTError(text or "report does not exist yet: generate something first")
        if text:
            self._session.warn_and_note(text)
        return self.reports[-1]

    def remove(self) -> None:
        """Remove the plugin. Reports stay; removing twice does nothing."""
        if text := self._missed():
            self._session.warn_and_note(text)
        self._detach()

    def _detach(self) -> None:
        self._attachments.remove(self._hooks, self._watch.remove)

    def __enter__(self) -> "Acceleration":
        self._attachments.refuse_removed()
        self._entered.append(None)
        return self

    def __exit__(self, *_: object) -> None:
        self._entered.pop()
        if not self._entered:
            self.remove()
