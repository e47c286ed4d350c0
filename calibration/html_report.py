"""The calibration's report: one self-contained HTML page, and its figures as PNGs."""

from base64 import b64encode
from collections.abc import Iterable
from html import escape
from pathlib import Path

from galaxydit.calibration.calibration import Calibration
from galaxydit.calibration.plots import draw_all
from galaxydit.calibration.tables import (
    Table,
    compared_table,
    ranking_table,
    redundancy_table,
    settings_table,
    target_table,
)

STYLE = """
body{font:16px/1.5 system-ui,sans-serif;color:#222;max-width:56rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:2rem}
table{border-collapse:collapse;font-size:.9rem;display:block;overflow-x:auto;font-variant-numeric:tabular-nums}
td,th{padding:.25rem .7rem;border-bottom:1px solid #ddd;text-align:right;white-space:nowrap}
th{white-space:normal;vertical-align:bottom}
td:first-child,th:first-child,:first-child+td:last-child,:first-child+th:last-child{text-align:left}
img{max-width:100%}figure{margin:1.5rem 0}figcaption{color:#666;font-size:.9rem}
"""


def write_report(calibration: Calibration, folder: Path, model: str | None = None) -> Path:
    """Write the figures and `report.html` to `folder`; returns the path of the page.

    `model` is the model's name in the title, by default the class of the transformer. Names and prompts are escaped.
    """
    profile = calibration.profile
    title = escape(f"Calibration of {model or profile.model.class_name}")
    missed = [
        f"{row.speedup:g}x came out as {1 / row.compute_fraction:.2f}x"
        for row in profile.evidence.verifications
        if row.compute_fraction and abs(row.compute_fraction * row.speedup - 1) > 0.05
    ]
    verified = dict.fromkeys((row.prompt, row.seed) for row in calibration.verifications)
    pictures = "".join(
        f'<figure><img alt="{escape(text)}" src="data:image/png;base64,{b64encode(path.read_bytes()).decode()}">'
        f"<figcaption>{escape(text)}</figcaption></figure>"
        for path, text in draw_all(calibration, folder).items()
    )
    seconds = profile.evidence.seconds
    why = seconds.disturbance if seconds else ""
    disturbed = f" Other work disturbed the seconds: {escape(why)}." if why else ""
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head><body><h1>{title}</h1>"
        f"<p>Profile: <b>{escape(profile.name)}</b>. Proxy: <b>{escape(profile.recipe.proxy)}</b>. "
        f"{escape(profile.evidence.reason)}; {calibration.chosen_order}.</p>"
        "<h2>What a speedup costs</h2>"
        "<p>Speedup counts block evaluations; seconds are of denoising on this device. PSNR is against the plain "
        f"video of the same seed in dB, the mean over {len(verified)} held-out prompts with its 95 % interval. "
        f"Missed by more than 5 %: {'; '.join(missed) or 'none'}.{disturbed}</p>"
        f"{_table(target_table(profile))}"
        f"<h2>Proxies compared by videos</h2>{_table(compared_table(profile))}"
        f"<h2>Figures</h2>{pictures}"
        f"{_redundancy(calibration)}"
        "<h2>Ranking</h2>"
        "<p>Spearman's rho between a proxy's summed distance and the error that reuse would have: along a trajectory, "
        "as in arXiv 2512.03451, and between samples at the same step, where a clock has 0.</p>"
        f"{_table(ranking_table(profile))}"
        f"<h2>Settings</h2>{_table(settings_table(profile))}"
        f"<h2>Prompts</h2><p>Recorded:</p>{_prompts((r.prompt, r.seed) for r in calibration.recordings)}"
        f"<p>Verified on:</p>{_prompts(verified)}"
        "</body></html>"
    )
    (folder / "report.html").write_text(page, encoding="utf-8")
    return folder / "report.html"


def _redundancy(calibration: Calibration) -> str:
    if calibration.redundancy is None:
        return ""
    text = (
        "Share of blocks and steps whose output changed by less than a limit since the step before: what a cache of "
        "single blocks or parts could reuse at that error (the study of arXiv 2411.13588)."
    )
    return f"<h2>Redundancy of blocks</h2><p>{text}</p>{_table(redundancy_table(calibration.redundancy))}"


def _prompts(samples: Iterable[tuple[str, int]]) -> str:
    return "<ol>" + "".join(f"<li>{escape(prompt)} (seed {seed})</li>" for prompt, seed in samples) + "</ol>"


def _table(table: Table) -> str:
    if not table:
        return "<p>None.</p>"
    head = "".join(f"<th>{escape(name)}</th>" for name in table[0])
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row.values()) + "</tr>" for row in table)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
