"""A job from its first to its last unit."""

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.jobs.job import Job
from galaxydit.eval.jobs.methods import needs_calibration
from galaxydit.pipelines.runs import Executor, InProcess, Outcome, Progress, Store, run


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
    # A failed calibration leaves nothing to compare, so it is always tried again.
    if run(calibrations, maker, store, executor, progress=progress, retry_failed=True, verify=verify).failed:
        for unit in calibrations:
            if (record := store.read(unit.id)) is not None and record.traceback:
                last = record.traceback.strip().splitlines()[-1]
                raise GalaxyDiTError(f"{unit.id} failed: {last}; leave the method out, or mend this")
    return run(job.units(), maker, store, executor, progress=progress, retry_failed=retry_failed, verify=verify)
