"""The results of a validation as JSON data, and as a Markdown page for the repository's issues."""

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from huggingface_hub import try_to_load_from_cache
from rich.console import Console

from galaxydit.calibration.bootstrap import FEWEST_PROMPTS, interval
from galaxydit.eval.jobs.costs import DISTURBED
from galaxydit.eval.jobs.record import BASELINE
from galaxydit.eval.methods.step_lists import STEP_LISTS
from galaxydit.eval.report.read_run import Run, read_run
from galaxydit.eval.report.summary import failure_lines, summarise
from galaxydit.eval.validate.validation_job import RUNS
from galaxydit.foreign_text import in_markdown
from galaxydit.pipelines.disturbance import marked
from galaxydit.pipelines.model_names import INDEX
from galaxydit.pipelines.published_models import checkpoint_of
from galaxydit.pipelines.runs import LiveProgress, Record
from galaxydit.pipelines.table import Table, number
from galaxydit.pipelines.written_by import VALIDATION, write_markdown, write_own_json

AT_2X = "galaxydit-2x"
COMPARED = ("half-the-steps", "plain-at-2x-levels", "published-list", "galaxydit-proxy-2x")
VIDEO_FIELDS = (
    *("unit", "prompt", "seed", "variant", "status", "reason", "compute_fraction", "metrics", "skipped", "failures"),
    *("denoise_seconds", "end_to_end_seconds", "energy_per_video_joules", "energy_note", "frames_sha256"),
)
COLUMNS = {  # heading: figure, field of its estimate, format
    "compute": ("compute_fraction", "mean", ".2f"),
    "PSNR dB": ("psnr", "mean", ".2f"),
    "95 % low": ("psnr", "low", ".1f"),
    "high": ("psnr", "high", ".1f"),
    "worst": ("psnr", "worst", ".2f"),
    "SSIM": ("ssim", "mean", ".4f"),
    "LPIPS": ("lpips", "mean", ".4f"),
    "SI-SDR dB": ("si_sdr", "mean", ".2f"),
    "log-mel dB": ("log_mel", "mean", ".2f"),
    "RMS ratio": ("rms_ratio", "mean", ".3f"),
    "denoise s": ("denoise_seconds", "mean", ",.2f"),
    "speedup": ("denoise_speedup", "mean", ".2f"),
    "end to end s": ("end_to_end_seconds", "mean", ",.2f"),
    "end to end speedup": ("end_to_end_speedup", "mean", ".2f"),
    "joules": ("energy_per_video_joules", "mean", ",.0f"),
}


def write_validation(out: Path) -> tuple[Path, dict[str, Any]]:
    """Write the page and its data for the videos that a run has; returns the page's path and the data."""
    data = validation_data(read_run(out))
    write_markdown(out / "validation.md", markdown(data))
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
    shown = {name: column for name, column in COLUMNS.items() if any(_has(row, *column[:2]) for row in data["runs"])}
    rows = []
    for row in data["runs"]:
        cells = ["plain" if row["run"] == BASELINE else f"`{row['run']}`", row["what"]]
        for key, field, form in shown.values():
            value = number(row["figures"].get(key, {}).get(field), form)
            cells.append(marked(value, data["disturbance"] if key in DISTURBED else ""))
        if row["done"] or row["failed"]:  # the page is also written between videos
            rows.append(cells)
    runs = Table(["run", "what it is", *shown], rows, 2).markdown()
    headings = {"dB": "psnr", "95 % low": "low", "high": "high"}
    headings = {
        name: key for name, key in headings.items() if any(each[key] is not None for each in data["differences"])
    }
    pairs = [
        [f"`{each['run']}` - `{each['minus']}`", *(number(each[key], "+.2f") for key in headings.values())]
        for each in data["differences"]
    ]
    differences = [Table(["PSNR over the same prompts", *headings], pairs).markdown()] if pairs else []
    return "\n\n".join([heading, _conditions(data), runs, *differences, *_notes(data)]) + "\n"


def _has(row: dict[str, Any], key: str, field: str) -> bool:
    return row["figures"].get(key, {}).get(field) is not None


def _conditions(data: dict[str, Any]) -> str:
    conditions = data["conditions"]
    model, settings = conditions["model"], conditions["settings"] or {}
    names = ("width", "height", "num_frames", "steps", "guidance_scale", "guidance_scale_2", "flow_shift")
    facts = {
        "model": ", ".join(filter(None, (model["hub_id"] or model["name"], model["revision"], model["commit"]))),
        "weights": ", ".join(f"{name} {start}" for name, start in conditions["weights"].items()),
        "device": f"{conditions['device']}, {', '.join(conditions['dtype'])}",
        "versions": ", ".join(f"{name} {release}" for name, release in conditions["versions"].items()),
        "settings": ", ".join(f"{name} {settings[name]:g}" for name in names if settings.get(name) is not None),
        "prompts": f"{len({video['prompt'] for video in data['videos']})}, seeds from {conditions['first_seed']}",
    }
    return Table(["", ""], list(facts.items()), 2).markdown()


def _notes(data: dict[str, Any]) -> Iterator[str]:
    yield (
        "PSNR, SSIM and LPIPS compare decoded frames with the plain video of the same prompt and seed. "
        "The PSNR of `repeated-plain-run` is what rounding alone leaves."
    )
    if len({video["prompt"] for video in data["videos"]}) < FEWEST_PROMPTS:
        yield f"Intervals are given from {FEWEST_PROMPTS} prompts on."
    if data["disturbance"]:
        yield f"Other work disturbed this run, so do not compare its seconds: {data['disturbance']}."
    if any(row["run"] == "published-list" for row in data["runs"]):
        row = STEP_LISTS[0]  # the one that the job repeats
        yield (
            f"`published-list` is {row.name!r}. Published on Wan2.1-T2V-1.3B with other prompts, at flow shift "
            f"{row.flow_shift:g}, guidance {row.guidance:g} and 50 steps: {row.psnr:.1f} dB (arXiv 2506.09045)."
        )
    if not any("lpips" in {**video["metrics"], **video["skipped"], **video["failures"]} for video in data["videos"]):
        yield "LPIPS was not measured: its weights were not there (`pip install 'galaxydit[lpips]'`)."
    reasons: dict[str, list[str]] = {}
    for video in data["videos"]:
        for name, why in video["skipped"].items() if video["metrics"] else ():
            names = reasons.setdefault(why, [])
            if name not in names:
                names.append(name)
    yield from (in_markdown(f"Not measured: {', '.join(names)}, because {why}.") for why, names in reasons.items())
    yield from map(in_markdown, failure_lines([video["failures"] for video in data["videos"]]))
    if shared := sorted({video["energy_note"] for video in data["videos"]} - {""}):
        yield f"Joules: {'; '.join(shared)}"
    if failed := [
        f"- {in_markdown(video['unit'])}: {in_markdown(video['reason'])}"
        for video in data["videos"]
        if video["status"] == "failed"
    ]:
        yield "Failed:\n\n" + "\n".join(failed)
