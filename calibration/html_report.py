"""The calibration's report: one self-contained HTML page, and its figures as PNGs."""

from base64 import b64encode
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from galaxydit.calibration.calibration import Calibration
from galaxydit.calibration.plots import draw_all
from galaxydit.calibration.profile_tables import (
    compared_table,
    ranking_table,
    redundancy_table,
    settings_table,
    target_table,
)
from galaxydit.foreign_text import printable
from galaxydit.pipelines.table import Table
from galaxydit.pipelines.written_by import write_html

PAGE_NAME = "report.html"
PAGE = """\
{%- macro prompts(rows) %}<ol>{% for row in rows %}<li>{{ row.prompt }} (seed {{ row.seed }})</li>{% endfor %}\
</ol>{% endmacro -%}
<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1"><title>{{ title }}</title><style>
body{font:16px/1.5 system-ui,sans-serif;color:#222;max-width:56rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:2rem}
table{border-collapse:collapse;font-size:.9rem;display:block;overflow-x:auto;font-variant-numeric:tabular-nums}
td,th{padding:.25rem .7rem;border-bottom:1px solid #ddd;text-align:right;white-space:nowrap}
th{white-space:normal;vertical-align:bottom}
td:first-child,th:first-child,:first-child+td:last-child,:first-child+th:last-child{text-align:left}
img{max-width:100%}figure{margin:1.5rem 0}figcaption{color:#666;font-size:.9rem}
</style></head><body><h1>{{ title }}</h1>
<p>Profile: <b>{{ profile.name }}</b>. Proxy: <b>{{ profile.recipe.proxy }}</b>. {{ profile.evidence.reason }}; \
{{ calibration.chosen_order }}.</p>
<h2>What a speedup costs</h2>
<p>The profile rests on {{ profile.basis }}. Speedup counts block evaluations; seconds are of denoising on this \
device.{% if verified %} PSNR is against the plain video of the same seed in dB, the mean over \
{{ verified | length }} held-out prompts with its 95 % interval. Missed by more than 5 %: \
{{ missed | join("; ") or "none" }}.{% endif %}\
{% if disturbance %} Other work disturbed the seconds: {{ disturbance }}.{% endif %}</p>
{{ targets }}
{% if compared %}<h2>Proxies compared by videos</h2>{{ compared }}{% endif %}
<h2>Figures</h2>
{% for picture, text in pictures %}<figure><img alt="{{ text }}" src="data:image/png;base64,{{ picture }}">\
<figcaption>{{ text }}</figcaption></figure>{% endfor %}
{% if redundancy %}<h2>Redundancy of blocks</h2><p>Share of blocks and steps whose output changed by less \
than a limit since the step before: what a cache of single blocks or parts could reuse at that error (the study of \
arXiv 2411.13588).</p>{{ redundancy }}{% endif %}
<h2>Ranking</h2><p>Spearman's rho between a proxy's summed distance and the error that reuse would have: along a \
trajectory, as in arXiv 2512.03451, and between samples at the same step, where a clock has 0.</p>{{ ranking }}
<h2>Settings</h2>{{ settings }}
<h2>Prompts</h2><p>Recorded:</p>{{ prompts(calibration.recordings) }}{% if verified %}<p>Verified on:</p>\
{{ prompts(verified) }}{% endif %}</body></html>
"""


def write_report(calibration: Calibration, folder: Path, model: str | None = None) -> Path:
    """Write the figures and `report.html` to `folder`; the path of the page, whose title names `model`."""
    profile, seconds = calibration.profile, calibration.profile.evidence.seconds
    page = Environment(autoescape=True, undefined=StrictUndefined, finalize=_printed).from_string(PAGE)
    text = page.render(
        title=f"Calibration of {model or profile.model.class_name}",
        calibration=calibration,
        profile=profile,
        missed=[
            f"{row.speedup:g}x came out as {1 / row.compute_fraction:.2f}x"
            for row in profile.evidence.verifications
            if row.compute_fraction and abs(row.compute_fraction * row.speedup - 1) > 0.05
        ],
        verified=list({row.prompt: row for row in calibration.verifications}.values()),
        disturbance=seconds.disturbance if seconds else "",
        targets=_html(target_table(profile)),
        compared=_html(compared_table(profile)),
        ranking=_html(ranking_table(profile)),
        settings=_html(settings_table(profile)),
        redundancy=_html(redundancy_table(calibration.redundancy) if calibration.redundancy else []),
        pictures=[
            (b64encode(path.read_bytes()).decode(), text) for path, text in draw_all(calibration, folder).items()
        ],
    )
    write_html(folder / PAGE_NAME, text)
    return folder / PAGE_NAME


def _printed(value: Any) -> Any:
    """What the page shows for a value of the template: text in printable characters, and finished HTML as it is."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _html(rows: list[dict[str, str]]) -> Markup:
    return Markup(Table.of(rows).html() if rows else "")
