"""Results of a calibration as tables of text, for the terminal and the report.

A table is a list of rows; a row maps each column's heading to its cell. A cell without a measurement is empty.

A proxy is a cheap tensor whose change from step to step, its distance, shows how much the transformer's output changes.
The policy "schedule" computes planned steps (full steps), the policy "proxy" decides by the proxy's distance. rho is
Spearman's rank correlation of the distance with the error of reuse, the relative error of a step that is predicted from
earlier full steps: along a trajectory over the steps of one generation, between samples over generations at one step.
"""

from itertools import zip_longest

from galaxydit.calibration.redundancy import LIMITS, Redundancy
from galaxydit.pipelines.disturbance import marked
from galaxydit.profiles.evidence import Verification
from galaxydit.profiles.schema import Profile

Table = list[dict[str, str]]
"""Rows of cells by heading; the first cell names the row."""
PAGE_ONLY = (
    "seconds, predicted",
    "order 0 after 20 %",
    "its 95 % interval",
)  # headings for which a terminal has no room


def target_table(profile: Profile) -> Table:
    """One row for each requested speedup.

    Columns: for each of the policies "schedule" and "proxy", the speedup reached in block evaluations ("blocks") and
    the PSNR, both on held-out prompts; the policy that "auto" follows; and the speedup of denoising by seconds,
    predicted and measured.
    """
    seconds, evidence = profile.evidence.seconds, profile.evidence
    predicted, measured = (seconds.predicted_speedup, seconds.measured_speedup) if seconds else ((), ())
    by_proxy = {verification.speedup: verification for verification in evidence.proxy_verifications}
    rows = []
    for schedule, in_theory, in_practice in zip_longest(evidence.verifications, predicted, measured):
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
                "seconds, measured": marked(_text(in_practice, "{:.2f}x"), seconds.disturbance if seconds else ""),
            }
        )
    return rows


def compared_table(profile: Profile) -> Table:
    """One row for each proxy that was compared by generated videos, the chosen proxy first.

    Columns: the proxy's rho with the error of reuse, along a trajectory ("rho") and between samples, and PSNR in dB of
    the policy "proxy" at each compared speedup.
    """
    rows = {row.proxy: row for row in profile.evidence.ranking}
    return [
        {
            "proxy": compared.proxy,
            "rho": f"{rows[compared.proxy].rho:.3f}",
            "between samples": f"{rows[compared.proxy].between:.3f}",
            **{f"PSNR at {at.speedup:g}x": _psnr(at) for at in compared.measured},
        }
        for compared in profile.evidence.compared_proxies
    ]


def ranking_table(profile: Profile) -> Table:
    """One row for each proxy, by falling rho along a trajectory, then by rising cost.

    Columns: the proxy's rho with the error of reuse, along a trajectory ("rho") and between samples, each with its 95 %
    interval; rho along a trajectory if reused steps repeat the last full step (order 0) and the first 20 % of the steps
    do not count; and the proxy's cost, seconds of reading the proxy in % of the seconds of a full step.
    """
    return [
        {
            "proxy": row.proxy,
            "rho": f"{row.rho:.3f}",
            "95 % interval": f"{row.low:.3f} to {row.high:.3f}",
            "between samples": f"{row.between:.3f}",
            "its 95 % interval": f"{row.between_low:.3f} to {row.between_high:.3f}",
            "order 0 after 20 %": f"{row.paper:.3f}",
            "cost, % of a step": f"{100 * row.cost:.1f}",
        }
        for row in profile.evidence.ranking
    ]


def redundancy_table(redundancy: Redundancy) -> Table:
    """One row for each part of a block in each guidance branch; the first part is the whole block, the others are
    submodules such as the self-attention.

    A change is the relative L1 change of an output since the step before (`Redundancy`). Columns: the mean change over
    all blocks and all steps after the first, and the share of these changes below each of LIMITS (0.02, 0.05, 0.1).
    """
    return [
        {
            "part": f"{part.replace('_', ' ')}, {branch}",
            "mean change": f"{redundancy.array[row, column, :, 1:].mean():.3f}",
            **{f"below {limit:g}": f"{100 * redundancy.redundant(row, column, limit):.0f} %" for limit in LIMITS},
        }
        for column, part in enumerate(redundancy.parts)
        for row, branch in enumerate(redundancy.branches)
    ]


def settings_table(profile: Profile) -> Table:
    """One row, "setting" and "value", for each condition under which the profile was measured."""
    conditions, model, propagation = profile.conditions, profile.model, profile.evidence.propagation
    names = ("scheduler", "steps", "flow_shift", "guidance_scale", "latent_shape", "dtype", "device", "samples", "seed")
    levels = zip(propagation.sensitivities, propagation.sigmas, strict=True)
    rows = {
        "model": model.class_name,
        "adapters": ", ".join(model.adapters) or "none",
        **{name.replace("_", " "): str(getattr(conditions, name)) for name in names},
        "sensitivity": ", ".join(f"{value:.3g} at sigma {sigma:.2f}" for value, sigma in levels) or "not measured",
        "prompts, SHA-256": conditions.prompts_sha256,
        **conditions.versions,
    }
    return [{"setting": name, "value": text} for name, text in rows.items()]


def _speedup(verification: Verification) -> str:
    return f"{1 / verification.compute_fraction:.2f}x" if verification.compute_fraction else ""


def _psnr(verification: Verification) -> str:
    """PSNR in dB with its 95 % interval over prompts, such as "31.4 (30-33)"; "" if it was not measured."""
    if verification.psnr_low is None or verification.psnr_high is None:
        return _text(verification.psnr_db, "{:.1f}")
    return f"{verification.psnr_db:.1f} ({verification.psnr_low:.0f}-{verification.psnr_high:.0f})"


def _text(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
