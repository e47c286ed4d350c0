"""The calibration's report: one self-contained HTML page, and its figures as PNGs."""

import base64
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from galaxydit.calibration.calibration import Calibration
from galaxydit.calibration.plots import captions, draw_all

STYLE = """
body{font:16px/1.5 system-ui,sans-serif;color:#222;max-width:56rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:2rem}
table{border-collapse:collapse;font-size:.9rem;display:block;overflow-x:auto;font-variant-numeric:tabular-nums}
td,th{padding:.25rem .7rem;border-bottom:1px solid #ddd;text-align:right;white-space:nowrap}
th{white-space:normal;vertical-align:bottom}
td:first-child,th:first-child,:first-child+td:last-child,:first-child+th:last-child{text-align:left}
img{max-width:100%}figure{margin:1.5rem 0}figcaption{color:#666;font-size:.9rem}
.note{background:#fff6e5;padding:.6rem 1rem;border-left:4px solid #d9731a}
"""


def write_report(calibration: Calibration, folder: Path) -> Path:
    """Write the figures and `report.html` to `folder`; returns the page's path."""
    pictures = draw_all(calibration, folder)
    path = folder / "report.html"
    path.write_text(build_page(calibration, pictures), encoding="utf-8")
    return path


def build_page(calibration: Calibration, pictures: Sequence[Path]) -> str:
    """The page. All text from outside, such as prompts, is escaped."""
    profile = calibration.profile
    verified = dict.fromkeys((row.prompt, row.seed) for row in calibration.verifications)
    figures = "".join(
        f'<figure><img alt="{escape(text)}" src="data:image/png;base64,{_encode(picture)}">'
        f"<figcaption>{escape(text)}</figcaption></figure>"
        for picture, text in zip(pictures, captions(), strict=True)
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>Calibration of {escape(profile.name)}</title><style>{STYLE}</style></head><body>"
        f"<h1>Calibration of {escape(profile.name)}</h1>"
        f"<p>Proxy: <b>{escape(profile.proxy)}</b>. {escape(profile.reason)}.</p>"
        f"{_off_target(calibration)}"
        "<h2>What a speedup costs</h2>"
        "<p>Speedup counts block evaluations; seconds are of denoising on this device. PSNR is against the uncached "
        f"video of the same seed, the mean over {len(verified)} held-out prompts.</p>"
        f"{_targets(calibration)}<h2>Figures</h2>{figures}"
        f"<h2>Ranking</h2>{_ranking(calibration)}"
        f"<h2>Settings</h2>{_settings(calibration)}"
        f"<h2>Prompts</h2><p>Recorded:</p>{_prompts((r.prompt, r.seed) for r in calibration.recordings)}"
        f"<p>Verified on:</p>{_prompts(verified)}"
        "</body></html>"
    )


def _targets(calibration: Calibration) -> str:
    profile, seconds = calibration.profile, calibration.profile.seconds
    rows: list[list[Any]] = []
    for index, target in enumerate(profile.targets):
        measured = seconds.measured_speedup if seconds else ()
        rows.append(
            [
                f"{target.speedup:g}x",
                _number(target.compute_fraction and 1 / target.compute_fraction, "{:.2f}x"),
                _number(seconds.predicted_speedup[index] if seconds else None, "{:.2f}x"),
                _number(measured[index] if index < len(measured) else None, "{:.2f}x"),
                _number(target.psnr_db, "{:.2f}"),
                _number(target.fixed_psnr_db, "{:.2f}"),
                _number(target.expected_error, "{:.3f}"),
                f"{target.warmup:.0%}",
                target.max_consecutive,
            ]
        )
    heads = ["requested", "blocks", "seconds, predicted", "seconds, measured", "PSNR, dB", "at order 1, dB"]
    return _table([*heads, "largest expected error", "warm-up", "cap"], rows)


def _ranking(calibration: Calibration) -> str:
    rows = [
        [
            row.proxy,
            f"{row.rho:.3f}",
            f"{row.low:.3f} to {row.high:.3f}",
            f"{row.whole_run:.3f}",
            *(f"{value:.3f}" for value in row.by_lag),
            f"{row.cost:g}",
        ]
        for row in calibration.profile.ranking
    ]
    lags = [f"lag {index + 1}" for index in range(len(calibration.profile.ranking[0].by_lag))]
    return _table(["proxy", "rho", "95 % interval", "whole run", *lags, "cost, blocks"], rows)


def _settings(calibration: Calibration) -> str:
    conditions, model = calibration.profile.conditions, calibration.profile.model
    rows: list[list[Any]] = [["model", model.class_name], ["adapters", ", ".join(model.adapters) or "none"]]
    for name in ("scheduler", "steps", "flow_shift", "guidance_scale", "latent_shape", "dtype", "device", "samples"):
        rows.append([name.replace("_", " "), getattr(conditions, name)])
    propagation = calibration.profile.propagation
    levels = zip(propagation.gains, propagation.sigmas, strict=True)
    sensitivities = ", ".join(f"{value:.3g} at sigma {sigma:.2f}" for value, sigma in levels)
    rows.append(["error propagation", sensitivities or "not measured"])
    rows += [["first seed", conditions.seed], ["prompts, SHA-256", conditions.prompts_sha256]]
    rows += [[name, value] for name, value in conditions.versions.items()]
    return _table(["setting", "value"], rows)


def _off_target(calibration: Calibration) -> str:
    """A warning where a speedup was missed by more than 5 %."""
    missed = [
        f"{target.speedup:g}x came out as {1 / target.compute_fraction:.2f}x"
        for target in calibration.profile.targets
        if target.compute_fraction and abs(target.compute_fraction * target.speedup - 1) > 0.05
    ]
    return f'<p class="note">Missed by more than 5 %: {escape("; ".join(missed))}.</p>' if missed else ""


def _prompts(samples: Iterable[tuple[str, int]]) -> str:
    return "<ol>" + "".join(f"<li>{escape(prompt)} (seed {seed})</li>" for prompt, seed in samples) + "</ol>"


def _number(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def _table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _encode(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode("ascii")
