"""Every method, and the choice among them by name. A new method is a file in `methods/`, a line here and one in
`catalogue.py`.
"""

from collections.abc import Sequence

from galaxydit.eval.compare.catalogue import ABLATION, ABLATIONS, ALL, PUBLISHED, check_methods
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
    whose packages are installed. Raises GalaxyDiTError as `check_methods` does.
    """
    check_methods(names, [method.name for method in methods], {method.name: method.needs for method in methods})

    def is_chosen(method: Method) -> bool:
        group = ABLATIONS if method.source == ABLATION else ALL if method.tuned else PUBLISHED
        return method.name in names or (group in names and method.is_available)

    return tuple(method for method in methods if is_chosen(method))
