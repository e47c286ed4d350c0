"""Results of a calibration as tables of text, for terminal, report and card; a missing measurement is empty."""

from itertools import zip_longest
from typing import TYPE_CHECKING

from galaxydit.calibration.bootstrap import FEWEST_PROMPTS
from galaxydit.foreign_text import in_markdown, one_line
from galaxydit.pipelines.disturbance import marked
from galaxydit.pipelines.table import Table
from galaxydit.profiles.evidence import Seconds, Verification
from galaxydit.profiles.schema import Profile

if TYPE_CHECKING:
    from galaxydit.calibration.redundancy import Redundancy

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
    """One row for each requested speedup: blocks and PSNR of both policies, the better policy, and seconds.

    Columns without a value are left out. A profile that no video verified has the planned number of computed steps.
    """
    evidence = profile.evidence
    seconds = evidence.seconds or Seconds(0.0, 0.0, 0.0, 0.0, (), ())
    speedups = evidence.verifications, seconds.predicted_speedup, seconds.measured_speedup
    by_proxy = {verification.speedup: verification for verification in evidence.proxy_verifications}
    rows = []
    for schedule, in_theory, in_practice in zip_longest(*speedups):
        proxy = by_proxy.get(schedule.speedup, Verification(schedule.speedup))
        rows.append(
            {
                "speedup": f"{schedule.speedup:g}x",
                "computed steps": "" if schedule.compute_fraction else _planned(profile, schedule.speedup),
                "blocks, schedule": _speedup(schedule),
                "blocks, proxy": _speedup(proxy),
                "PSNR, schedule": _psnr(schedule),
                "PSNR, proxy": _psnr(proxy),
                "auto": profile.target_for(schedule.speedup).policy,
                "seconds, predicted": _text(in_theory, "{:.2f}x"),
                "seconds, measured": marked(_text(in_practice, "{:.2f}x"), seconds.disturbance),
            }
        )
    return _without_empty_columns(rows)


def _planned(profile: Profile, speedup: float) -> str:
    return f"{len(profile.target_for(speedup).sigmas)} of {profile.conditions.steps}"


def _without_empty_columns(rows: Rows) -> Rows:
    filled = {heading for row in rows for heading, cell in row.items() if cell}
    return [{heading: cell for heading, cell in row.items() if heading in filled} for row in rows]


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
    """One row for each proxy: correlations, with 95 % intervals from `FEWEST_PROMPTS` samples on, and its cost."""
    has_intervals = profile.conditions.samples >= FEWEST_PROMPTS
    table = []
    for row in profile.evidence.ranking:
        cells = {
            "proxy": row.proxy,
            "rho": f"{row.rho:.3f}",
            "95 % interval": f"{row.low:.3f} to {row.high:.3f}",
            "between samples": f"{row.between:.3f}",
            "its 95 % interval": f"{row.between_low:.3f} to {row.between_high:.3f}",
            "order 0 after 20 %": f"{row.paper:.3f}",
            "cost, % of a step": f"{100 * row.cost:.1f}",
        }
        if not has_intervals:
            del cells["95 % interval"]
            del cells["its 95 % interval"]
        table.append(cells)
    return table


def redundancy_table(redundancy: "Redundancy") -> Rows:
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
    few = verification.prompts < FEWEST_PROMPTS
    if few or verification.psnr_low is None or verification.psnr_high is None:
        return _text(verification.psnr_db, "{:.1f}")
    return f"{verification.psnr_db:.1f} ({verification.psnr_low:.0f}-{verification.psnr_high:.0f})"


def _text(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
