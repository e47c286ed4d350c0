"""Extend the job of a run by new variants, prompts and seeds."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from galaxydit.eval.jobs.job import Job

GATES = "gates"  # may change at any time, because no video depends on them


def extend(before: Job, now: Job) -> tuple[Job, Mapping[str, Any], Mapping[str, Any]]:
    """The union of two jobs, and the conditions of finished units before and now, which have to be equal.

    The prompts, seeds and variants of `before` come first and keep their places, because a prompt's place determines
    its default seeds and the names of its units. Everything else is that of `now`.
    """
    variants = {variant.name: variant for job in (before, now) for variant in job.variants}
    listed = before.seeds is not None and now.seeds is not None
    union = replace(
        now,
        prompts=_union(before.prompts, now.prompts),
        variants=tuple(variants.values()),
        seeds=_union(before.seeds or (), now.seeds or ()) if listed else now.seeds,
    )
    kept = replace(
        union,
        prompts=before.prompts,
        variants=union.variants[: len(before.variants)],
        seeds=before.seeds if listed else now.seeds,
    )
    return union, _conditions(before), _conditions(kept)


def _union(first: tuple[Any, ...], second: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys((*first, *second)))


def _conditions(job: Job) -> dict[str, Any]:
    conditions = asdict(job)
    del conditions[GATES]
    return conditions
