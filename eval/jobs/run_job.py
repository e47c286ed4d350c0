"""Open the store of a job, and make the units of the job that the store lacks."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.jobs.job import Job, calibration_of
from galaxydit.foreign_text import logger_of
from galaxydit.pipelines.inputs import hash_files
from galaxydit.pipelines.runs import (
    Executor,
    InProcess,
    Outcome,
    Progress,
    Record,
    Store,
    Unit,
    more_to_come,
    name_stage,
    not_checked,
    results,
    run,
)
from galaxydit.validation import parse

logger = logger_of(__name__)

KIND = "job"
FILES = "files"  # hashes of the files that prompts name, beside the job in run.json


def open_run(root: str | Path, job: Job) -> Store:
    """The store of a job, created or extended by prompts, seeds and variants.

    Raises GalaxyDiTError, before anything is written, if the folder holds anything else, the job changes what finished
    units depend on, or a file of a prompt is missing or has changed.
    """
    store = Store(root)
    extend_run(store, job)
    return store


def extend_run(store: Store, job: Job) -> Mapping[str, Any] | None:
    """`open_run` of a store; returns the conditions before, None if the folder was empty."""
    return store.revise(KIND, lambda before: _union(store, before, job)[1])


def withdraw(store: Store, before: Mapping[str, Any], job: Job) -> None:
    """Restore the conditions of `before` a refused extension, unless its units are recorded or run.json has changed."""

    def units(job: Job) -> set[str]:
        return {unit.id for unit in (*calibration_units(job), *job.units())}

    added = units(job) - units(_job_of(store, before))

    def restored(now: Mapping[str, Any] | None) -> Mapping[str, Any]:
        is_alone = now == _conditions(job) and not added & store.unit_ids()
        return before if is_alone or now is None else now

    store.revise(KIND, restored)


def load_run(root: str | Path) -> tuple[Store, Job]:
    """The store in a folder, and its job. Raises GalaxyDiTError if it has none or run.json is damaged."""
    store = Store(root)
    return store, _job_of(store, store.header(KIND)["conditions"])


def calibration_units(job: Job) -> list[Unit]:
    """The units of the calibrations that methods need before their first video."""
    names = dict.fromkeys(calibration_of(variant.method) for variant in job.variants)
    return [job.calibration_unit(name) for name in names if name is not None]


def run_job(
    job: Job,
    store: Store,
    executor: Executor | None = None,
    *,
    progress: Progress | None = None,
    retry_failed: bool = False,
    verify: bool = False,
    allow_mixed_versions: bool = False,
    record: Path | None = None,
    first: Collection[str] = (),
) -> Outcome:
    """Make all units that the store lacks; calibrations that failed are made again. Counts videos alone.

    Raises GalaxyDiTError if the store is of another model, or of other versions unless `allow_mixed_versions`, if a
    variant is unsuitable or a calibration failed; OSError if the disk is full. `record` is that of `VideoMaker`;
    variants named in `first` are made before all others; other arguments are those of `pipelines.runs.run`.
    """
    units, calibrations = job.units(), calibration_units(job)
    left, done = units_left(units, store, retry_failed=retry_failed, verify=verify)
    if left:
        refuse_mixed_versions(store, done, allow_mixed_versions)
    if verify and (unchecked := not_checked(done)):
        logger.warning("%s", unchecked)
    if not left and not units_left(calibrations, store, retry_failed=True, verify=verify)[0]:
        return Outcome(len(done), len(units) - len(done))
    from galaxydit.eval.jobs.maker import VideoMaker  # loads diffusers, which a refused or finished job need not do

    maker, executor = VideoMaker(job, store, record), executor or InProcess()
    if calibrations:
        name_stage(progress, "calibrating methods")
        run(calibrations, maker, store, executor, progress=progress, retry_failed=True, verify=verify)
        name_stage(progress, "")
        results(calibrations, store)  # raises if a calibration failed
    if early := [unit for unit in units if unit.data["variant"]["name"] in first]:
        early_ids = {unit.id for unit in early}
        more_to_come(progress, sum(unit.id not in early_ids for unit in left))
        run(early, maker, store, executor, progress=progress, retry_failed=retry_failed, verify=verify)
        more_to_come(progress, 0)
    return run(units, maker, store, executor, progress=progress, retry_failed=retry_failed, verify=verify)


def units_left(
    units: Sequence[Unit], store: Store, *, retry_failed: bool = False, verify: bool = False
) -> tuple[list[Unit], list[Record]]:
    """The units that a run would make, and the sound records of the units that are done."""
    kept, done = set(), []
    for unit_id, record, damage in store.survey([unit.id for unit in units], wholly=verify):
        if record is None or damage:
            continue
        if record.is_done:
            done.append(record)
        if record.is_done or not retry_failed:
            kept.add(unit_id)
    return [unit for unit in units if unit.id not in kept], done


def refuse_mixed_versions(store: Store, done: Sequence[Record], allowed: bool) -> None:
    """Raise GalaxyDiTError for records of videos of other packages or code than the present; warn where `allowed`."""
    from galaxydit.pipelines.conditions import code_identity, package_versions

    now = {**package_versions(), "code": code_identity()}
    others: dict[str, set[str]] = {}
    for record in done:
        before = {**record.result["versions"], "code": record.result.get("code")}
        for name, version in now.items():
            if before.get(name) != version:
                others.setdefault(name, set()).add(before.get(name) or "unknown")
    mixture = "; ".join(f"{name} {', '.join(sorted(found))} -> {now[name]}" for name, found in others.items())
    if mixture and not allowed:
        cure = "take a new --out, or pass --allow-mixed-versions"
        raise GalaxyDiTError(f"{store.root} holds videos of other versions: {mixture}", cure)
    if mixture:
        logger.warning("%s mixes versions: %s", store.root, mixture)


def plan_run(store: Store, job: Job) -> tuple[Job, Mapping[str, Any] | None, Mapping[str, Any]]:
    """The union of the store's job and this one, the present conditions (None without run.json), and the union's.

    Writes nothing. Raises GalaxyDiTError if the jobs differ in anything but prompts, listed seeds, new variants and
    gates, or if a file of a prompt has changed.
    """
    before = store.conditions(KIND)
    union, now = _union(store, before, job)
    return union, before, now


def _union(store: Store, before: Mapping[str, Any] | None, job: Job) -> tuple[Job, Mapping[str, Any]]:
    """The union of the job of conditions and another one, and the conditions of the union."""
    if before is None:
        return job, _conditions(job)
    earlier = _job_of(store, before)
    union, kept = _extended(earlier, job)
    store.check_same(KIND, asdict(earlier), asdict(kept))
    now = _conditions(union)
    hashes = before.get(FILES, {})
    store.check_same(KIND, {FILES: hashes}, {FILES: {path: now.get(FILES, {}).get(path) for path in hashes}})
    return union, now


def _extended(before: Job, now: Job) -> tuple[Job, Job]:
    """The union of two jobs, and the union cut to what `before` has.

    Prompts and seeds of `before` keep their places, which determine default seeds and names of units. The cut differs
    from `before` if `now` changes anything that finished units depend on.
    """
    variants = {variant.name: variant for job in (before, now) for variant in job.variants}
    listed = before.seeds is not None and now.seeds is not None
    union = replace(
        now,
        prompts=tuple(dict.fromkeys((*before.prompts, *now.prompts))),
        variants=tuple(variants.values()),
        seeds=tuple(dict.fromkeys((*(before.seeds or ()), *(now.seeds or ())))) if listed else now.seeds,
    )
    seeds = before.seeds if listed else now.seeds
    started = union.variants[: len(before.variants)]
    # Gates may change at any time, because no video depends on them.
    return union, replace(union, prompts=before.prompts, variants=started, seeds=seeds, gates=before.gates)


def _conditions(job: Job) -> Mapping[str, Any]:
    """What run.json holds, as JSON reads it back: tuples are lists."""
    files = {path: digest for prompt in (*job.prompts, *job.calibration) for path, digest in hash_files(prompt).items()}
    conditions: Mapping[str, Any] = json.loads(json.dumps(asdict(job) | ({FILES: files} if files else {})))
    return conditions


def _job_of(store: Store, conditions: Mapping[str, Any]) -> Job:
    fields = {name: value for name, value in conditions.items() if name != FILES}
    job: Job = parse(Job, fields, f"{store.root}/run.json", "restore the file, or take a new --out")
    return job
