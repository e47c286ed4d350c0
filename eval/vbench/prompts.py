"""VBench's own prompts."""

import json
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from galaxydit.errors import GalaxyDiTError, refusal
from galaxydit.eval.vbench.benchmark import FULL_INFO, PACKAGE


def vbench_prompts(count: int | None = None, dimensions: Sequence[str] | None = None) -> tuple[str, ...]:
    """The first `count` prompts, by default all, of these dimensions, by default of all; each once.

    They are read from the installed package (arXiv 2311.17982), which is not imported. Raises GalaxyDiTError if it is
    not there, and for an unknown dimension and for more prompts than there are.
    """
    try:
        files = distribution(PACKAGE).files or []
    except PackageNotFoundError:
        files = []
    found = [path for file in files if file.name == FULL_INFO and (path := Path(str(file.locate()))).is_file()]
    if not found:
        raise GalaxyDiTError(
            f"suite={PACKAGE!r} is not allowed: expected the installed package with its {FULL_INFO}; its prompts alone "
            f"come with `pip install --no-deps {PACKAGE}`"
        )
    entries = [entry for entry in json.loads(found[0].read_text(encoding="utf-8")) if entry.get("prompt_en")]
    known = {dimension for entry in entries for dimension in entry["dimension"]}
    wanted = known if dimensions is None else set(dimensions)
    if unknown := sorted(wanted - known):
        raise GalaxyDiTError(f"dimensions has {unknown[0]!r}: expected some of {', '.join(sorted(known))}")
    prompts = tuple(dict.fromkeys(entry["prompt_en"] for entry in entries if wanted & set(entry["dimension"])))
    if count is not None and count > len(prompts):
        raise refusal("count", count, f"at most the {len(prompts)} prompts that there are", "take fewer")
    return prompts[:count]
