"""The page of a comparison: the plot, videos side by side, and a table for each speedup."""

from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from urllib.parse import quote as quote_address

from galaxydit.calibration.bootstrap import FEWEST_PROMPTS
from galaxydit.eval.compare.compare_job import Comparison
from galaxydit.eval.compare.markdown import caption, footnotes_at, scored_table, selection_lines, table_at
from galaxydit.eval.compare.plan import PAGE
from galaxydit.foreign_text import one_line
from galaxydit.pipelines.page_design import Brief, picture_address, render_page
from galaxydit.pipelines.written_by import write_html

SHOWN_SPEEDUP = 2.0  # of the sentence on top, or the nearest one
TEMPLATE = """\
{% extends "base.html" %}
{% block main %}
<h2>Quality over speed</h2>
<div class="plots"><figure><div class="scroll" role="region" tabindex="0" aria-label="figure">\
<img alt="PSNR over speedup of each method, by compute and by seconds" src="{{ plot }}"></div>
<figcaption>PSNR against the plain video of the same noise, mean over all scored videos\
{{ interval }}. Left: speedup by compute. Right: by seconds of denoising. Settings that left a video unchanged are \
not drawn.</figcaption></figure></div>
{% if videos %}<h2>Side by side</h2>
<p class="hint">The first prompt, &quot;{{ prompt }}&quot;: the plain video, and those of the best methods. Under \
each: its PSNR, and the mean seconds of denoising over all scored videos.</p>
<div class="videos">{% for name, address in videos %}<figure><video controls loop muted playsinline preload="metadata" \
src="{{ address }}" aria-label="{{ name }}"></video><figcaption>{{ name }}</figcaption></figure>{% endfor %}</div>
{% endif %}
{% for speedup, table, footnotes in tables %}<h2>At {{ speedup }} by compute</h2>
{{ box(table, "scores at " ~ speedup) }}
{% for footnote in footnotes %}<p class="hint">{{ footnote }}</p>
{% endfor %}{% endfor %}
<h2>All scored settings</h2>{{ box(scored, "all scored settings") }}
{% for line in dropped %}<p class="hint">{{ line }}</p>
{% endfor %}{% endblock %}
"""


def write_compare_page(comparison: Comparison, folder: Path, model: str, plot: Path, videos: Sequence[Path]) -> Path:
    """Write `comparison.html` to the comparison's folder, whose `videos` it links to; returns its path."""
    tables = []
    for speedup in comparison.plan.speedups:
        tables.append((f"{speedup:g}x", table_at(comparison, speedup), footnotes_at(comparison, speedup)))
    has_intervals = len(comparison.plan.prompts) >= FEWEST_PROMPTS
    text = render_page(
        TEMPLATE,
        f"Comparison on {one_line(model)}",
        brief_of(comparison, folder),
        notes=_notes(comparison),
        plot=picture_address(plot),
        prompt=comparison.plan.prompts[0],
        interval=" with its 95 % interval over prompts" if has_intervals else "",
        dropped=selection_lines(comparison),
        scored=scored_table(comparison),
        tables=tables,
        videos=[(_name_of(path), quote_address(path.name)) for path in videos],
    )
    write_html(folder / PAGE, text)
    return folder / PAGE


def _name_of(video: Path) -> str:
    return f"Methods {video.stem.rpartition('-')[2]} as fast by compute"


def brief_of(comparison: Comparison, folder: Path) -> Brief:
    command = f"galaxydit eval report {quote(folder.name)}"
    run = f"galaxydit compare: {caption(comparison)}"
    return Brief(run, _meaning(comparison), "see each video of each prompt", command)


def _meaning(comparison: Comparison) -> str:
    """The best method at 2x, or at the nearest speedup, and how far it is ahead."""
    reached = [result for result in comparison.at_speedups if result.psnr is not None]
    if not reached:
        return "No method reaches a wanted speedup: its settings are all slower or all faster."
    best = min(reached, key=lambda result: abs(result.speedup - SHOWN_SPEEDUP))  # of equal ones the first, the best
    first = f"At {best.speedup:g}x by compute, {best.method} stays nearest to the plain video: PSNR {best.psnr:.1f} dB"
    if best.ahead is None:
        return f"{first}."
    ahead = f"{first}, {best.ahead:.1f} dB ahead of {best.best_other}"
    if best.ahead_low is None or best.ahead_high is None:
        return f"{ahead}; an interval needs {FEWEST_PROMPTS} prompts."
    level = ", level because it holds 0" if best.ahead_low <= 0 <= best.ahead_high else ""
    return f"{ahead} (95 % interval {best.ahead_low:+.1f} to {best.ahead_high:+.1f}{level})."


def _notes(comparison: Comparison) -> list[str]:
    notes = [f"{name} is left out because it failed: {reason}" for name, reason in comparison.failed.items()]
    reasons = dict.fromkeys(row.disturbance for row in comparison.rows if row.disturbance)
    if reasons:
        notes.append(f"Other work disturbed seconds, so do not compare them: {next(iter(reasons))}.")
    return notes
