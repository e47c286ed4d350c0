"""Every method by name, with its source. Lists and refusals need no torch; `every_method.py` has the methods.

Methods run in this order: controls, other projects', this project's, its ablations.
"""

import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec

from galaxydit.errors import did_you_mean, refusal

ALL, PUBLISHED, ABLATIONS = GROUPS = "all", "published", "ablations"
ABLATION = "ablation"
"""The source of ablations."""

METHOD_SOURCES: Mapping[str, str] = {
    "fewer steps": "control",
    "plain again": "control",
    "chosen steps": "control",
    "uniform skip order 0": "control",
    "uniform skip order 1": "control",
    "step list": "control",
    "searched schedule": "control",
    "FirstBlockCache": "ParaAttention; diffusers",
    "MagCache": "MagCache, arXiv 2506.09045; diffusers",
    "MagCache published": "MagCache, arXiv 2506.09045; diffusers",
    "TaylorSeer": "TaylorSeer, arXiv 2503.06923; diffusers",
    "TaylorSeer published": "TaylorSeer, arXiv 2503.06923; diffusers",
    "HiCache published": "HiCache, arXiv 2508.16984",
    "SeaCache order 0": "SeaCache, arXiv 2602.18993; diffusers",
    "SeaCache order 1": "SeaCache, arXiv 2602.18993; diffusers",
    "SeaCache published": "SeaCache, arXiv 2602.18993; diffusers",
    "PAB": "Pyramid Attention Broadcast, arXiv 2408.12588; diffusers",
    "FasterCache": "FasterCache, arXiv 2410.19355; diffusers",
    "FasterCache published": "FasterCache, arXiv 2410.19355; diffusers",
    "DBCache": "cache-dit (github.com/vipshop/cache-dit)",
    "DBCache + TaylorSeer": "cache-dit (github.com/vipshop/cache-dit)",
    "DBCache joint CFG": "cache-dit (github.com/vipshop/cache-dit)",
    "TeaCache": "arXiv 2411.19108",
    "TeaCache published": "arXiv 2411.19108",
    "EasyCache": "arXiv 2507.02860",
    "EasyCache published": "arXiv 2507.02860",
    "DiCache": "arXiv 2508.17356",
    "DiCache published": "arXiv 2508.17356",
    "RA-CFGCache": "arXiv 2609.36433",
    "RA-CFGCache published": "arXiv 2609.36433",
    "galaxydit paper": "GalaxyDiT, arXiv 2512.03451",
    "galaxydit paper branches alone": "GalaxyDiT, arXiv 2512.03451",
    "galaxydit": "this project",
    "galaxydit without a profile": "this project",
    "last full step repeated": ABLATION,
    "residual reused": ABLATION,
    "first fifth computed": ABLATION,
    "expected error instead of a budget": ABLATION,
}
NEEDS: Mapping[str, str] = {name: "cache_dit" for name, source in METHOD_SOURCES.items() if "cache-dit" in source}
"""Modules that must be importable, by the names of the methods that need them."""


def slug_of(name: str) -> str:
    """The name of a method in lower case with hyphens, for files and job files: "uniform-skip-order-0"."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def is_installed(module: str | None) -> bool:
    """Whether the module that a method needs, if any, can be imported."""
    return module is None or find_spec(module) is not None


def check_methods(names: Sequence[str]) -> None:
    """Raise GalaxyDiTError for no name, for an unknown one, and for a method whose package is not installed."""
    wrong = [name for name in names if name not in METHOD_SOURCES and name not in GROUPS]
    if wrong or not names:
        given = wrong[0] if wrong else ""
        expected = f"{', '.join(GROUPS)}, or names of methods with commas"
        cure = f"`galaxydit compare --list` shows them{did_you_mean(given, [*METHOD_SOURCES, *GROUPS])}"
        raise refusal("methods", given, expected, cure)
    for name in names:
        if not is_installed(module := NEEDS.get(name)):
            cure = "pip install 'galaxydit[bench]', or leave the method out"
            raise refusal("methods", name, f"methods whose packages are installed, and {module} is not", cure)
