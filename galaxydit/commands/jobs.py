"""Run a job, or show which videos it would make, for all commands that make many videos."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from galaxydit.commands.argument_checks import check_lasting
from galaxydit.commands.console import messages, resumable, say, show
from galaxydit.commands.options import MixedVersions, ModelOptions, RayOptions, Sizes
from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.counted import counted
from galaxydit.pipelines.published_models import checkpoint_of
from galaxydit.pipelines.table import Table, amounts, digits

if TYPE_CHECKING:
    from rich.console import Console

    from galaxydit.eval.jobs.estimate import VariantEstimate
    from galaxydit.eval.jobs.job import Job
    from galaxydit.pipelines.runs import LiveProgress, Outcome


@dataclass(frozen=True)
class JobOptions(RayOptions):
    """Options of a command that makes the videos of a job. Raises typer.BadParameter for a price without --dry-run."""

    section: ClassVar = "Many videos"

    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show how many videos this makes, their hours, kWh and disk; make none.")
    ] = False
    price: Annotated[float | None, typer.Option(min=0, help="Price of one GPU hour, which --dry-run adds up.")] = None
    allow_mixed_versions: MixedVersions = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.price is not None and not self.dry_run:
            raise typer.BadParameter("has no effect without --dry-run: add it, or leave it out", param_hint="--price")


def job_keys(source: ModelOptions, sizes: Sizes) -> dict[str, Any]:
    """Return the options that the user gave (not None) under the names that a job file uses for them.

    Says the negative prompt that a published model's recipe adds.
    """
    from galaxydit.eval.jobs.job import RENAMED

    if checkpoint := checkpoint_of(source.base or source.model):
        sizes.tell_negative_prompt(checkpoint.settings.negative_prompt)
    keys = {field: key for key, field in RENAMED.items()}
    given = {**vars(source), **{keys.get(name, name): value for name, value in vars(sizes).items()}}
    return {name: value for name, value in given.items() if value is not None}


def make_videos(
    job: "Job",
    out: str,
    making: JobOptions,
    *,
    record: Path | None = None,
    progress: "LiveProgress | None" = None,
    **options: Any,
) -> "Outcome":
    """Extend the run `out` by a job and make all missing videos; `record` and `options` are of `run_job`."""
    from galaxydit.eval.jobs.run_job import extend_run, load_run, run_job, withdraw
    from galaxydit.pipelines.runs import LiveProgress, Store

    check_lasting(out)
    if record is not None and record.exists():
        say(f"{record} is there already and is kept")
    before = extend_run(Store(out), job)
    store, extended = load_run(out)
    _tell_of_earlier(extended, job)

    def how_far() -> str:
        units = {unit.id for unit in extended.units()}
        return f"{len(units & store.unit_ids())} of {len(units)} done"

    try:
        with resumable(how_far), making.executor() as executor:
            outcome = run_job(
                extended,
                store,
                executor,
                progress=progress or LiveProgress(messages()),
                allow_mixed_versions=making.allow_mixed_versions,
                record=record,
                **options,
            )
    except (GalaxyDiTError, OSError):
        if before is not None:
            withdraw(store, before, extended)
        raise
    if record is not None and not record.exists():
        say(f"{record} was not written, because no plain video was made; take a new --out", "yellow")
    return outcome


def _tell_of_earlier(extended: "Job", job: "Job") -> None:
    """Print what the run has beside `job`, from earlier commands. `extended` is the job of the run."""
    prompts = len(set(extended.prompts) - set(job.prompts))
    variants = {variant.name for variant in extended.variants} - {variant.name for variant in job.variants}
    parts = []
    if prompts:
        parts.append(counted(prompts, "other prompt"))
    if variants:
        word = "variant" if len(variants) == 1 else "variants"
        parts.append(f"the {word} {', '.join(sorted(variants))}")
    if parts:
        say(f"this run also has {' and '.join(parts)} of earlier commands; a new --out leaves them out")


def refuse_json_of_plan(making: JobOptions, *, as_json: bool) -> None:
    """Raise typer.BadParameter for --json with --dry-run, because a plan is shown as text alone."""
    if as_json and making.dry_run:
        raise typer.BadParameter("has no effect with --dry-run: leave one of the two out", param_hint="--json")


def show_plan(
    job: "Job",
    out: str,
    making: JobOptions,
    *,
    retry_failed: bool = False,
    verify: bool = False,
    console: "Console | None" = None,
) -> None:
    """Show the videos that `make_videos` would make, with hours, kWh, price and disk, by default on stdout; nothing is
    written."""
    import torch

    from galaxydit.eval.jobs.estimate import estimate, plain_cost, predict_plain, time_plain
    from galaxydit.eval.jobs.record import video_record
    from galaxydit.eval.jobs.run_job import calibration_units, plan_run, units_left
    from galaxydit.pipelines.model_names import absent_checkpoint
    from galaxydit.pipelines.runs import Store

    store = Store(out)
    extended, *_ = plan_run(store, job)
    left, done = units_left(extended.units(), store, retry_failed=retry_failed, verify=verify)
    finished = [video_record(record) for record in done]
    calibrations, _ = units_left(calibration_units(extended), store, retry_failed=True)
    plain = plain_cost(finished)
    made = {record.variant for record in finished}
    if plain is None and any(unit.data["variant"]["name"] not in made for unit in left):
        if (absent := absent_checkpoint(extended.model, extended.revision)) is not None:
            plain = predict_plain(extended, absent)
        else:
            say(f"timing a few steps of {extended.model}, because the run has no plain video yet")
            plain = time_plain(extended)
        if plain.disturbed:
            say(f"{plain.disturbed}: without other work it takes less", "yellow")
    estimates = list(estimate(extended, left, finished, plain))
    if estimates:
        show(Table.of([_plan_row(each) for each in estimates]), console=console)
    workers = making.workers or 1
    gpus = int(torch.cuda.is_available()) if making.gpus_per_worker is None else making.gpus_per_worker
    seconds, size = sum(each.seconds for each in estimates), sum(each.size for each in estimates)
    known = [each.joules for each in estimates if each.joules is not None]
    joules = sum(known) if known and len(known) == len(estimates) else None
    price = None if making.price is None else making.price * seconds * max(gpus, 1) / 3600
    text = amounts(seconds / workers, gpus=workers * gpus, joules=joules, price=price, size=size)
    more = f" and {len(calibrations)} calibrations of unknown length" if calibrations else ""
    together = f" on {workers} workers" if workers > 1 else ""
    show(f"{len(left):,} videos{more} to make, about {text}{together}", console=console)


def _plan_row(estimate: "VariantEstimate") -> dict[str, str]:
    return {
        "variant": estimate.variant,
        "videos": f"{estimate.videos:,}",
        "s/video": f"{estimate.seconds / estimate.videos:.1f}",
        "hours": digits(estimate.seconds / 3600),
        "kWh": "" if estimate.joules is None else digits(estimate.joules / 3.6e6),
        "GB": digits(estimate.size / 1e9),
        "estimated from": estimate.source,
    }
