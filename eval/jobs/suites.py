"""Named sets of prompts."""

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from galaxydit.errors import GalaxyDiTError

WAN_TINY = "wan-tiny"
BENCHMARKS = {"vbench": "VBench_full_info.json", "vbench2": "VBench2_full_info.json"}
MOST_PROMPTS = 10_000  # so many captions are drawn in a minute
SUITES = (WAN_TINY, *BENCHMARKS)


def suite_prompts(
    name: str, *, count: int | None = None, seed: int = 0, dimensions: Sequence[str] | None = None
) -> tuple[str, ...]:
    """The prompts of a suite, each once.

    name: "wan-tiny", captions of the embedded model's toy world that training never showed, drawn with `seed`; or
        "vbench" (arXiv 2311.17982) and "vbench2" (arXiv 2503.21755), as their installed packages list them.
    count: how many, from the first; "wan-tiny" needs it.
    dimensions: keep the prompts of these dimensions of a benchmark.

    Raises GalaxyDiTError for an option that does not suit the suite and for a package that is not installed.
    """
    if name == WAN_TINY:
        if count is None:
            raise GalaxyDiTError(f"count is missing: expected a whole number from 1 to {MOST_PROMPTS}")
        from galaxydit.pipelines.wan_tiny.world import draw_prompts

        return tuple(draw_prompts(count, seed))
    entries = _entries(name)
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


def _entries(package: str) -> list[Mapping[str, Any]]:
    """Prompts with their dimensions, read from the package without importing it or what it needs."""
    try:
        files = distribution(package).files or []
    except PackageNotFoundError as error:
        raise GalaxyDiTError(
            f"suite is {package!r}, whose package is not installed: its prompts alone come with "
            f"`pip install --no-deps {package}`"
        ) from error
    found = [Path(str(file.locate())) for file in files if file.name == BENCHMARKS[package]]
    if not found or not found[0].is_file():
        raise GalaxyDiTError(f"suite is {package!r}, whose package lacks {BENCHMARKS[package]}: install it again")
    entries = json.loads(found[0].read_text(encoding="utf-8"))
    return [entry for entry in entries if entry.get("prompt_en")]
