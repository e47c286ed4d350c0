"""Run a job, or show which videos it would make. Commands that make many videos share these functions.

A job lists prompts, seeds and variants (ways to generate). A run is the folder or address of a job's results.
"""

from typing import TYPE_CHECKING, Any

from galaxydit.commands.checks import check_lasting
from galaxydit.commands.console import resumable, say, show, table_of
from galaxydit.commands.options import ModelOptions, RayOptions, Sizes
from galaxydit.errors import GalaxyDiTError

if TYPE_CHECKING:
    from galaxydit.eval.jobs.job import Job
    from galaxydit.pipelines.runs import Outcome


def job_keys(source: ModelOptions, sizes: Sizes) -> dict[str, Any]:
    """Return the options that the user gave (not None) under the names that a job file uses for them."""
    from galaxydit.eval.jobs.job import RENAMED

    keys = {field: key for key, field in RENAMED.items()}
    given = {**vars(source), **{keys.get(name, name): value for name, value in vars(sizes).items()}}
    return {name: value for name, value in given.items() if value is not None}


def make_videos(
    job: "Job", out: str, cluster: RayOptions, *, retry_failed: bool = False, verify: bool = False
) -> "Outcome":
    """Extend the run in the folder or address `out` by a job, make all videos that it then lacks, and show progress.

    `cluster` says where: in this process or on Ray. `retry_failed` also makes failed videos again, `verify` also videos
    whose SHA-256 differs from the recorded one. Ctrl-C and SIGTERM leave a resumable run. Returns how many videos are
    done and how many failed.
    """
    from galaxydit.eval.jobs.run_job import KIND, load_run, open_run, run_job, withdraw
    from galaxydit.pipelines.runs import LiveProgress, Store

    check_lasting(out)
    before = Store(out).conditions(KIND)
    open_run(out, job)
    store, extended = load_run(out)
    _tell_of_earlier(extended, job)

    def how_far() -> str:
        units = {unit.id for unit in extended.units()}
        return f"{len(units & store.unit_ids())} of {len(units)} done"

    try:
        with resumable(how_far), cluster.executor() as executor:
            return run_job(extended, store, executor, progress=LiveProgress(), retry_failed=retry_failed, verify=verify)
    except (GalaxyDiTError, OSError):
        if before is not None:
            withdraw(store, before, extended)
        raise


def _tell_of_earlier(extended: "Job", job: "Job") -> None:
    """Print what the run has beside `job`, from earlier commands. `extended` is the job of the run."""
    prompts = len(set(extended.prompts) - set(job.prompts))
    variants = {variant.name for variant in extended.variants} - {variant.name for variant in job.variants}
    parts = [f"{prompts} other prompt{'s' * (prompts > 1)}"] * (prompts > 0)
    parts += [f"the variant{'s' * (len(variants) > 1)} {', '.join(sorted(variants))}"] * bool(variants)
    if parts:
        say(f"this run also has {' and '.join(parts)} of earlier commands; a new --out leaves them out")


def show_plan(job: "Job", out: str, workers: int, *, retry_failed: bool = False, verify: bool = False) -> None:
    """Show how many videos of each variant `make_videos` would make, and in how many seconds one worker makes them.

    The seconds are also shown divided by the number of `workers`. `out` is the run's folder or address. `retry_failed`
    also counts failed videos, `verify` also videos whose SHA-256 differs from the recorded one. Nothing is written.
    """
    from galaxydit.eval.jobs.estimate import estimate, plain_cost, time_plain, units_left
    from galaxydit.eval.jobs.record import video_record
    from galaxydit.eval.jobs.run_job import calibration_units, plan_run
    from galaxydit.pipelines.runs import Store

    store = Store(out)
    extended = plan_run(store, job)
    left, done = units_left(extended.units(), store, retry_failed=retry_failed, verify=verify)
    finished = [video_record(record) for record in done]
    calibrations, _ = units_left(calibration_units(extended), store, retry_failed=True)
    plain = plain_cost(finished)
    made = {record.variant for record in finished}
    if plain is None and any(unit.data["variant"]["name"] not in made for unit in left):
        say(f"timing a few steps of {extended.model}, because the run has no plain video yet")
        plain = time_plain(extended)
    estimates = list(estimate(extended, left, finished, plain))
    if estimates:
        rows = (
            (
                each.variant,
                str(each.videos),
                f"{each.seconds:.1f}",
                f"{each.videos * each.seconds:.0f}",
                "videos of this run" if each.is_measured else "a plain video",
            )
            for each in estimates
        )
        show(table_of(rows, ("variant",), ("videos", "s/video", "seconds", "estimated from")))
    seconds = sum(each.videos * each.seconds for each in estimates)
    more = f" and {len(calibrations)} calibrations of unknown length" if calibrations else ""
    shared = f", {seconds / workers:.0f} s on {workers} workers" if workers > 1 else ""
    show(f"{len(left)} videos{more} to make, about {seconds:.0f} s of one worker{shared}")
