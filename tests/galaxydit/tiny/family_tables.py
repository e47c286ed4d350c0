"""The tables of families in galaxydit/README.md, with the pipelines of the installed diffusers.

`python tests/galaxydit/tiny/family_tables.py` prints them as Markdown.
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from galaxydit.commands.families_command import Row, family_rows, unsupported_rows
from galaxydit.unsupported import UNSUPPORTED


@cache
def video_pipelines() -> dict[str, set[str]]:
    """The video pipelines of the installed diffusers without a U-Net, modular ones included, and their transformers.

    They are read from the source, because importing all of them takes a minute and leaves out those whose own
    requirements are not installed.
    """
    import diffusers

    root = Path(diffusers.__file__).parent
    pipelines: dict[str, set[str]] = {}
    for path in sorted((root / "pipelines").rglob("*.py")):
        pipelines.update(_pipelines_in(ast.parse(path.read_text(encoding="utf-8"))))
    for folder in sorted(path for path in (root / "modular_pipelines").iterdir() if path.is_dir()):
        source = "\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py")))
        if 'OutputParam.template("videos"' in source:
            transformers = set(re.findall(r"ComponentSpec\([^,]+,\s*(\w*Transformer\w*)", source))
            steps = r"^class (\w+)DenoiseStep\((?:.(?!\nclass ))*transformer_cls=(\w+)"
            own = dict(re.findall(steps, source, re.MULTILINE | re.DOTALL))
            for name in re.findall(r"^class (\w+)ModularPipeline\(", source, re.MULTILINE):
                pipelines[f"{name}ModularPipeline"] = {own[name]} if name in own else transformers
    return pipelines


def _pipelines_in(module: ast.Module) -> Iterator[tuple[str, set[str]]]:
    """Names of the video pipelines of a module that have no U-Net, and of their transformers."""
    for node in module.body:
        if not isinstance(node, ast.ClassDef) or not re.search(r"Pipeline\b", ast.unparse(node).partition("\n")[0]):
            continue
        methods = [item for item in node.body if isinstance(item, ast.FunctionDef)]
        taken = {item.name: [*item.args.args, *item.args.kwonlyargs] for item in methods}
        if not {"__call__", "__init__"} <= taken.keys() or any(part.arg == "unet" for part in taken["__init__"]):
            continue
        names = {argument.arg for argument in taken["__call__"]} - {"frame_size"}  # of an image
        if "Video" in node.name or any("frame" in name or "video" in name for name in names):
            parts = [ast.unparse(part) for part in taken["__init__"] if part.arg.startswith("transformer")]
            yield node.name, set(re.findall(r"\w*Transformer\w*", " ".join(parts)))


def rows_with_pipelines() -> list[Row]:
    """The rows of `family_rows` with the pipelines of each family in place of its transformer."""
    users = defaultdict(list)
    for pipeline, transformers in video_pipelines().items():
        for name in transformers:
            if pipeline not in UNSUPPORTED:
                users[name].append(pipeline.removesuffix("Pipeline"))
    return [
        {"family": row["family"], "pipelines": ", ".join(sorted(users[row["transformer"]]))}
        | {name: value for name, value in row.items() if name not in ("family", "transformer")}
        for row in family_rows()
    ]


def to_markdown(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    heading, *lines = [f"| {' | '.join(cells)} |" for cells in (rows[0], *(row.values() for row in rows))]
    return "\n".join([heading, "|" + "---|" * len(rows[0]), *lines])


if __name__ == "__main__":
    sys.stdout.write("\n\n".join(to_markdown(rows) for rows in (rows_with_pipelines(), unsupported_rows())) + "\n")
