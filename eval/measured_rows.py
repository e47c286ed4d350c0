"""What the rows of a measuring command depend on, so that no command goes on with rows of another state."""

import json
from pathlib import Path
from typing import Any

from diffusers import DiffusionPipeline
from torch import nn

from galaxydit.errors import refusal
from galaxydit.files import split_digest
from galaxydit.pipelines.conditions import code_identity, hash_weights, package_versions

CONDITIONS = "conditions"  # the key of a file of rows, and the file of a folder of rows


def conditions_now(pipe: DiffusionPipeline) -> dict[str, Any]:
    """Versions of packages, this project's code, and hashes of the pipeline's weights by component."""
    parts = {name: part for name, part in pipe.components.items() if isinstance(part, nn.Module)}
    weights = {name: hash_weights(part) for name, part in parts.items()}
    return {"versions": package_versions(), "code": code_identity(), "weights": weights}


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
