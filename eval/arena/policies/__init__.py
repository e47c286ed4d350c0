"""Methods without code for diffusers, as small policies on hooks of their own.

Each file is one method: its decision rule on plain numbers, its calibration where it needs one, and its settings. What
touches tensors while generating is in `attachment.py`, for all of them. Nothing is copied from the authors' code.
"""

from galaxydit.eval.arena.method import Method
from galaxydit.eval.arena.policies import dicache, easycache, ertacache, profiling_dit, ra_cfgcache, teacache

METHODS: tuple[Method, ...] = (
    teacache.METHOD,
    easycache.METHOD,
    dicache.METHOD,
    ertacache.METHOD,
    profiling_dit.METHOD,
    ra_cfgcache.METHOD,
)
