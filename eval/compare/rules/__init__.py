"""Methods without code for diffusers, as small policies on hooks of their own.

Each file is one method: its decision rule on plain numbers, its calibration where it needs one, and its settings. What
touches tensors while generating is in `attachment.py`, for all of them. Nothing is copied from the authors' code.
"""

from dataclasses import replace
from pathlib import Path

from diffusers import DiffusionPipeline

from galaxydit.eval.arena.attach import code_identity
from galaxydit.eval.arena.method import Method
from galaxydit.eval.arena.policies import dicache, easycache, ertacache, profiling_dit, ra_cfgcache, teacache


def source_identity(pipe: DiffusionPipeline) -> str:
    """The policies' source: their results are void once it changes."""
    return code_identity(sorted(Path(__file__).parent.glob("*.py")))


METHODS: tuple[Method, ...] = tuple(
    replace(module.METHOD, identity=source_identity)
    for module in (teacache, easycache, dicache, ertacache, profiling_dit, ra_cfgcache)
)
