"""`galaxydit families`: which diffusers video pipelines are accepted, and what each family combines with."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from galaxydit.commands.console import show, working
from galaxydit.unsupported import UNSUPPORTED

if TYPE_CHECKING:
    from galaxydit.families import Family

NO_VIDEO = ("frame_size",)
"""Arguments of pipelines that speak of frames but not of a video."""


def families() -> None:
    """Show the families as a Markdown table: pipelines, reuse, shipped profiles, and what they combine with."""
    with working("reading diffusers"):
        table = family_table()
    show(table, "", unsupported_table())


@cache
def video_pipelines() -> dict[str, set[str]]:
    """The video pipelines of the installed diffusers, modular ones included, and the classes of their transformers.

    They are read from the source, because importing all of them takes a minute and leaves out those whose own
    requirements are not installed.
    """
    spec = find_spec("diffusers")
    root = Path(str(spec and spec.origin)).parent
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
    """Names of the video pipelines of a module, and of their transformers."""
    for node in module.body:
        if not isinstance(node, ast.ClassDef) or not node.name.endswith("Pipeline"):
            continue
        methods = {
            item.name: [*item.args.args, *item.args.kwonlyargs]
            for item in node.body
            if isinstance(item, ast.FunctionDef)
        }
        if "__call__" not in methods or "__init__" not in methods:
            continue
        names = [argument.arg for argument in methods["__call__"] if argument.arg not in NO_VIDEO]
        if "Video" in node.name or any("frame" in name or "video" in name for name in names):
            annotations = [
                ast.unparse(argument.annotation)
                for argument in methods["__init__"]
                if argument.annotation is not None and argument.arg.startswith("transformer")
            ]
            yield node.name, set(re.findall(r"\w*Transformer\w*", " ".join(annotations)))


def family_table() -> str:
    """One row per family, in Markdown."""
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
    lines = [
        "| family | pipelines | guidance | reuse | profiles | LoRA | regional compile | context parallel |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for family in FAMILIES.values():
        kind = getattr(diffusers, family.class_name)
        marks = [
            hasattr(kind, "load_lora_adapter"),
            bool(getattr(kind, "_repeated_blocks", None)),
            bool(getattr(kind, "_cp_plan", None)),
        ]
        cells = [
            family.name,
            ", ".join(sorted(users[family.class_name])),
            family.branches,
            reuse_kinds(family),
            ", ".join(profiles[family.class_name]) or "learned online",
            *("yes" if mark else "no" for mark in marks),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def reuse_kinds(family: "Family") -> str:
    """The values of `reuse` that a family takes."""
    return "output, residual" if family.is_chain else "output"


def unsupported_table() -> str:
    """What is refused by name, one row per reason, in Markdown."""
    names = defaultdict(list)
    for name, reason in UNSUPPORTED.items():
        names[reason].append(name)
    rows = [f"| {', '.join(sorted(group))} | {reason} |" for reason, group in names.items()]
    return "\n".join(["| not accepted | because |", "|---|---|", *rows])
