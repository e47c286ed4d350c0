"""The store of a job, and the job from its first to its last unit."""

from dataclasses import asdict
from pathlib import Path

from galaxydit.eval.jobs.job import Job, needs_calibration
from galaxydit.pipelines.inputs import hash_files
from galaxydit.pipelines.runs import Executor, InProcess, Outcome, Progress, Store, results, run
from galaxydit.validation import parse

KIND = "job"


def open_run(root: str | Path, job: Job) -> Store:
    """The store of a job: a new one in an empty folder, or the one that is there.

    Raises GalaxyDiTError, before anything is written, if the folder holds something else or another job, or if a file
    that a prompt names is missing or has changed.
    """
    files = {path: digest for prompt in (*job.prompts, *job.calibration) for path, digest in hash_files(prompt).items()}
    return Store(root).create(KIND, asdict(job) | ({"files": files} if files else {}))


def load_run(root: str | Path) -> tuple[Store, Job]:
    """The store in a folder, and its job. Raises GalaxyDiTError if there is none or run.json is damaged."""
    conditions = dict((store := Store(root)).header(KIND)["conditions"])
    conditions.pop("files", None)  # of the prompts; the job only names them
    return store, parse(Job, conditions, f"{store.root}/run.json", "restore the file, or take a new --out")


def run_job(
    job: Job,
    store: Store,
    executor: Executor | None = None,
    *,
    progress: Progress | None = None,
    retry_failed: bool = False,
    verify: bool = False,
) -> Outcome:
    """Make all units of a job that its store, from `open_run`, lacks. The other arguments are those of `runs.run`.

    Raises GalaxyDiTError if the store was begun with another model, if a variant does not suit the model, and if a
    method's calibration failed; OSError if the disk is full.
    """
    from galaxydit.eval.jobs.maker import VideoMaker  # loads torch, which a refused job need not wait for

    maker, executor = VideoMaker(job, store), executor or InProcess()
    methods = dict.fromkeys(variant.method for variant in job.variants if needs_calibration(variant.method))
    calibrations = [job.calibration_unit(method) for method in methods]
    run(calibrations, maker, store, executor, progress=progress, retry_failed=True, verify=verify)
    results(calibrations, store)  # without them there is nothing to compare
    return run(job.units(), maker, store, executor, progress=progress, retry_failed=retry_failed, verify=verify)
