"""The tables and sentences of a validation, from its JSON data (`validation_page.validation_data`)."""

from collections.abc import Iterator
from typing import Any

from galaxydit.calibration.bootstrap import FEWEST_PROMPTS
from galaxydit.eval.jobs.costs import DISTURBED
from galaxydit.eval.jobs.record import BASELINE
from galaxydit.eval.methods.step_lists import STEP_LISTS
from galaxydit.eval.report.summary import failure_lines
from galaxydit.pipelines.disturbance import marked
from galaxydit.pipelines.table import Table, number

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


def runs_table(data: dict[str, Any]) -> Table:
    shown = {name: column for name, column in COLUMNS.items() if any(_has(row, *column[:2]) for row in data["runs"])}
    rows = []
    for row in data["runs"]:
        cells = ["plain" if row["run"] == BASELINE else f"`{row['run']}`", row["what"]]
        for key, field, form in shown.values():
            value = number(row["figures"].get(key, {}).get(field), form)
            cells.append(marked(value, data["disturbance"] if key in DISTURBED else ""))
        if row["done"] or row["failed"]:  # the page is also written between videos
            rows.append(cells)
    return Table(["run", "what it is", *shown], rows, 2)


def _has(row: dict[str, Any], key: str, field: str) -> bool:
    return row["figures"].get(key, {}).get(field) is not None


def differences_table(data: dict[str, Any]) -> Table:
    headings = {}
    for name, key in {"dB": "psnr", "95 % low": "low", "high": "high"}.items():
        if any(each[key] is not None for each in data["differences"]):
            headings[name] = key
    rows = []
    for each in data["differences"]:
        numbers = [number(each[key], "+.2f") for key in headings.values()]
        rows.append([f"`{each['run']}` - `{each['minus']}`", *numbers])
    return Table(["PSNR over the same prompts", *headings], rows)


def conditions_table(data: dict[str, Any]) -> Table:
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
    return Table(["", ""], list(facts.items()), 2)


def disturbed_lines(data: dict[str, Any]) -> list[str]:
    if not data["disturbance"]:
        return []
    return [f"Other work disturbed this run, so do not compare its seconds: {data['disturbance']}."]


def failed_units(data: dict[str, Any]) -> list[str]:
    return [f"{video['unit']}: {video['reason']}" for video in data["videos"] if video["status"] == "failed"]


def sentences_of(data: dict[str, Any]) -> Iterator[str]:
    yield (
        "PSNR, SSIM and LPIPS compare decoded frames with the plain video of the same prompt and seed. "
        "The PSNR of `repeated-plain-run` is what rounding alone leaves."
    )
    if len({video["prompt"] for video in data["videos"]}) < FEWEST_PROMPTS:
        yield f"Intervals are given from {FEWEST_PROMPTS} prompts on."
    yield from disturbed_lines(data)
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
    yield from (f"Not measured: {', '.join(names)}, because {why}." for why, names in reasons.items())
    yield from failure_lines([video["failures"] for video in data["videos"]])
    if shared := sorted({video["energy_note"] for video in data["videos"]} - {""}):
        yield f"Joules: {'; '.join(shared)}"
