"""Names of variants for readers: of a comparison the method and what sets its setting apart, else those of the job."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from galaxydit.eval.jobs.job import Job, Variant
from galaxydit.eval.jobs.record import BASELINE
from galaxydit.eval.methods.method_registry import built_in, slug_of


def titles_of(job: Job) -> Mapping[str, str]:
    """The title of each variant by its name: "SeaCache order 1, threshold 0.25" for "seacache-order-1-6aa8ed96".

    Of the options only those are shown in which the settings of the method differ. A title that two variants would
    share ends with the name of the variant.
    """
    if not job.comparison:
        return {variant.name: variant.name for variant in job.variants}
    of_method: dict[str, list[Variant]] = defaultdict(list)
    for variant in job.variants:
        of_method[variant.method].append(variant)
    methods = {slug_of(name): name for name in built_in()}
    titles = {}
    for variant in job.variants:
        differing = _differing(of_method[variant.method])
        shown = [option_text(name, value) for name, value in variant.options.items() if name in differing]
        title = ", ".join([methods.get(variant.method, variant.method), *shown])
        titles[variant.name] = variant.name if variant.name == BASELINE else title
    texts = list(titles.values())
    return {name: title if texts.count(title) == 1 else f"{title} ({name})" for name, title in titles.items()}


def option_text(name: str, value: Any) -> str:
    """An option and its value, such as "threshold 0.25"; of a path its last part."""
    return f"{name} {PurePath(value).name if isinstance(value, str) else value}"


def _differing(variants: list[Variant]) -> set[str]:
    names = {name for variant in variants for name in variant.options}
    return {name for name in names if len({repr(variant.options.get(name)) for variant in variants}) > 1}
