"""Results of a calibration as tables of text, for the terminal and the report."""

from itertools import zip_longest

from galaxydit.profiles.schema import Profile

Table = list[dict[str, str]]
"""Rows of cells by heading; the first cell names the row."""


def target_table(profile: Profile) -> Table:
    """One row for each target: what was requested, what was measured, and what it costs."""
    seconds = profile.evidence.seconds
    predicted, measured = (seconds.predicted_speedup, seconds.measured_speedup) if seconds else ((), ())
    return [
        {
            "speedup": f"{target.speedup:g}x",
            "blocks": f"{1 / target.compute_fraction:.2f}x" if target.compute_fraction else "",
            "seconds, predicted": _text(in_theory, "{:.2f}x"),
            "seconds, measured": _text(in_practice, "{:.2f}x"),
            "PSNR, dB": _text(target.psnr_db, "{:.2f}"),
            "largest expected error": _text(target.expected_error, "{:.3f}"),
        }
        for target, in_theory, in_practice in zip_longest(profile.evidence.verifications, predicted, measured)
    ]


def ranking_table(profile: Profile) -> Table:
    """One row for each proxy, best first: Spearman's rho with its interval, over all steps, and by lag."""
    return [
        {
            "proxy": row.proxy,
            "rho": f"{row.rho:.3f}",
            "95 % interval": f"{row.low:.3f} to {row.high:.3f}",
            "whole run": f"{row.whole_run:.3f}",
            **{f"lag {lag}": f"{value:.3f}" for lag, value in enumerate(row.by_lag, 1)},
            "cost, blocks": f"{row.cost:g}",
        }
        for row in profile.evidence.ranking
    ]


def settings_table(profile: Profile) -> Table:
    """What the profile was measured under."""
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


def _text(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
