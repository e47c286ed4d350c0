"""The calibration's report: one self-contained HTML page, and its figures as PNGs."""

from pathlib import Path
from shlex import quote

from galaxydit.calibration.calibration import Calibration
from galaxydit.calibration.plots import draw_all
from galaxydit.calibration.profile_tables import (
    compared_table,
    ranking_table,
    redundancy_table,
    settings_table,
    target_table,
)
from galaxydit.foreign_text import one_line
from galaxydit.pipelines.model_names import example_prompt
from galaxydit.pipelines.page_design import Brief, picture_address, render_page
from galaxydit.pipelines.table import Table
from galaxydit.pipelines.written_by import write_html
from galaxydit.profiles.evidence import Verification
from galaxydit.profiles.schema import Profile
from galaxydit.request import PROXY

PAGE_NAME = "report.html"
SHOWN_SPEEDUP = 2.0  # of the sentence on top, or the nearest planned one
TEMPLATE = """\
{% extends "base.html" %}
{% macro prompts(rows) %}<ol>{% for row in rows %}<li>{{ row.prompt }} (seed {{ row.seed }})</li>{% endfor %}</ol>\
{% endmacro %}
{% block main %}
<p>{{ reason }}.</p>
<h2>What a speedup costs</h2>
{{ box(targets, "speedups") }}
<p class="hint">Speedup counts block evaluations; seconds are of denoising on this device.\
{% if verified %} PSNR is against the plain video of the same seed in dB, the mean over {{ verified | length }} \
held-out prompts with its 95 % interval. Missed by more than 5 %: {{ missed | join("; ") or "none" }}.{% endif %}</p>
{% if compared.headings %}<h2>Proxies compared by videos</h2>
{{ box(compared, "proxies compared by videos") }}{% endif %}
<h2>Figures</h2>
<div class="plots">{% for picture, text in pictures %}<figure>\
<div class="scroll" role="region" tabindex="0" aria-label="figure"><img alt="{{ text }}" src="{{ picture }}"></div>\
<figcaption>{{ text }}</figcaption></figure>{% endfor %}</div>
{% if redundancy.headings %}<h2>Redundancy of blocks</h2>{{ box(redundancy, "redundancy of blocks") }}
<p class="hint">Share of blocks and steps whose output changed by less than a limit since the step before: what a \
cache of single blocks or parts could reuse at that error (the study of arXiv 2411.13588).</p>{% endif %}
<h2>Ranking</h2>{{ box(ranking, "ranking of proxies") }}
<p class="hint">Spearman's rho between a proxy's summed distance and the error that reuse would have: along a \
trajectory, as in arXiv 2512.03451, and between samples at the same step, where a clock has 0.</p>
<h2>Settings</h2>{{ box(settings, "settings") }}
<h2>Prompts</h2><p>Recorded:</p>{{ prompts(recorded) }}
{% if verified %}<p>Verified on:</p>{{ prompts(verified) }}{% endif %}
{% endblock %}
"""


def write_report(calibration: Calibration, folder: Path, model: str | None = None) -> Path:
    """Write the figures and `report.html` to `folder`; the path of the page, whose title names `model`."""
    profile = calibration.profile
    text = render_page(
        TEMPLATE,
        f"Calibration of {one_line(model or profile.model.class_name)}",
        brief_of(calibration, model),
        facts=_facts(profile),
        notes=_notes(profile),
        reason=f"{profile.evidence.reason}; {calibration.chosen_order}",
        missed=[
            f"{row.speedup:g}x came out as {1 / row.compute_fraction:.2f}x"
            for row in profile.evidence.verifications
            if row.compute_fraction and abs(row.compute_fraction * row.speedup - 1) > 0.05
        ],
        recorded=calibration.recordings,
        verified=list({row.prompt: row for row in calibration.verifications}.values()),
        targets=Table.of(target_table(profile)),
        compared=Table.of(compared_table(profile)),
        ranking=Table.of(ranking_table(profile)),
        settings=Table.of(settings_table(profile), labels=2),
        redundancy=Table.of(redundancy_table(calibration.redundancy) if calibration.redundancy else []),
        pictures=[(picture_address(path), text) for path, text in draw_all(calibration, folder).items()],
    )
    write_html(folder / PAGE_NAME, text)
    return folder / PAGE_NAME


def brief_of(calibration: Calibration, model: str | None = None) -> Brief:
    profile = calibration.profile
    run = f"galaxydit calibrate measured {profile.basis}, of {profile.conditions.steps} steps each"
    command = f"galaxydit generate --model {quote(model or 'MODEL')} --profile {quote(profile.name)}.json --speedup 2"
    command += f" --prompt {quote(example_prompt(model or ''))} --out video.mp4"
    return Brief(f"{run}.", _meaning(profile), "make a video with the profile", command)


def _meaning(profile: Profile) -> str:
    """The result in one sentence: the PSNR of the better policy, or that no video has verified the profile."""
    rows = profile.evidence.verifications
    speedups = [row.speedup for row in rows] or [target.speedup for target in profile.recipe.targets]
    nearest = min(speedups, key=lambda speedup: abs(speedup - SHOWN_SPEEDUP))
    policy = profile.target_for(nearest).policy
    measured = profile.evidence.proxy_verifications if policy == PROXY else rows
    row = next((row for row in measured if row.speedup == nearest), Verification(nearest))
    if row.psnr_db is None:
        return (
            f"accelerate() can now plan {min(speedups):g}x to {max(speedups):g}x for this model; no video has verified "
            "the quality, which --budget full does."
        )
    interval = ""
    if row.psnr_low is not None and row.psnr_high is not None:
        interval = f" (95 % interval {row.psnr_low:.1f} to {row.psnr_high:.1f})"
    prompts = f"{row.prompts} held-out prompt{'s' * (row.prompts != 1)}"
    return (
        f'At speedup={nearest:g} the policy "{policy}" gives videos with a PSNR of {row.psnr_db:.1f} dB{interval} '
        f"against the plain ones, over {prompts}."
    )


def _facts(profile: Profile) -> list[tuple[str, str]]:
    conditions = profile.conditions
    facts = {
        "profile": profile.name,
        "proxy": profile.recipe.proxy.replace("_", " "),
        "steps": str(conditions.steps),
        "latent": "x".join(map(str, conditions.latent_shape)),
        "dtype": conditions.dtype,
        "device": conditions.device,
    }
    return [(name, text) for name, text in facts.items() if text]


def _notes(profile: Profile) -> list[str]:
    seconds = profile.evidence.seconds
    if seconds is None or not seconds.disturbance:
        return []
    return [f"Other work disturbed the seconds, so do not compare them: {seconds.disturbance}."]
