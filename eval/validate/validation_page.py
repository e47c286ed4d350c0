"""The results of a validation as JSON data, as a Markdown page for the repository's issues, and as HTML."""

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from huggingface_hub import try_to_load_from_cache
from rich.console import Console

from galaxydit.calibration.bootstrap import interval
from galaxydit.eval.jobs.record import BASELINE
from galaxydit.eval.report.read_run import Run, read_run
from galaxydit.eval.report.summary import summarise
from galaxydit.eval.validate.validation_html import AT_2X, html
from galaxydit.eval.validate.validation_job import RUNS
from galaxydit.eval.validate.validation_tables import (
    conditions_table,
    differences_table,
    failed_units,
    runs_table,
    sentences_of,
)
from galaxydit.foreign_text import in_markdown
from galaxydit.pipelines.model_names import INDEX
from galaxydit.pipelines.published_models import checkpoint_of
from galaxydit.pipelines.runs import LiveProgress, Record
from galaxydit.pipelines.written_by import VALIDATION, write_html, write_markdown, write_own_json

HTML_PAGE = "validation.html"
COMPARED = ("half-the-steps", "plain-at-2x-levels", "published-list", "galaxydit-proxy-2x")
VIDEO_FIELDS = (
    *("unit", "prompt", "seed", "variant", "status", "reason", "compute_fraction", "metrics", "skipped", "failures"),
    *("denoise_seconds", "end_to_end_seconds", "energy_per_video_joules", "energy_note", "frames_sha256"),
)


def write_validation(out: Path) -> tuple[Path, dict[str, Any]]:
    """Write the pages and their data for the videos that a run has; returns the Markdown page's path and the data."""
    data = validation_data(read_run(out))
    write_markdown(out / "validation.md", markdown(data))
    write_html(out / HTML_PAGE, html(data))
    write_own_json(out / "validation.json", VALIDATION, data)
    return out / "validation.md", data


class PageProgress(LiveProgress):
    """Writes the page again after each video but the plain ones."""

    def __init__(self, out: Path, console: Console | None = None) -> None:
        super().__init__(console)
        self.out = out

    def finish(self, worker: int, record: Record) -> None:
        super().finish(worker, record)
        if record.data["variant"]["name"] != BASELINE:
            write_validation(self.out)


def validation_data(run: Run) -> dict[str, Any]:
    """The page as JSON data: "conditions", "runs", "differences", "disturbance" and "videos".

    "runs": for each way to generate "run", "what", "done", "failed" and "figures": by name "mean", "worst", "low" and
        "high" (95 % interval).
    "differences": PSNR of "galaxydit-2x" minus that of each of `COMPARED` over the prompts of both, dB, with its
        interval.
    "videos": the fields `VIDEO_FIELDS` of each record.
    """
    plain = next(iter(run.baselines.values()), run.records[0])
    bound = run.store.bound("model")
    names = [variant.name for variant in run.job.variants]
    return {
        "conditions": {
            "model": _identity(run),
            "weights": bound["weights"],
            "dtype": sorted({part["dtype"] for part in bound["transformers"].values()}),
            "device": plain.device,
            "versions": plain.versions,
            "settings": plain.settings,
            "first_seed": run.job.seed,
        },
        "runs": [{"run": name, "what": RUNS.get(name, "every step computed"), **_figures(run, name)} for name in names],
        "differences": [each for name in COMPARED for each in _difference(run, name)],
        "disturbance": run.disturbance,
        "videos": [{name: getattr(record, name) for name in VIDEO_FIELDS} for record in run.records],
    }


def _identity(run: Run) -> dict[str, str | None]:
    """The model's "name", "hub_id", "revision" and "commit", None where unknown.

    Of a local folder the name is the last part of its path, so that no path of a machine is published.
    """
    given, checkpoint = run.job.model, checkpoint_of(run.job.model)
    if checkpoint is None and ("/" not in given or Path(given).is_dir()):
        return {"name": Path(given).name, "hub_id": None, "revision": None, "commit": None}
    hub_id = given if checkpoint is None else checkpoint.hub_id
    revision = run.job.revision or (checkpoint and checkpoint.revision) or "main"
    index = try_to_load_from_cache(hub_id, INDEX, revision=revision)
    commit = Path(index).parent.name if isinstance(index, str) else None
    return {"name": given, "hub_id": hub_id, "revision": revision, "commit": commit}


def _figures(run: Run, name: str) -> dict[str, Any]:
    summary = summarise(run, name)
    figures = {key: vars(estimate) for key, estimate in summary.estimates.items()}
    return {"done": summary.done, "failed": summary.failed, "figures": figures}


def _difference(run: Run, other: str) -> Iterator[dict[str, Any]]:
    """The PSNR of the plugin at 2x minus that of `other` over the prompts of both; nothing without any."""
    done = [record for record in run.records if record.is_done]
    ours, theirs = (
        {record.pair: record.metrics["psnr"] for record in done if record.variant == name and "psnr" in record.metrics}
        for name in (AT_2X, other)
    )
    if pairs := [value - theirs[pair] for pair, value in ours.items() if pair in theirs]:
        low, high = interval(pairs)
        yield {"run": AT_2X, "minus": other, "psnr": fmean(pairs), "low": low, "high": high, "prompts": len(pairs)}


def markdown(data: dict[str, Any]) -> str:
    heading = f"## `galaxydit validate` on {in_markdown(data['conditions']['model']['name'])}"
    tables = (conditions_table(data), runs_table(data), differences_table(data))
    parts = [heading, *(table.markdown() for table in tables if table.rows), *map(in_markdown, sentences_of(data))]
    if failed := failed_units(data):
        parts.append("Failed:\n\n" + "\n".join(f"- {in_markdown(line)}" for line in failed))
    return "\n\n".join(parts) + "\n"
