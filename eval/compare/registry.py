"""The names of all compared methods, each with its source, the paper or project that the method comes from.

Listing and checking names needs no torch; `every_method.py` has the methods themselves.

Methods run in this order: controls, other projects' methods, this project's methods, ablations of its default.
"""

import re
from collections.abc import Sequence
from importlib.util import find_spec

from galaxydit.errors import did_you_mean, refusal

ALL, PUBLISHED, ABLATIONS = GROUPS = "all", "published", "ablations"
ABLATION = "ablation"  # the source of ablations
OWN = "this project"  # the source of the plugin's default and of its policies, with a profile and without

NAMES_BY_SOURCE = {
    "control": [
        "fewer steps",
        "repeated plain run",
        "optimised noise levels",
        "plain at scheduled levels",
        "uniform skip order 0",
        "uniform skip order 1",
        "step list",
        "searched schedule",
    ],
    "ParaAttention; diffusers": ["FirstBlockCache"],
    "MagCache, arXiv 2506.09045; diffusers": ["MagCache", "MagCache published"],
    "TaylorSeer, arXiv 2503.06923; diffusers": ["TaylorSeer", "TaylorSeer published"],
    "HiCache, arXiv 2508.16984": ["HiCache published"],
    "SeaCache, arXiv 2602.18993; diffusers": ["SeaCache order 0", "SeaCache order 1", "SeaCache published"],
    "FasterCache, arXiv 2410.19355; diffusers": ["FasterCache", "FasterCache published"],
    "cache-dit (github.com/vipshop/cache-dit)": ["DBCache", "DBCache + TaylorSeer", "DBCache joint CFG"],
    "arXiv 2411.19108": ["TeaCache", "TeaCache published"],
    "arXiv 2507.02860": ["EasyCache", "EasyCache published"],
    "arXiv 2508.17356": ["DiCache", "DiCache published"],
    "arXiv 2609.36433": ["RA-CFGCache", "RA-CFGCache published"],
    "arXiv 2508.21091": ["ERTACache", "ERTACache published"],
    "arXiv 2504.03140": ["ProfilingDiT", "ProfilingDiT published"],
    "GalaxyDiT, arXiv 2512.03451": ["galaxydit paper", "galaxydit paper branches alone"],
    OWN: [
        "galaxydit proxy",
        "galaxydit schedule",
        "galaxydit",
        "galaxydit proxy without a profile",
        "galaxydit without a profile",
    ],
    ABLATION: [
        "last full step repeated",
        "without correction",
        "residual reused",
        "first fifth computed",
        "expected error instead of a budget",
        "exact predictions",
    ],
}
METHOD_SOURCES = {name: source for source, names in NAMES_BY_SOURCE.items() for name in names}
NEEDS = {name: "cache_dit" for name, source in METHOD_SOURCES.items() if "cache-dit" in source}
"""Modules that must be importable, by the names of the methods that need them."""


def source_of(name: str) -> str:
    """The source of a method as text, such as "arXiv 2411.19108" or "control"; "" for an unknown method.

    In `name`, a space and the name of a profile file may follow the method's name.
    """
    known = [method for method in METHOD_SOURCES if name == method or name.startswith(f"{method} ")]
    return METHOD_SOURCES[max(known, key=len)] if known else ""


def slug_of(name: str) -> str:
    """The name of a method in lower case with hyphens, for files and job files: "uniform-skip-order-0"."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def is_installed(module: str | None) -> bool:
    """Whether the module that a method needs can be imported; True for None, a method that needs no further module."""
    return module is None or find_spec(module) is not None


def check_methods(names: Sequence[str]) -> None:
    """Raise GalaxyDiTError for an empty list, an unknown name, and a method whose package is not installed.

    Known names are those of the methods and of the groups of methods, GROUPS.
    """
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
