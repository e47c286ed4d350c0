"""What the rows of a measuring command depend on, so that no command goes on with rows of another state."""

import json
from pathlib import Path
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.errors import refusal
from galaxydit.files import split_digest, write_json
from galaxydit.pipelines.conditions import code_identity, package_versions, weights_of

CONDITIONS = "conditions"  # the key in a file of rows, and the name of the file in a folder of rows


def conditions_now(pipe: DiffusionPipeline) -> dict[str, Any]:
    """Versions of packages, this project's code, and hashes of the pipeline's weights by component."""
    return {"versions": package_versions(), "code": code_identity(), "weights": weights_of(pipe)}


def resumed(path: Path, pipe: DiffusionPipeline) -> dict[str, Any]:
    """The content of the JSON file at `path` without its digest; the conditions alone if there is no file.

    Raises GalaxyDiTError if it was measured under other conditions.
    """
    now = conditions_now(pipe)
    if not path.exists():
        return {CONDITIONS: now}
    content, _ = split_digest(json.loads(path.read_text(encoding="utf-8")))
    known = content.get(CONDITIONS, {})
    changed = [name for name, value in now.items() if known.get(name) != value]
    if changed:
        expected = f"a new file, or rows of the same versions, code and weights; other {' and '.join(changed)}"
        raise refusal("--out", str(path), expected, "take a new --out")
    return content


def bind_folder(folder: Path, pipe: DiffusionPipeline) -> None:
    """Make a folder of rows, with a file of their conditions.

    Raises GalaxyDiTError if it has rows of other or unknown conditions.
    """
    path = folder / f"{CONDITIONS}.json"
    if folder.exists() and not path.exists() and any(folder.iterdir()):
        raise refusal("--out", str(folder), f"a new folder, or one with {path.name}", "take a new --out")
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, resumed(path, pipe))
