"""`galaxydit eval check`: check a run against gates, which are lowest or highest allowed values."""

import math
from typing import TYPE_CHECKING, Annotated

import typer

from galaxydit.commands.conclusion import NextCommand, conclude
from galaxydit.commands.console import say, show, show_json
from galaxydit.commands.exit_codes import ExitCode
from galaxydit.commands.options import AsJson, RunPath
from galaxydit.eval.counted import counted
from galaxydit.pipelines.table import Table, number

if TYPE_CHECKING:
    from galaxydit.eval.report.read_run import Run
    from galaxydit.eval.report.verdicts import Verdict

FORM = "NAME=NUMBER"
EXAMPLE = "write for example psnr=30"


def check(
    run: RunPath,
    minimum: Annotated[list[str] | None, typer.Option("--min", metavar=FORM, help="Lowest allowed value.")] = None,
    maximum: Annotated[list[str] | None, typer.Option("--max", metavar=FORM, help="Highest allowed value.")] = None,
    variant: Annotated[list[str] | None, typer.Option(help="A variant to check; by default those of the job.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check each variant of a run against gates.

    They are those of its job file, and those of --min and --max in their place. Exits with 1 if a gate fails, its
    metric was not measured for each video, its seconds or joules were disturbed, or a video is missing. A gate is
    NAME=NUMBER. NAME is a metric such as psnr, or denoise_speedup, end_to_end_speedup, denoise_seconds,
    end_to_end_seconds, compute_fraction or energy_per_video_joules; worst_NAME takes the worst video,
    vbench_DIMENSION the points of a VBench dimension, lost_DIMENSION the points lost against the baseline, where
    DIMENSION may also be total.
    """
    from galaxydit.eval.jobs.gates import Gates, check_names
    from galaxydit.eval.jobs.record import BASELINE
    from galaxydit.eval.report.read_run import read_run
    from galaxydit.eval.report.verdicts import check_run

    given = Gates(min=_limits("--min", minimum), max=_limits("--max", maximum))
    check_names(given)
    finished = read_run(run)
    if finished.not_checked:
        say(finished.not_checked, "yellow")
    gates, checkable = finished.job.gates, [each.name for each in finished.job.variants if each.name != BASELINE]
    for name in variant or ():
        if name not in checkable:
            raise typer.BadParameter(f"{name!r} is no variant to check: {', '.join(checkable)}", param_hint="--variant")
    gates = Gates(tuple(variant or gates.variants), {**gates.min, **given.min}, {**gates.max, **given.max})
    if not gates.min and not gates.max:
        raise typer.BadParameter(f"is missing, and the job file has no gates: {EXAMPLE}", param_hint="--min")
    verdicts = check_run(finished, gates)
    if not verdicts:
        raise typer.BadParameter(f"{run} has no variant but the baseline: add a variant to the job", param_hint="RUN")
    unfinished = len(finished.job.units()) - sum(record.is_done and not record.damage for record in finished.records)
    failed = sum(not verdict.holds for verdict in verdicts)
    if as_json:
        show_json({"unfinished": unfinished, "gates": [_plain(verdict) for verdict in verdicts]})
    else:
        _show(finished, verdicts)
        text = f"{failed} of {counted(len(verdicts), 'gate')} failed" if failed else "all gates hold"
        if why := next((verdict.disturbance for verdict in verdicts if verdict.disturbance), ""):
            show(f"seconds are not judged, because other work disturbed the run: {why}")
        text += f"; {unfinished} videos failed, damaged or not made" if unfinished else ""
        command = NextCommand("see the videos", ["eval", "report", run])
        code = ExitCode.FAILED if failed or unfinished else ExitCode.DONE
        conclude([], f"{text}: exit code {code.value}", command)
    if failed or unfinished:
        raise typer.Exit(ExitCode.FAILED)


def _limits(option: str, texts: list[str] | None) -> dict[str, float]:
    limits = {}
    for text in texts or ():
        name, _, number = text.partition("=")
        if name in limits:
            raise typer.BadParameter(f"{name!r} is given twice: pass one limit", param_hint=option)
        try:
            limits[name] = float(number)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is no {FORM}: {EXAMPLE}", param_hint=option) from None
        if not math.isfinite(limits[name]):
            raise typer.BadParameter(f"{text!r} has no finite number: {EXAMPLE}", param_hint=option)
    return limits


def _show(run: "Run", verdicts: "list[Verdict]") -> None:
    """Print a row for each gate and variant, failed gates first, then the worst videos of those that failed."""
    from galaxydit.eval.jobs.gates import WORST

    rows = []
    worst: dict[tuple[str, str], Verdict] = {}
    for each in sorted(verdicts, key=lambda verdict: verdict.holds):
        limit = f"{'>=' if each.is_minimum else '<='} {each.limit:g}"
        rows.append((each.variant, each.name, number(each.value, ".4g"), limit, _word(each)))
        if each.worst and not each.holds:
            worst.setdefault((each.variant, each.name.removeprefix(WORST)), each)
    show(Table(("variant", "gate", "value", "limit", ""), rows, 2))
    for each in worst.values():
        show(f"{each.variant}, {each.name} {_word(each)}; the worst videos:")
        for record, value in each.worst:
            path = f"{run.store.root}/{record.video}" if record.video else "the video is missing"
            show(f"  {value:.4g}  {record.prompt[:80]!r}, seed {record.seed}: {path}")


def _word(verdict: "Verdict") -> str:
    if verdict.disturbance:
        return "FAILS: not judged, disturbed"
    if 0 < verdict.measured < verdict.videos:
        return f"FAILS: measured for {verdict.measured} of {verdict.videos} videos"
    if verdict.value is None:
        return "FAILS: not measured"
    return "holds" if verdict.holds else "FAILS"


def _plain(verdict: "Verdict") -> dict[str, object]:
    finite = verdict.value is not None and math.isfinite(verdict.value)
    return {
        "variant": verdict.variant,
        "gate": verdict.name,
        "value": verdict.value if finite else None,
        "min" if verdict.is_minimum else "max": verdict.limit,
        "holds": verdict.holds,
        "disturbance": verdict.disturbance,
        "measured": verdict.measured,
        "videos": verdict.videos,
        "worst": [
            {"unit": record.unit, "prompt": record.prompt, "value": value}
            for record, value in verdict.worst
            if math.isfinite(value)
        ],
    }
