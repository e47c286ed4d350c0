"""`galaxydit families`: which diffusers video pipelines are accepted, and what each family combines with."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated

import typer

from galaxydit.commands.console import show, show_json, working
from galaxydit.commands.options import AsJson
from galaxydit.errors import refusal
from galaxydit.unsupported import U_NET, UNSUPPORTED

Row = dict[str, str]


def families(
    name: Annotated[str, typer.Argument(help="Only what has this in its name, such as wan or Cosmos.")] = "",
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown, as in the README.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show which pipelines each family has and what they combine with, then what is not accepted, and why."""
    with working("reading diffusers"):
        accepted, refused = (_with(name, rows) for rows in (family_rows(), unsupported_rows()))
    if not accepted and not refused:
        raise refusal("name", name, "part of the name of a family or a pipeline", "leave it out for all of them")
    if as_json:
        show_json({"accepted": accepted, "not_accepted": refused})
    elif markdown:
        show("\n\n".join(to_markdown(rows) for rows in (accepted, refused) if rows))
    else:
        for row in accepted:
            marks = [name for name, value in row.items() if value == "yes"]
            offers = (row["guidance"], f"reuse {row['reuse']}", f"profiles: {row['profiles']}", ", ".join(marks))
            show(f"{row['family']}: {row['pipelines']}", f"  {'; '.join(filter(None, offers))}")
        show(
            *(["not accepted:"] if refused else []), *(f"  {row['not accepted']}: {row['because']}" for row in refused)
        )


def _with(name: str, rows: Sequence[Row]) -> list[Row]:
    """The rows that hold this in the name of a family or of a pipeline."""
    names = ("family", "pipelines", "not accepted")
    return [row for row in rows if any(name.casefold() in row.get(key, "").casefold() for key in names)]


@cache
def video_pipelines() -> dict[str, set[str]]:
    """The video pipelines of the installed diffusers without a U-Net, modular ones included, and their transformers.

    They are read from the source, because importing all of them takes a minute and leaves out those whose own
    requirements are not installed.
    """
    import diffusers

    root = Path(diffusers.__file__).parent
    found: dict[str, set[str]] = {}
    for path in sorted((root / "pipelines").rglob("pipeline_*.py")):
        found.update(_pipelines_in(ast.parse(path.read_text(encoding="utf-8"))))
    for folder in sorted(path for path in (root / "modular_pipelines").iterdir() if path.is_dir()):
        source = "\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py")))
        if 'OutputParam.template("videos"' in source:
            transformers = set(re.findall(r"ComponentSpec\([^,]+,\s*(\w*Transformer\w*)", source))
            found |= dict.fromkeys(re.findall(r"^class (\w+ModularPipeline)\(", source, re.MULTILINE), transformers)
    return found


def _pipelines_in(module: ast.Module) -> Iterator[tuple[str, set[str]]]:
    """Names of the video pipelines of a module that have no U-Net, and of their transformers."""
    for node in module.body:
        if not isinstance(node, ast.ClassDef) or not node.name.endswith("Pipeline"):
            continue
        methods = [item for item in node.body if isinstance(item, ast.FunctionDef)]
        taken = {item.name: [*item.args.args, *item.args.kwonlyargs] for item in methods}
        if not {"__call__", "__init__"} <= taken.keys() or any(part.arg == "unet" for part in taken["__init__"]):
            continue
        names = {argument.arg for argument in taken["__call__"]} - {"frame_size"}  # of an image
        if "Video" in node.name or any("frame" in name or "video" in name for name in names):
            parts = [ast.unparse(part) for part in taken["__init__"] if part.arg.startswith("transformer")]
            yield node.name, set(re.findall(r"\w*Transformer\w*", " ".join(parts)))


def family_rows() -> list[Row]:
    """One row per family: what its diffusers class offers, by heading."""
    import diffusers

    from galaxydit.families import FAMILIES
    from galaxydit.profiles.registry import shipped_profiles

    users = defaultdict(list)
    for pipeline, transformers in video_pipelines().items():
        for name in transformers:
            if pipeline not in UNSUPPORTED:
                users[name].append(pipeline.removesuffix("Pipeline"))
    profiles = defaultdict(list)
    for profile in shipped_profiles():
        profiles[profile.model.class_name].append(profile.name)
    rows = []
    for family in FAMILIES.values():
        kind = getattr(diffusers, family.class_name)
        row = {
            "family": family.name,
            "pipelines": ", ".join(sorted(users[family.class_name])),
            "guidance": family.branches,
            "reuse": "output, residual" if family.is_chain else "output",
            "profiles": ", ".join(profiles[family.class_name]) or "general schedule",
            "LoRA": "yes" if hasattr(kind, "load_lora_adapter") else "no",
            "regional compile": "yes" if getattr(kind, "_repeated_blocks", None) else "no",
            "context parallel": "yes" if getattr(kind, "_cp_plan", None) else "no",
        }
        rows.append(row)
    return rows


def unsupported_rows() -> list[Row]:
    """What is refused by name, one row per reason, by heading."""
    names = defaultdict(list, {U_NET: ["any pipeline with a U-Net, such as AnimateDiff or Stable Video Diffusion"]})
    for name, reason in UNSUPPORTED.items():
        names[reason].append(name)
    return [{"not accepted": ", ".join(sorted(group)), "because": reason} for reason, group in names.items()]


def to_markdown(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    heading, *lines = [f"| {' | '.join(cells)} |" for cells in (rows[0], *(row.values() for row in rows))]
    return "\n".join([heading, "|" + "---|" * len(rows[0]), *lines])
