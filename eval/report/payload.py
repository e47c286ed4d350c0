"""The content of a run's report page as plain data, and the JSON in the page that holds this data."""

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import starmap
from typing import Any

from galaxydit.eval.counted import counted
from galaxydit.eval.jobs.costs import DISTURBED
from galaxydit.eval.jobs.record import BASELINE, VideoRecord
from galaxydit.eval.metrics import METRICS
from galaxydit.eval.report.benchmarks import benchmark_tables
from galaxydit.eval.report.read_run import Run
from galaxydit.eval.report.summary import VariantSummary, failure_lines, figures_of, summarise, values_of
from galaxydit.eval.report.variant_titles import option_text
from galaxydit.foreign_text import printable
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.video import LAYOUTS


def page_data(run: Run, sources: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Everything that the page shows, ready for `encode`; the page's scripts read it.

    `sources` has the place of each video by unit id: {"embedded": element id} or {"link": URL, "poster": URL of a
    frame}, with sound also "spectrogram": URL; `where` is a sentence on it. A unit in "rows" has one of "video",
    "absent" and "failed", and with sound "sound".
    """
    figures = figures_of(run.records)
    shown = [figure.key for figure in figures]
    names = [variant.name for variant in run.job.variants]
    summaries = [summarise(run, name) for name in names]
    devices = sorted({record.device for record in run.records if record.is_done})
    return {
        "facts": _facts(run, devices),
        "notes": _notes(run, summaries, devices),
        "where": where,
        "hasSound": any(record.sound_rate is not None for record in run.records),
        # The first metric, or the compute fraction where nothing was measured.
        "worstFirst": next((key for key in shown if key in METRICS), "compute_fraction"),
        "figures": [
            asdict(figure) | {"isDisturbed": bool(run.disturbance) and figure.key in DISTURBED} for figure in figures
        ],
        "variants": [
            {
                "index": index,
                "isBaseline": summary.name == BASELINE,
                "options": ", ".join([variant.method, *starmap(option_text, variant.options.items())]),
                **asdict(summary),
                "name": run.titles[summary.name],
            }
            for index, (variant, summary) in enumerate(zip(run.job.variants, summaries, strict=True))
        ],
        "rows": _rows(run, names, sources),
        "skipped": [
            *_skip_lines(run.records),
            *failure_lines([record.failures for record in run.records]),
        ],
        "benchmarks": benchmark_tables(run),
    }


def encode(data: Any) -> str:
    """JSON that is safe between <script> and </script> and holds infinities as {"infinite": 1 or -1}.

    Without `<` no prompt can end the element or open a comment (HTML, 4.12.1.3 restrictions for contents of scripts).
    """
    return json.dumps(_safe(data), allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def step_letters(report: Mapping[str, Any]) -> str:
    """A letter for each step of a `Report.to_dict()`: c computed, r reused, m reused in some branches only."""
    reused: dict[int, set[bool]] = {}
    for call in report["calls"]:
        reused.setdefault(call["step"], set()).add(call["reused"])
    letters = {(False,): "c", (True,): "r", (False, True): "m"}
    return "".join(letters[tuple(sorted(kinds))] for _, kinds in sorted(reused.items()))


def _skip_lines(records: Sequence[VideoRecord]) -> Iterator[str]:
    """A line for each reason, with its metrics, except that the baseline has no reference."""
    counts: Counter[tuple[str, str]] = Counter()
    for record in records:
        for name, why in record.skipped.items():
            metric = METRICS.get(name)
            if record.variant != BASELINE or metric is None or not metric.needs_reference:
                counts[name if metric is None else metric.title, why] += 1
    titles: dict[tuple[str, int], list[str]] = {}
    for (title, why), count in counts.items():
        titles.setdefault((why, count), []).append(title)
    for (why, count), names in titles.items():
        yield f"{', '.join(names)} for {counted(count, 'video')}: {why}"


def _facts(run: Run, devices: Sequence[str]) -> list[tuple[str, str]]:
    days = [record.finished_at[:10] for record in run.records]
    facts = [
        ("model", " ".join(filter(None, (run.job.model, run.job.revision, run.job.dtype)))),
        ("prompts", str(len(run.job.prompts))),
        ("videos", f"{sum(record.is_done for record in run.records)} of {len(run.job.units())}"),
        ("made", " to ".join(sorted({min(days), max(days)}))),
    ]
    # The baseline's settings are those of the job; a variant may take fewer steps.
    done = next((record for record in [*run.baselines.values(), *run.records] if record.is_done), None)
    if done is not None and done.shape is not None and done.settings is not None:
        frames, height, width, _ = done.shape
        facts.append(("size", f"{width}x{height}, {frames} frames"))
        if done.sound_shape is not None and done.sound_rate:
            channels, samples = done.sound_shape
            facts.append(("sound", f"{LAYOUTS[channels]}, {done.sound_rate} Hz, {samples / done.sound_rate:.2f} s"))
        settings = {name: done.settings.get(name) for name in ("steps", "guidance_scale")}
        facts += [(name.replace("_", " "), f"{value:g}") for name, value in settings.items() if value is not None]
        facts.append(("device", ", ".join(devices)))
        facts += [(name, done.versions[name]) for name in ("galaxydit", "torch", "diffusers") if name in done.versions]
    return facts


def _notes(run: Run, summaries: Sequence[VariantSummary], devices: Sequence[str]) -> list[str]:
    failed = sum(summary.failed for summary in summaries)
    missing = sum(summary.missing for summary in summaries)
    alone = sum(record.is_done and record.pair not in run.baselines for record in run.records)
    pairs = {(name, version) for record in run.records for name, version in record.versions.items()}
    counts = Counter(name for name, _ in pairs)
    versions = sorted(f"{name} {version}" for name, version in pairs if counts[name] > 1)
    notes = {
        f"{failed} failed: they are shown, but no mean includes them.": failed,
        f"{missing} not made yet: the figures can still change.": missing,
        f"{run.damaged} damaged: the same `galaxydit eval run` makes them again.": run.damaged,
        f"{run.not_checked}.": bool(run.not_checked),
        f"{alone} without a finished baseline: they have no speedup.": run.job.baseline and alone,
        "Made without a baseline: there are no speedups and no metrics against a reference.": not run.job.baseline,
        f"Other work disturbed the run, so do not compare its seconds: {run.disturbance}.": bool(run.disturbance),
        f"Seconds come from several devices ({', '.join(devices)}): speedups mix them.": len(devices) > 1,
        f"Made with several versions of packages ({', '.join(versions)}): means mix them.": bool(versions),
    }
    compared = [record for record in run.records if record.is_done and record.variant != BASELINE]
    for name, count in Counter(name for record in compared for name in record.metrics).items():
        text = f"{METRICS[name].title} is of {count} of {len(compared)} videos, since it was missing for the others."
        notes[text] = count < len(compared)
    return [*(note for note, holds in notes.items() if holds), *_notes_of_videos(run)]


def _notes_of_videos(run: Run) -> Iterator[str]:
    """What the plugin noted of videos, such as that steps are too few for a profile: each note once, with its count."""
    counts: Counter[tuple[str, str]] = Counter()
    for record in run.records:
        notes = [*(record.report or {}).get("notes", ()), record.energy_note]
        for note in dict.fromkeys(filter(None, notes)):
            counts[run.titles[record.variant], note] += 1
    variants: dict[tuple[str, int], list[str]] = {}
    for (variant, note), count in counts.items():
        variants.setdefault((note, count), []).append(variant)
    for (note, count), names in variants.items():
        each = " each" if len(names) > 1 else ""
        yield f"{', '.join(names)}, {counted(count, 'video')}{each}: {note}."


def _rows(run: Run, variants: Sequence[str], sources: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows: dict[tuple[int, int], dict[str, Any]] = {}
    for record in run.records:
        units = [{"variant": index, "values": {}, "absent": "not made yet"} for index in range(len(variants))]
        nothing = {"prompt": record.prompt, "seed": record.seed, "frames": 0, "fps": 0.0, "units": units}
        row = rows.setdefault(record.pair, nothing)
        index = variants.index(record.variant)
        row["units"][index] = _unit(run, record, index, sources.get(record.unit))
        if record.shape is not None and record.settings is not None:
            row |= {"frames": record.shape[0], "fps": record.settings.get("fps", GenerationSettings.fps)}
    return list(rows.values())


def _unit(run: Run, record: VideoRecord, variant: int, source: Any) -> dict[str, Any]:
    unit = {"variant": variant, "values": values_of(run, record)}
    if not record.is_done:
        missing = "no traceback"
        failed = {"failed": record.traceback or missing, "reason": record.reason or missing}
        return unit | failed | {"attempts": record.attempts}
    if record.report is not None:
        unit["steps"] = step_letters(record.report)
    if source is None or record.shape is None:
        return unit | {"absent": record.damage or _why_absent(run, record)}
    if record.sound_shape is not None and record.sound_rate:
        unit["sound"] = {"seconds": record.sound_shape[1] / record.sound_rate, "rate": record.sound_rate}
    return unit | {"video": source, "height": record.shape[1], "width": record.shape[2]}


def _why_absent(run: Run, record: VideoRecord) -> str:
    if run.job.comparison and record.video_sha256 is None:
        return "not kept: a comparison keeps the videos of its first prompt alone"
    return "the video's file cannot be read"


def _safe(value: Any) -> Any:
    """The data with printable texts, and without infinities."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {key: _safe(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_safe(item) for item in value]
    if isinstance(value, float) and math.isinf(value):
        return {"infinite": int(math.copysign(1, value))}
    return value
