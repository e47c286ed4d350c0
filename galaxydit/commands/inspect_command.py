"""`galaxydit inspect`: what the plugin would do to a pipeline."""

from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from galaxydit.commands.console import say, show, show_json
from galaxydit.commands.options import AsJson, ModelOptions, PluginOptions
from galaxydit.pipelines.table import Table

if TYPE_CHECKING:
    from galaxydit.description import TransformerDescription
    from galaxydit.pipelines.published_models import Checkpoint
    from galaxydit.profiles.schema import Profile

PSNR_UNKNOWN = "the PSNR at any speedup"
RANKING_UNKNOWN = "the ranking of the proxies on this model"


def inspect(*, plugins: PluginOptions, source: ModelOptions, as_json: AsJson = False) -> None:
    """Show what the plugin would do to a pipeline. Hooks, profile, and what is known of speed and PSNR."""
    from galaxydit.pipelines.model_names import absent_checkpoint

    if (absent := absent_checkpoint(source.model, source.revision)) is not None:
        _show_published(source.model, absent, as_json)
        return
    say(f"loading {source.model}")
    from dataclasses import asdict

    import galaxydit
    from galaxydit.calibration.profile_tables import terminal_tables
    from galaxydit.pipelines.published_models import recommended_settings
    from galaxydit.profiles.resolve import resolve
    from galaxydit.request import Request

    pipe = source.load()
    used = resolve(pipe, Request())
    parts = galaxydit.describe(pipe, used.config)
    facts = describe_profile(used.profile, used.notes)
    settings = {name: value for name, value in asdict(recommended_settings(pipe)).items() if value is not None}
    if as_json:
        data: dict[str, Any] = {"pipeline": type(pipe).__name__, "transformers": [asdict(part) for part in parts]}
        show_json(data | {"profile": facts, "recommended_settings": settings})
        return
    show(*(transformer_table(part, type(pipe).__name__) for part in parts))
    if used.profile is not None and used.profile.evidence.ranking:
        show(*terminal_tables(used.profile))
    for name, texts in facts.items():
        show(f"{name}:", *(f"  - {text}" for text in texts))
    show(_line_of(settings))


def _show_published(model: str, checkpoint: "Checkpoint", as_json: bool) -> None:
    """Show what is known of a published model without its weights."""
    from dataclasses import asdict

    from galaxydit.commands.estimate_command import headline
    from galaxydit.eval.cost.architecture import architecture_of
    from galaxydit.eval.cost.cost_estimate import estimate
    from galaxydit.eval.cost.cost_rows import estimate_table

    shape, cost = architecture_of(model), estimate(model, speedup=2.0)
    settings = {name: value for name, value in asdict(checkpoint.settings).items() if value is not None}
    unknown = "the profile, which the weights decide; without one, the general schedule plans the steps"
    if as_json:
        shown = asdict(shape) | {"calls": shape.calls}
        data = {"weights": None, "shape": shown, "recommended_settings": settings, "unknown": [unknown]}
        show_json(data | {"estimate": cost.to_dict()})
        return
    facts = {"family": shape.family, "blocks": shape.blocks, "width": shape.width, "branches": shape.branches}
    facts |= {"calls a step": shape.calls}
    show(f"the weights of {checkpoint.hub_id} are not on this machine; its published shape:")
    show(Table(("", ""), [(name, str(value)) for name, value in facts.items()], 2))
    show(headline(cost), estimate_table(cost), *cost.notes, f"unknown: {unknown}", _line_of(settings))


def _line_of(settings: dict[str, Any]) -> str:
    shown = ", ".join(f"{name} {value:g}" for name, value in settings.items() if isinstance(value, int | float))
    return f"recommended settings: {shown}"


def transformer_table(part: "TransformerDescription", pipeline: str) -> Group:
    """A table of the properties of one transformer of a pipeline, whose class name is `pipeline`."""
    facts = {"class": part.class_name, "family": part.family, "blocks": str(part.blocks), "branches": part.branches}
    facts |= {"proxies": ", ".join(part.proxies), "hooked modules": "\n".join(part.hooked)}
    return Group(Text(f"{pipeline}.{part.component}"), Table(("", ""), [*facts.items()], 2))


def describe_profile(profile: "Profile | None", notes: tuple[str, ...]) -> dict[str, list[str]]:
    """The profile in use with `notes`, and what is "known" and "unknown" of speed and quality, by heading."""
    known = ["the speedup by compute"]
    if profile is None:
        unknown = [PSNR_UNKNOWN, RANKING_UNKNOWN]
        return {"profile": [f"none: {note}" for note in notes], "known": known, "unknown": unknown}
    conditions, evidence, unknown = profile.conditions, profile.evidence, []
    psnrs = [f"{row.psnr_db:.1f} dB at {row.speedup:g}x" for row in evidence.verifications if row.psnr_db is not None]
    if psnrs:
        known.append(f"PSNR against the plain video, mean of the calibration's held-out prompts: {', '.join(psnrs)}")
    else:
        unknown.append(PSNR_UNKNOWN)
    if not evidence.ranking:
        unknown.append(RANKING_UNKNOWN)
    elif not evidence.propagation.sigmas:
        unknown.append("how errors of early steps grow")
    guidance = "" if conditions.guidance_scale is None else f", guidance scale {conditions.guidance_scale:g}"
    unknown.append(f"the PSNR at other settings than {conditions.steps} steps, {conditions.scheduler}{guidance}")
    unknown.append(f"the seconds on this machine (the profile was measured on {conditions.device})")
    source = f"{profile.name}: {profile.source}; rests on {profile.basis}"
    return {"profile": [source, *notes], "known": known, "unknown": unknown}
