"""`galaxydit families`: the families of transformers, the features of each, and the models that are not accepted."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated

import typer

from galaxydit.commands.console import say, show, show_json
from galaxydit.commands.options import AsJson, PluginOptions
from galaxydit.errors import refusal
from galaxydit.unsupported import U_NET, UNSUPPORTED

Row = dict[str, str]


def families(
    *,
    plugins: PluginOptions,
    name: Annotated[str, typer.Argument(help="Show only names that contain this, such as wan or Cosmos.")] = "",
    as_json: AsJson = False,
) -> None:
    """Show what the plugin offers to each family of transformers. Models not accepted follow, with the reason."""
    say("loading diffusers")
    accepted, refused = (_with(name, rows) for rows in (family_rows(), unsupported_rows()))
    if not accepted and not refused:
        raise refusal("name", name, "part of the name of a family or a transformer", "leave it out to show all of them")
    if as_json:
        show_json({"accepted": accepted, "not_accepted": refused})
    else:
        for row in accepted:
            marks = [name for name, value in row.items() if value == "yes"]
            facts = (f"profiles: {row['profiles']}", f"run with trained weights: {row['run with trained weights']}")
            offers = (row["guidance"], f"reuse {row['reuse']}", *facts, ", ".join(marks))
            show(f"{row['family']}: {row['transformer']}", f"  {'; '.join(filter(None, offers))}")
        if refused:
            show("not accepted:", *(f"  {row['not accepted']}: {row['because']}" for row in refused))


def _with(name: str, rows: Sequence[Row]) -> list[Row]:
    """The rows of families or refused models whose names contain the text `name`, whatever its case."""
    names = ("family", "transformer", "not accepted")
    return [row for row in rows if any(name.casefold() in row.get(key, "").casefold() for key in names)]


def family_rows() -> list[Row]:
    """A row by heading for each family: class, guidance, reuse, profiles, trained weights and features."""
    import diffusers

    from galaxydit.families import FAMILIES
    from galaxydit.profiles.profile_registry import shipped_profiles

    profiles = defaultdict(list)
    for profile in shipped_profiles():
        profiles[profile.model.class_name].append(profile.name)
    rows = []
    for family in FAMILIES.values():
        kind = getattr(diffusers, family.class_name, None)  # a plugin may have a class of its own
        row = {
            "family": family.name,
            "transformer": family.class_name,
            "guidance": family.branches,
            "reuse": "output, residual" if family.is_chain else "output",
            "profiles": ", ".join(profiles[family.class_name]) or "general schedule",
            "run with trained weights": ", ".join(profiles[family.class_name]) or "never",
            "LoRA": "yes" if hasattr(kind, "load_lora_adapter") else "no",
            "regional compile": "yes" if getattr(kind, "_repeated_blocks", None) else "no",
            "context parallel": "yes" if getattr(kind, "_cp_plan", None) else "no",
        }
        rows.append(row)
    return rows


def unsupported_rows() -> list[Row]:
    """A row by heading for each reason to refuse models."""
    names = defaultdict(list, {U_NET: ["any pipeline with a U-Net, such as AnimateDiff or Stable Video Diffusion"]})
    for name, reason in UNSUPPORTED.items():
        names[reason].append(name)
    return [{"not accepted": ", ".join(sorted(group)), "because": reason} for reason, group in names.items()]
