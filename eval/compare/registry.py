"""Every method, and the choice among them by name. A new method is a file in `methods/` and a line here."""

from collections.abc import Sequence

from galaxydit.eval.compare.method import Method
from galaxydit.eval.compare.methods import (
    ablations,
    chosen_steps,
    db_cache,
    dicache,
    easycache,
    faster_cache,
    fewer_steps,
    first_block_cache,
    galaxydit_methods,
    hicache,
    mag_cache,
    pyramid_attention_broadcast,
    ra_cfgcache,
    schedule_search,
    sea_cache,
    step_list,
    taylorseer,
    teacache,
    uniform_skip,
)

ALL, PUBLISHED, ABLATIONS = GROUPS = "all", "published", "ablations"


EVERY_METHOD = (
    fewer_steps.METHOD,
    chosen_steps.METHOD,
    *uniform_skip.METHODS,
    step_list.METHOD,
    schedule_search.METHOD,
    first_block_cache.METHOD,
    *mag_cache.METHODS,
    *taylorseer.METHODS,
    hicache.METHOD,
    *sea_cache.METHODS,
    pyramid_attention_broadcast.METHOD,
    *faster_cache.METHODS,
    *db_cache.METHODS,
    *teacache.METHODS,
    *easycache.METHODS,
    *dicache.METHODS,
    *ra_cfgcache.METHODS,
    *galaxydit_methods.METHODS,
    *ablations.METHODS,
)
"""In the order in which they run: controls, other projects', this project's, its ablations."""


def choose_methods(names: Sequence[str], methods: Sequence[Method] = EVERY_METHOD) -> tuple[Method, ...]:
    """The methods of these names, in the order of `methods`.

    "published" stands for the methods at published settings, "ablations" for the ablations, and "all" for all others
    whose packages are installed. Raises ValueError for an unknown name, and for a method whose package is missing.
    """
    known = {method.name: method for method in methods}
    unknown = [name for name in names if name not in known and name not in GROUPS]
    if unknown or not names:
        given = ", ".join(repr(name) for name in unknown) or "empty"
        raise ValueError(f"methods is {given}, allowed are {', '.join(GROUPS)} or some of: {'; '.join(known)}")
    missing = [known[name] for name in names if name in known and not known[name].is_available]
    if missing:
        raise ValueError(
            f"method {missing[0].name!r} needs {missing[0].needs}, which is not installed: "
            "pip install 'galaxydit[bench]', or leave the method out"
        )

    def is_chosen(method: Method) -> bool:
        group = ABLATIONS if method.source == ablations.SOURCE else ALL if method.tuned else PUBLISHED
        return method.name in names or (group in names and method.is_available)

    return tuple(method for method in methods if is_chosen(method))
