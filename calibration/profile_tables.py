"""Results of a calibration as tables of text, for terminal, report and card; a missing measurement is empty."""

from itertools import zip_longest

from galaxydit.calibration.redundancy import Redundancy
from galaxydit.foreign_text import in_markdown, one_line
from galaxydit.pipelines.disturbance import marked
from galaxydit.pipelines.table import Table
from galaxydit.profiles.evidence import Seconds, Verification
from galaxydit.profiles.schema import Profile

Rows = list[dict[str, str]]
"""Cells by heading, for `pipelines.table.Table.of`; the first cell names the row."""
PAGE_ONLY = ("seconds, predicted", "order 0 after 20 %", "its 95 % interval")  # for which a terminal has no room
SHOWN_PROXIES = 12  # in a terminal and on a card, of the ranking, from the best


def terminal_tables(profile: Profile) -> list[Table]:
    """The ranking, the proxies that were compared by videos, and the targets."""
    tables = []
    for rows in (ranking_table(profile)[:SHOWN_PROXIES], compared_table(profile), target_table(profile)):
        if rows:
            tables.append(Table.of(rows, PAGE_ONLY))
    return tables


def target_table(profile: Profile) -> Rows:
    """One row for each requested speedup: blocks and PSNR of both policies, the better policy, and seconds."""
    evidence = profile.evidence
    seconds = profile.evidence.seconds or Seconds(0.0, 0.0, 0.0, 0.0, (), ())
    speedups = evidence.verifications, seconds.predicted_speedup, seconds.measured_speedup
    by_proxy = {verification.speedup: verification for verification in evidence.proxy_verifications}
    rows = []
    for schedule, in_theory, in_practice in zip_longest(*speedups):
        proxy = by_proxy.get(schedule.speedup, Verification(schedule.speedup))
        rows.append(
            {
                "speedup": f"{schedule.speedup:g}x",
                "blocks, schedule": _speedup(schedule),
                "blocks, proxy": _speedup(proxy),
                "PSNR, schedule": _psnr(schedule),
                "PSNR, proxy": _psnr(proxy),
                "auto": profile.target_for(schedule.speedup).policy,
                "seconds, predicted": _text(in_theory, "{:.2f}x"),
                "seconds, measured": marked(_text(in_practice, "{:.2f}x"), seconds.disturbance),
            }
        )
    return rows


def compared_table(profile: Profile) -> Rows:
    """One row for each proxy that was compared by videos, the chosen one first."""
    ranked = {row.proxy: row for row in profile.evidence.ranking}
    table = []
    for compared in profile.evidence.compared_proxies:
        rank = ranked[compared.proxy]
        cells = {"proxy": compared.proxy, "rho": f"{rank.rho:.3f}", "between samples": f"{rank.between:.3f}"}
        for measured in compared.measured:
            cells[f"PSNR at {measured.speedup:g}x"] = _psnr(measured)
        table.append(cells)
    return table


def ranking_table(profile: Profile) -> Rows:
    """One row for each proxy: correlations with 95 % intervals, and the cost of reading it."""
    table = []
    for row in profile.evidence.ranking:
        table.append(
            {
                "proxy": row.proxy,
                "rho": f"{row.rho:.3f}",
                "95 % interval": f"{row.low:.3f} to {row.high:.3f}",
                "between samples": f"{row.between:.3f}",
                "its 95 % interval": f"{row.between_low:.3f} to {row.between_high:.3f}",
                "order 0 after 20 %": f"{row.paper:.3f}",
                "cost, % of a step": f"{100 * row.cost:.1f}",
            }
        )
    return table


def redundancy_table(redundancy: Redundancy) -> Rows:
    """One row for each part of a block and branch: mean change since the step before, and shares of small changes."""
    changes = redundancy.array[..., 1:]
    table = []
    for column, part in enumerate(redundancy.parts):
        for row, branch in enumerate(redundancy.branches):
            of_part = changes[row, column]
            cells = {"part": f"{part.replace('_', ' ')}, {branch}", "mean change": f"{of_part.mean():.3f}"}
            for limit in (0.02, 0.05, 0.1):
                cells[f"below {limit:g}"] = f"{100 * (of_part < limit).mean():.0f} %"
            table.append(cells)
    return table


def settings_table(profile: Profile) -> Rows:
    conditions = profile.conditions
    model = profile.model
    propagation = profile.evidence.propagation
    names = ("scheduler", "steps", "flow_shift", "guidance_scale", "latent_shape", "dtype", "device", "samples", "seed")
    levels = zip(propagation.sensitivities, propagation.sigmas, strict=True)
    sensitivities = [f"{value:.3g} at sigma {sigma:.2f}" for value, sigma in levels]
    values = {"model": model.class_name, "adapters": ", ".join(model.adapters) or "none"}
    for name in names:
        values[name.replace("_", " ")] = str(getattr(conditions, name))
    values["sensitivity"] = ", ".join(sensitivities) or "not measured"
    values["prompts, SHA-256"] = conditions.prompts_sha256
    values |= conditions.versions
    return [{"setting": name, "value": text} for name, text in values.items()]


def card_of(profile: Profile, model: str, repository: str) -> str:
    """Markdown: how to use the profile, what it rests on, its speedups, its ranking and its conditions."""
    return f"""---
library_name: diffusers
tags: [galaxydit, video-generation, acceleration]
base_model: {one_line(model)}
---
# Profile of {in_markdown(model)} for galaxydit

```python
galaxydit.accelerate(pipe, speedup=2, profile="hf://{repository}")
```

Made by `galaxydit calibrate`. It rests on {profile.basis}. {in_markdown(profile.evidence.reason)}.

## Speedups

{Table.of(target_table(profile)).markdown()}

## Proxies by rank correlation with the error of reuse

{Table.of(ranking_table(profile)[:SHOWN_PROXIES]).markdown()}

## Conditions

{Table.of(settings_table(profile)).markdown()}
"""


def _speedup(verification: Verification) -> str:
    return f"{1 / verification.compute_fraction:.2f}x" if verification.compute_fraction else ""


def _psnr(verification: Verification) -> str:
    """PSNR in dB with its 95 % interval over prompts, such as "31.4 (30-33)"; "" if it was not measured."""
    if verification.psnr_low is None or verification.psnr_high is None:
        return _text(verification.psnr_db, "{:.1f}")
    return f"{verification.psnr_db:.1f} ({verification.psnr_low:.0f}-{verification.psnr_high:.0f})"


def _text(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
