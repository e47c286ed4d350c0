"""The comparison as markdown: one table per speedup, then all scored settings."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from galaxydit.calibration.bootstrap import FEWEST_PROMPTS
from galaxydit.eval.compare.compare_job import Comparison
from galaxydit.eval.compare.equal_compute import AtSpeedup, ScoredSetting
from galaxydit.eval.compare.tune import DOMINANCE_MARGIN
from galaxydit.eval.counted import counted
from galaxydit.eval.methods.method_registry import declared
from galaxydit.foreign_text import in_markdown
from galaxydit.pipelines.disturbance import marked
from galaxydit.pipelines.table import DASH, Table, number

DROPPED_BECAUSE = {  # by `compare_job.SELECTION`
    "not tried": "not tried, because similar settings are too slow or too fast",
    "screened": "too slow or too fast on the first calibration prompt, "
    f"or {DOMINANCE_MARGIN:g} dB below a faster one there",
    "tuned": "slower and worse than others, or farther from the wanted speedups",
}
SCORES = ["PSNR dB", "worst prompt", "SSIM", "ahead of the best other", "speedup by seconds"]
SOUND = "SI-SDR dB"
INTERPOLATED = "\u2020"  # a dagger, behind the score
OPTIONAL = ("joules", SOUND, "log-mel dB", "RMS ratio")  # columns of which some comparisons have no value


def markdown(comparison: Comparison) -> str:
    parts = [caption(comparison)]
    for speedup in comparison.plan.speedups:
        parts.append(f"## At {speedup:g}x by compute\n\n{table_at(comparison, speedup).markdown()}")
        parts += footnotes_at(comparison, speedup)
    parts.append(f"## All scored settings\n\n{scored_table(comparison).markdown()}")
    if lines := selection_lines(comparison):
        parts.append("\n".join(f"- {in_markdown(line)}" for line in lines))
    if comparison.failed:
        failures = "\n".join(f"- {in_markdown(f'{name}: {reason}')}" for name, reason in comparison.failed.items())
        parts.append(f"## Left out because they failed\n\n{failures}")
    return "\n\n".join(parts) + "\n"


def table_at(comparison: Comparison, speedup: float) -> Table:
    """The scores of all methods at one wanted speedup, best first."""
    heard = any(result.si_sdr is not None for result in comparison.at_speedups)
    sound = [SOUND] if heard else []
    headings = ["method", *SCORES, *sound, "settings (their speedup)"]
    rows = [_at_speedup_cells(result, heard) for result in comparison.at(speedup)]
    return Table(headings, rows, has_notes=True)


def scored_table(comparison: Comparison) -> Table:
    """All scored settings of all methods."""
    cells = {name: [cell(row) for row in comparison.rows] for name, cell in COLUMNS.items()}
    columns = {name: texts for name, texts in cells.items() if name not in OPTIONAL or set(texts) != {DASH}}
    return Table(tuple(columns), [list(row) for row in zip(*columns.values(), strict=True)], 2)


def selection_lines(comparison: Comparison) -> list[str]:
    """A sentence for each method of which settings were dropped: how many were scored, and why the others were not."""
    scored = Counter(row.method for row in comparison.rows)
    lines = []
    for name, counts in comparison.dropped.items():
        reasons = [f"{count} {DROPPED_BECAUSE[step]}" for step, count in counts.items() if count > 0]
        if reasons:
            settings = scored[name] + sum(counts.values())
            lines.append(f"{name}: {scored[name]} of {settings} settings were scored; dropped: {'; '.join(reasons)}.")
    return lines


def caption(comparison: Comparison) -> str:
    """What all results of a comparison share, in sentences."""
    plan, conditions = comparison.plan, comparison.conditions
    versions = ", ".join(f"{name} {number}" for name, number in conditions["versions"].items())
    unheard = f" Sound was not measured: {in_markdown(comparison.unheard)}." if comparison.unheard else ""
    videos = f"{counted(len(plan.prompts), 'prompt')} with {counted(len(plan.seeds), 'seed')} each"
    return (
        f"{conditions['pipeline']} on {conditions['device']}, {conditions['dtype']}, {versions}; "
        f"{conditions['settings']['steps']} steps; {videos}; {_origin_of_settings(comparison)}. "
        f"PSNR in dB against the plain video of the same noise.{unheard}"
    )


def _origin_of_settings(comparison: Comparison) -> str:
    if comparison.plan.settings_of:
        return "settings that another comparison chose"
    known = declared()
    if any(known[row.method].tuned for row in comparison.rows if row.method in known):
        return f"settings tuned on {counted(comparison.plan.tuned, 'other prompt')}"
    return "settings that were not tuned"


def _at_speedup_cells(row: AtSpeedup, heard: bool) -> tuple[str, ...]:
    if row.psnr is None:
        return (row.method, *[DASH] * (len(SCORES) + heard), f"nearest: {settings_of(row)}")
    *quality, ahead, interval, speedup = scores(row)
    return (
        row.method,
        *quality,
        _ahead(row, ahead, interval),
        speedup,
        *[number(row.si_sdr, ".2f")] * heard,
        settings_of(row),
    )


def _ahead(row: AtSpeedup, ahead: str, interval: str) -> str:
    if row.best_other is None:
        return DASH
    return f"{ahead}{'' if interval == DASH else f' ({interval})'}, {row.best_other}"


def scores(row: AtSpeedup) -> tuple[str, ...]:
    """Mean and worst PSNR, SSIM, PSNR ahead of the best other method, its interval, and speedup by seconds, as text.

    Interpolated scores have the mark `INTERPOLATED`; the interval is a dash for fewer prompts than one needs.
    """
    mark = INTERPOLATED if row.is_interpolated else ""
    has_interval = row.ahead_low is not None and row.ahead_high is not None
    return (
        number(row.psnr, ".2f") + mark,
        number(row.psnr_worst, ".2f") + mark,
        number(row.ssim, ".4f") + mark,
        number(row.ahead, "+.2f"),
        f"{row.ahead_low:+.2f} to {row.ahead_high:+.2f}" if has_interval else DASH,
        marked(f"{number(row.denoise_speedup, '.2f')}x{mark}", row.disturbance),
    )


def footnotes(rows: Iterable[AtSpeedup], prompts: int) -> list[str]:
    """Sentences on the marks and dashes of a table of `rows` over so many prompts."""
    notes = []
    if any(row.psnr is not None and row.is_interpolated for row in rows):
        notes.append(f"{INTERPOLATED} interpolated between two settings, because no video has exactly this speedup.")
    if prompts < FEWEST_PROMPTS:
        notes.append(f"No interval for fewer than {FEWEST_PROMPTS} prompts.")
    return notes


def footnotes_at(comparison: Comparison, speedup: float) -> list[str]:
    """The footnotes of `table_at`."""
    return footnotes(comparison.at(speedup), len(comparison.plan.prompts))


def settings_of(row: AtSpeedup) -> str:
    """Its settings with their speedups by compute, such as "threshold=0.08 (1.62x)"."""
    pairs = zip(row.settings, row.speedups, strict=True)
    return ", ".join(f"{describe(setting)} ({speedup:.2f}x)" for setting, speedup in pairs)


def describe(setting: Mapping[str, Any]) -> str:
    """Parameters and values; the number of steps only if it is the only parameter."""
    shown = {name: value for name, value in setting.items() if name != "steps" or len(setting) == 1}
    return " ".join(f"{name}={format(value, 'g' if isinstance(value, float) else '')}" for name, value in shown.items())


COLUMNS: dict[str, Callable[[ScoredSetting], str]] = {  # of the table of all scored settings
    "method": lambda row: row.method,
    "setting": lambda row: describe(row.setting),
    "compute": lambda row: f"{row.compute_fraction:.3f}",
    "speedup by compute": lambda row: f"{row.compute_speedup:.2f}x",
    "denoise s": lambda row: marked(f"{row.denoise_seconds:.2f}", row.disturbance),
    "speedup": lambda row: marked(f"{row.denoise_speedup:.2f}x", row.disturbance),
    "end to end s": lambda row: marked(f"{row.end_to_end_seconds:.2f}", row.disturbance),
    "PSNR dB": lambda row: f"{row.psnr_mean:.2f}",
    "worst": lambda row: f"{row.psnr_min:.2f}",
    "SSIM": lambda row: f"{row.ssim_mean:.4f}",
    SOUND: lambda row: number(row.si_sdr_mean, ".2f"),
    "log-mel dB": lambda row: number(row.log_mel_mean, ".2f"),
    "RMS ratio": lambda row: number(row.rms_ratio_mean, ".3f"),
    "held MiB": lambda row: DASH if row.bytes_held is None else f"{row.bytes_held / 2**20:.2f}",
    "joules": lambda row: number(row.energy_per_video_joules, ",.0f"),
    "n": lambda row: str(row.n),
}
