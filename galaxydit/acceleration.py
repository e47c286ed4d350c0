"""`accelerate`: attach the plugin to a pipeline or a transformer, and take it off again."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from torch import nn

from galaxydit.config import Config
from galaxydit.engine import Engine
from galaxydit.errors import GalaxyDiTError, NoEffectWarning
from galaxydit.families import Family, blocks_of, family_of
from galaxydit.hooks import HOOK_NAME, ClockHook, FirstBlockHook, HookSet, PartHook, RootHook, StackBlockHook
from galaxydit.planning import Planned, plan_settings
from galaxydit.profile import Profile
from galaxydit.proxies import PROXIES
from galaxydit.report import Report
from galaxydit.session import Session

COMPONENTS = ("transformer", "transformer_2")
TEXT_ENCODERS = ("text_encoder", "text_encoder_2", "text_encoder_3")


def accelerate(
    pipe: Any,
    *,
    speedup: float | None = None,
    max_error: float | None = None,
    profile: Profile | str | Path | None = None,
    threshold: float | None = None,
    proxy: str | None = None,
    warmup: float | None = None,
    config: Config | None = None,
    scheduler: Any | None = None,
) -> "Acceleration":
    """Make a diffusers pipeline, or a bare transformer, reuse the steps that change little.

    Args:
        pipe: a diffusers pipeline, or one of its transformers.
        speedup: block evaluations without the plugin / with it, at least 1; met in every generation. 2.0 if nothing
            else is said.
        max_error: largest expected relative error of a reused step, above 0; with `speedup` it wins, at the cost of
            speed.
        profile: a `Profile`, the name of a shipped one, or a file of `galaxydit calibrate`. By default the shipped one
            that belongs to this model, and without one errors are learned online.
        threshold: overrides `config.threshold`, on the proxy's distance; larger is faster, 0 changes nothing.
        proxy: overrides `config.proxy`, one of `galaxydit.PROXIES`.
        warmup: overrides `config.warmup`, share of first steps never reused.
        config: all other settings. With `config`, `threshold` or `proxy` and none of the first three, no profile is
            used.
        scheduler: for a bare transformer, the scheduler that drives it; a pipeline brings its own.

    Returns:
        An `Acceleration`, active at once; use it as a context manager or call `remove()`.

    Raises:
        GalaxyDiTError: bad settings, an unsupported transformer, or one that is accelerated or cached already; a
            damaged profile, or one of another model.
    """
    given: dict[str, Any] = {"threshold": threshold, "proxy": proxy, "warmup": warmup}
    given = {name: value for name, value in given.items() if value is not None}
    settings = replace(config or Config(), **given)
    by_hand = config is not None or threshold is not None or proxy is not None
    if by_hand and speedup is None and max_error is None and profile is None:
        return Acceleration(pipe, settings, scheduler)
    transformer = next(iter(transformers_of(pipe).values()))
    family_of(transformer)
    planned = plan_settings(
        pipe,
        transformer,
        settings,
        speedup=speedup,
        max_error=max_error,
        profile=profile,
        threshold=threshold,
        proxy=proxy,
    )
    if proxy is not None and planned.config.proxy != proxy:
        raise GalaxyDiTError(
            f"proxy={proxy!r}, and the profile was fitted to {planned.config.proxy!r}; leave proxy or profile out"
        )
    if warmup is not None:
        planned = replace(planned, config=replace(planned.config, warmup=warmup))
    acceleration = Acceleration(pipe, planned.config, scheduler)
    acceleration.follow(planned)
    return acceleration


def transformers_of(pipe: Any) -> dict[str, nn.Module]:
    """The denoising transformers of a pipeline by component name; a bare transformer is called "transformer"."""
    if isinstance(pipe, nn.Module):
        return {"transformer": unwrap_compiled(pipe)}
    found = {name: getattr(pipe, name, None) for name in COMPONENTS}
    transformers = {name: unwrap_compiled(module) for name, module in found.items() if isinstance(module, nn.Module)}
    if transformers.get("transformer") is transformers.get("transformer_2"):
        transformers.pop("transformer_2", None)
    if not transformers:
        raise GalaxyDiTError(
            f"pipe={type(pipe).__name__} has no {' or '.join(COMPONENTS)}; "
            "pass a diffusers video pipeline or its transformer"
        )
    return transformers


def unwrap_compiled(module: nn.Module) -> nn.Module:
    """The module inside a torch.compile wrapper."""
    return getattr(module, "_orig_mod", module)


class Acceleration:
    """The plugin on one pipeline: a context manager with the reports of all generations since it was attached."""

    def __init__(self, pipe: Any, config: Config, scheduler: Any | None = None) -> None:
        self.config = config
        self.profile: Profile | None = None
        self._session = Session(config, lambda: scheduler or getattr(pipe, "scheduler", None))
        self._hooks = HookSet()
        transformers = transformers_of(pipe)
        families = {name: family_of(transformer) for name, transformer in transformers.items()}
        for name, transformer in transformers.items():
            _check(name, transformer, families[name], config)
        if config.threshold == 0 and config.schedule is None and config.plan is None:
            warnings.warn("galaxydit: threshold=0 reuses nothing; raise it to go faster", NoEffectWarning, stacklevel=3)
        try:
            for name, transformer in transformers.items():
                self._attach(name, transformer, families[name])
            if not isinstance(pipe, nn.Module):
                self._attach_clocks(pipe)
        except BaseException:
            self.remove()
            raise

    def follow(self, planned: Planned) -> None:
        """Say in every report what `planned` has to remark on that generation."""
        self.profile = planned.profile
        self._session.remarks = planned.remarks

    def _attach(self, component: str, transformer: nn.Module, family: Family) -> None:
        blocks = blocks_of(transformer, family)
        engine = Engine(transformer, component, family, len(blocks), self._session)
        self._hooks.add(transformer, RootHook(engine))
        for path, hook in planned_hooks(engine, family, self.config):
            self._hooks.add(transformer.get_submodule(path), hook)
        self._hooks.refresh(transformer)

    def _attach_clocks(self, pipe: Any) -> None:
        for name in TEXT_ENCODERS:
            if isinstance(encoder := getattr(pipe, name, None), nn.Module):
                self._hooks.add(encoder, ClockHook(self._session, encodes_text=True))
        if isinstance(decoder := getattr(getattr(pipe, "vae", None), "decoder", None), nn.Module):
            self._hooks.add(decoder, ClockHook(self._session, encodes_text=False))

    @property
    def reports(self) -> list[Report]:
        """The reports of all generations, oldest first; the last may still be running."""
        current = self._session.current
        return self._session.reports + ([current.report()] if current else [])

    @property
    def report(self) -> Report:
        """The report of the last generation; raises GalaxyDiTError before the first."""
        if not self.reports:
            raise GalaxyDiTError("report does not exist yet: generate something first")
        return self.reports[-1]

    def remove(self) -> None:
        """Take the plugin off. Reports stay; removing twice does nothing."""
        self._session.close()
        self._hooks.remove()

    def __enter__(self) -> "Acceleration":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


def planned_hooks(
    engine: Engine, family: Family, config: Config
) -> Iterator[tuple[str, FirstBlockHook | StackBlockHook | PartHook]]:
    """Paths below the transformer and the hooks that these settings need there."""
    paths = [f"{stack}.{index}" for stack in family.stacks for index in range(len(getattr(engine.transformer, stack)))]
    residual = config.reuse == "residual"
    if residual or PROXIES[config.proxy].place != "transformer":
        yield paths[0], FirstBlockHook(engine)
    if residual:
        for path in paths[1:]:
            yield path, StackBlockHook(engine, is_last=path == paths[-1])
    if PROXIES[config.proxy].place == "inside first block":
        name = "self_attention" if config.proxy == "modulated_input" else config.proxy
        yield (
            f"{paths[0]}.{family.parts[name]}",
            PartHook(engine, "modulated_input" if name == "self_attention" else None, name),
        )


def _check(component: str, transformer: nn.Module, family: Family, config: Config) -> None:
    """Refuse what cannot work, before anything is attached."""
    registry = getattr(transformer, "_diffusers_hook", None)
    if registry is not None and registry.get_hook(HOOK_NAME) is not None:
        raise GalaxyDiTError(
            f"{component} is accelerated already; call remove() on the first Acceleration before the next"
        )
    if getattr(transformer, "is_cache_enabled", False):
        kind = type(getattr(transformer, "_cache_config", None)).__name__
        raise GalaxyDiTError(f"{component} has the cache {kind} enabled; call {component}.disable_cache() first")
    if config.proxy not in family.proxies:
        raise GalaxyDiTError(
            f"proxy={config.proxy!r} is not offered by {family.name}; choose one of {', '.join(sorted(family.proxies))}"
        )
    if config.reuse == "residual" and not (family.returns_tensor and len(blocks_of(transformer, family)) > 1):
        raise GalaxyDiTError(
            f"reuse='residual' needs blocks that hand on one tensor, and two of them at least; {family.name} has not; "
            "choose reuse='output'"
        )


@dataclass(frozen=True)
class TransformerDescription:
    """What `accelerate` would do to one transformer."""

    component: str
    class_name: str
    family: str
    blocks: int
    branches: str
    proxies: tuple[str, ...]
    hooked: tuple[str, ...]


def describe(pipe: Any, config: Config | None = None) -> list[TransformerDescription]:
    """Family, blocks, guidance branches and the modules that would be hooked, for each transformer of a pipeline."""
    config = config or Config()
    descriptions = []
    for component, transformer in transformers_of(pipe).items():
        family = family_of(transformer)
        blocks = blocks_of(transformer, family)
        engine = Engine(transformer, component, family, len(blocks), Session(config, lambda: None))
        hooked = (component, *(f"{component}.{path}" for path, _ in planned_hooks(engine, family, config)))
        descriptions.append(
            TransformerDescription(
                component, type(transformer).__name__, family.name, len(blocks), family.branches, family.proxies, hooked
            )
        )
    return descriptions
