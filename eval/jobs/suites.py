"""Named sets of prompts."""

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.vbench.benchmark import FULL_INFO, PACKAGE

WAN_TINY = "wan-tiny"
MOST_PROMPTS = 10_000  # so many captions are drawn in a minute
SUITES = (WAN_TINY, PACKAGE)


def suite_prompts(
    name: str, *, count: int | None = None, seed: int = 0, dimensions: Sequence[str] | None = None
) -> tuple[str, ...]:
    """The prompts of a suite, each once.

    name: "wan-tiny", captions of the embedded model's toy world that training never showed, drawn with `seed`; or
        "vbench" (arXiv 2311.17982), as the installed package lists them.
    count: how many, from the first; "wan-tiny" needs it.
    dimensions: keep the prompts of these dimensions of VBench.

    Raises GalaxyDiTError for an option that does not suit the suite and for a package that is not installed.
    """
    if name == WAN_TINY:
        if count is None:
            raise GalaxyDiTError(f"count is missing: expected a whole number from 1 to {MOST_PROMPTS}")
        from galaxydit.pipelines.wan_tiny.world import draw_prompts

        return tuple(draw_prompts(count, seed))
    entries = _vbench_entries()
    if dimensions is not None:
        known = sorted({dimension for entry in entries for dimension in entry["dimension"]})
        unknown = [dimension for dimension in dimensions if dimension not in known]
        if unknown:
            raise GalaxyDiTError(f"dimensions has {unknown[0]!r}: expected some of {', '.join(known)}")
        entries = [entry for entry in entries if set(dimensions) & set(entry["dimension"])]
    prompts = tuple(dict.fromkeys(entry["prompt_en"] for entry in entries))
    if count is not None and count > len(prompts):
        raise GalaxyDiTError(
            f"count={count} is not allowed: expected at most the {len(prompts)} prompts that there are"
        )
    return prompts[:count]


def _vbench_entries() -> list[Mapping[str, Any]]:
    """Prompts with their dimensions, read from the package without importing it or what it needs."""
    try:
        files = distribution(PACKAGE).files or []
    except PackageNotFoundError:
        files = []
    found = [Path(str(file.locate())) for file in files if file.name == FULL_INFO]
    if not found or not found[0].is_file():
        raise GalaxyDiTError(
            f"suite={PACKAGE!r} is not allowed: expected the installed package {PACKAGE} with its {FULL_INFO}; its "
            f"prompts alone come with `pip install --no-deps {PACKAGE}`"
        )
    entries = json.loads(found[0].read_text(encoding="utf-8"))
    return [entry for entry in entries if entry.get("prompt_en")]
