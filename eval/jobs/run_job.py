"""Open the store of a job, and make the units of the job that the store lacks.

A unit is the video of one prompt, seed and variant, or the calibration of a method (see job.py). The store is the
folder with the job, in run.json, and the records and files of its finished units, the run.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from galaxydit.eval.jobs.job import Job, needs_calibration
from galaxydit.pipelines.inputs import hash_files
from galaxydit.pipelines.runs import Executor, InProcess, Outcome, Progress, Store, Unit, results, run
from galaxydit.validation import parse

KIND = "job"
FILES = "files"  # hashes of the files that prompts name, beside the job in run.json


def plan_run(store: Store, job: Job) -> Job:
    """The job that the store would have after `open_run`: `job`, if the store has none yet.

    Else its present job, extended by the prompts, listed seeds and variants that only `job` has, and with the gates
    (limits for results) of `job`. Raises GalaxyDiTError as `open_run` does, for example if anything else differs, such
    as the model. Writes nothing.
    """
    return _plan(store, job)[0]


def open_run(root: str | Path, job: Job) -> Store:
    """The store of a job in the folder `root`. In an empty folder, the store is created.

    An existing store is extended by the prompts, seeds and variants of the job that it lacks. Raises GalaxyDiTError,
    before anything is written, if the folder holds anything else, if the job changes what the finished units depend on,
    or if a prompt contains the path of an image or a video (see pipelines/inputs.py) that is missing or has changed.
    """
    store = Store(root)
    _, before, now = _plan(store, job)
    if before is None:
        return store.create(KIND, now)
    if before != now:
        store.write_conditions(KIND, now)
    return store.create(KIND, now)


def withdraw(store: Store, before: Mapping[str, Any], job: Job) -> None:
    """Restore the conditions of `before` an extension that was refused, so that its prompts and variants do not stay in
    the run. `job` is the extended job.

    Does nothing if a unit that the extension added is recorded, or if another process has changed run.json since.
    """
    earlier = _job_of(store, before)
    added = {unit.id for unit in _all_units(job)} - {unit.id for unit in _all_units(earlier)}
    if store.conditions(KIND) == _conditions(job) and not added & store.unit_ids():
        store.write_conditions(KIND, before)


def _all_units(job: Job) -> list[Unit]:
    return [*calibration_units(job), *job.units()]


def load_run(root: str | Path) -> tuple[Store, Job]:
    """The store in a folder, and its job. Raises GalaxyDiTError if the folder has no store or run.json is damaged."""
    store = Store(root)
    return store, _job_of(store, store.header(KIND)["conditions"])


def read_hashes(store: Store) -> Mapping[str, str]:
    """SHA-256 of each file that a prompt of the store's job names, by its path as it is written there."""
    hashes: Mapping[str, str] = (store.conditions(KIND) or {}).get(FILES, {})
    return hashes


def calibration_units(job: Job) -> list[Unit]:
    """The units of the calibrations that methods of the job need before their first video, one for each method."""
    methods = dict.fromkeys(variant.method for variant in job.variants if needs_calibration(variant.method))
    return [job.calibration_unit(method) for method in methods]


def run_job(
    job: Job,
    store: Store,
    executor: Executor | None = None,
    *,
    progress: Progress | None = None,
    retry_failed: bool = False,
    verify: bool = False,
) -> Outcome:
    """Make all units of a job that its store, from `open_run`, lacks; calibrations that failed are made again.

    Returns the numbers of done and of failed videos among all videos of the job.

    Args:
        executor: runs the makers of the units; by default in this process.
        progress: is told of each unit; by default nothing is shown.
        retry_failed: make failed videos again, too.
        verify: also read the files of all records and make units again if a SHA-256 differs.

    Raises GalaxyDiTError if the store was begun with another model, if a variant does not suit the model, and if a
    method's calibration failed; OSError if the disk is full.
    """
    from galaxydit.eval.jobs.maker import VideoMaker  # loads torch, which a refused job need not wait for

    maker, executor = VideoMaker(job, store), executor or InProcess()
    calibrations = calibration_units(job)
    if calibrations:
        run(calibrations, maker, store, executor, progress=progress, retry_failed=True, verify=verify)
        results(calibrations, store)  # raises if a calibration failed
    return run(job.units(), maker, store, executor, progress=progress, retry_failed=retry_failed, verify=verify)


def _plan(store: Store, job: Job) -> tuple[Job, Mapping[str, Any] | None, Mapping[str, Any]]:
    """The union of the store's job and this job, the present conditions in run.json, and the conditions of the union.

    The union has the prompts, listed seeds and variants of both jobs. Raises GalaxyDiTError if the jobs differ in
    anything else but the gates (the limits for results), or in a variant with the same name.

    Conditions are a job as JSON data, with the hashes of the images and videos whose paths its prompts contain. The
    present conditions are None if the store has no run.json yet.
    """
    before = store.conditions(KIND)
    if before is None:
        return job, None, _conditions(job)
    earlier = _job_of(store, before)
    union, kept = _extended(earlier, job)
    store.check_same(KIND, _plain(asdict(earlier)), _plain(asdict(kept)))
    now = _conditions(union)
    hashes = before.get(FILES, {})
    store.check_same(KIND, {FILES: hashes}, {FILES: {path: now.get(FILES, {}).get(path) for path in hashes}})
    return union, before, now


def _extended(before: Job, now: Job) -> tuple[Job, Job]:
    """The union of two jobs, and the union cut to the prompts, seeds, variant names and gates of `before`.

    Gates are limits for results. The union has the prompts, variants and, if both jobs list `seeds`, the seeds of both
    jobs; those of `before` come first and keep their places, because a prompt's place determines its default seeds and
    the names of its units. Everything else is that of `now`, also method and options of a variant whose name is in both
    jobs. So the cut union differs from `before` if `now` changes anything that finished units depend on.
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
    files = {path: digest for prompt in (*job.prompts, *job.calibration) for path, digest in hash_files(prompt).items()}
    conditions: Mapping[str, Any] = _plain(asdict(job) | ({FILES: files} if files else {}))
    return conditions


def _job_of(store: Store, conditions: Mapping[str, Any]) -> Job:
    fields = {name: value for name, value in conditions.items() if name != FILES}
    job: Job = parse(Job, fields, f"{store.root}/run.json", "restore the file, or take a new --out")
    return job


def _plain(data: Any) -> Any:
    """The same data, written as JSON and read back: tuples become lists."""
    return json.loads(json.dumps(data))
