"""`galaxydit families`: the families of transformers, the features of each, and the models that are not accepted."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from galaxydit.commands.conclusion import NextCommand, conclude
from galaxydit.commands.console import say, show, show_json
from galaxydit.commands.options import AsJson, PluginOptions
from galaxydit.errors import refusal
from galaxydit.pipelines.table import DASH
from galaxydit.unsupported import U_NET, UNSUPPORTED

SHORT = {"regional compile": "compile", "context parallel": "several GPUs"}
CLASS_WIDTH = 28  # columns that class names take at least, of which longer ones take two lines
Row = dict[str, str]
TRY_FIRST = {  # the smallest published model of a family, by the family's name
    "Wan": "wan2.1-t2v-1.3b",
    "Wan VACE": "wan2.1-vace-1.3b",
    "Wan Animate": "wan2.2-animate-14b",
    "SkyReels-V2": "skyreels-v2-t2v-14b-540p",
    "Cosmos": "cosmos-predict2.5-2b",
    "HunyuanVideo": "hunyuanvideo",
    "HunyuanVideo 1.5": "hunyuanvideo-1.5-t2v-480p",
    "CogVideoX": "cogvideox-2b",
    "LTX-Video": "ltx-video",
    "LTX-2": "ltx-2",
    "Mochi": "mochi-1",
    "Kandinsky 5": "kandinsky-5-t2v-lite",
    "Kandinsky 6": "kandinsky-6-pro",
    "SANA-Video": "sana-video-2b-480p",
    "MiniMax-H3": "minimax-h3",
}


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
        with_models = [{**row, "try": TRY_FIRST.get(row["family"], "")} for row in accepted]
        show_json({"accepted": with_models, "not_accepted": refused})
    elif not name:
        show(family_table(accepted), "Not accepted:")
        show(*(f"  {row['not accepted']}: {row['because']}" for row in refused), "")
        example = NextCommand("see more of one family", ["families", "wan"])
        conclude([], "A general schedule serves each family; a calibration plans better steps for a model.", example)
    else:
        for row in accepted:
            marks = [name for name, value in row.items() if value == "yes"]
            facts = (f"profiles: {row['profiles']}", f"run with trained weights: {row['run with trained weights']}")
            offers = (row["guidance"], f"reuse {row['reuse']}", *facts, ", ".join(marks))
            show(f"{row['family']}: {row['transformer']}", f"  {'; '.join(filter(None, offers))}")
            if model := TRY_FIRST.get(row["family"]):
                show(f"  try {model}, such as `galaxydit inspect --model {model}`")
        if refused:
            show("not accepted:", *(f"  {row['not accepted']}: {row['because']}" for row in refused))


def family_table(rows: Sequence[Row]) -> Table:
    """Two lines for each family: its name and transformer class, and beside them what works and the model to try."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(Text("family\ntransformer class"), overflow="fold", min_width=CLASS_WIDTH)
    table.add_column(Text("works with\npublished model to try first"), overflow="fold")
    for row in rows:
        works = ", ".join([SHORT.get(name, name) for name, value in row.items() if value == "yes"]) or "its pipelines"
        if row["run with trained weights"] != "never":
            works += f", profile {row['profiles']}"
        names = Text(row["family"], style="bold").append(f"\n{row['transformer']}", style="not bold")
        table.add_row(names, Text(f"{works}\n{TRY_FIRST.get(row['family'], DASH)}"))
    return table


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
