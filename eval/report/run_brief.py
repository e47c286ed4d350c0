"""What stands at the top of the report of a run."""

from collections.abc import Sequence
from shlex import quote

from galaxydit.eval.counted import counted
from galaxydit.eval.jobs.record import BASELINE
from galaxydit.eval.metrics import METRICS
from galaxydit.eval.report.read_run import Run
from galaxydit.eval.report.summary import VariantSummary, summarise
from galaxydit.pipelines.page_design import Brief


def brief_of(run: Run) -> Brief:
    """What was run, which variant stays nearest to the baseline, and the command that judges or completes the run."""
    job, units = run.job, len(run.job.units())
    others = [variant.name for variant in job.variants if variant.name != BASELINE]
    ways = counted(len(others), "variant") + (" and plain" if job.baseline else "")
    done = sum(record.is_done for record in run.records)
    what = f"{done} of {units} videos of {job.model}: {counted(len(job.prompts), 'prompt')} in {ways}."
    folder = quote(str(run.store.root))
    where = ""
    if run.root is not None:
        folder = "RUN"  # no path of a machine
        where = f", with RUN for the path of the folder {run.root.name}"
    if done < units:
        command = f"galaxydit eval run JOB.toml --out {folder} --retry-failed"
        return Brief(what, _meaning(run, others), f"make the missing videos with the job's file{where}", command)
    if not job.baseline:
        return Brief(
            what, _meaning(run, others), f"get all values as a table{where}", f"galaxydit eval export {folder}"
        )
    return Brief(
        what, _meaning(run, others), f"judge it by a limit{where}", f"galaxydit eval check {folder} --min psnr=30"
    )


def _meaning(run: Run, others: Sequence[str]) -> str:
    summaries = [summarise(run, name) for name in others]
    measured = [each for each in summaries if "psnr" in each.estimates]
    if not measured:
        names = {name for each in summaries for name in each.estimates if name in METRICS}
        titles = ", ".join(sorted(METRICS[name].title for name in names)) or "no metric"
        return f"The videos are not compared with plain ones; measured: {titles}."
    best = max(measured, key=lambda each: each.estimates["psnr"].mean)
    psnr = best.estimates["psnr"]
    interval = "" if psnr.low is None or psnr.high is None else f" (95 % interval {psnr.low:.1f} to {psnr.high:.1f})"
    first = f"{run.titles[best.name]} stays nearest to the baseline: PSNR {psnr.mean:.1f} dB{interval}"
    return f"{first}, worst video {psnr.worst:.1f} dB{_cost(run, best)}."


def _cost(run: Run, summary: VariantSummary) -> str:
    """The speedup of denoising; the compute fraction where other work disturbed the seconds."""
    estimates = summary.estimates
    if "denoise_speedup" in estimates and not run.disturbance:
        return f", {estimates['denoise_speedup'].mean:.2f} times as fast in denoising"
    if "compute_fraction" in estimates:
        return f", {estimates['compute_fraction'].mean:.0%} of the compute"
    return ""
