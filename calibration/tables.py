"""Results of a calibration as tables of text, for the terminal and the report."""

from dataclasses import dataclass
from itertools import zip_longest

from galaxydit.profiles.schema import Profile


@dataclass(frozen=True)
class TextTable:
    """Headings and rows of equal length; the first column names the row."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def target_table(profile: Profile) -> TextTable:
    """One row for each target: what was requested, what was measured, and what it costs."""
    seconds = profile.evidence.seconds
    predicted, measured = (seconds.predicted_speedup, seconds.measured_speedup) if seconds else ((), ())
    rows = tuple(
        (
            f"{target.speedup:g}x",
            f"{1 / target.compute_fraction:.2f}x" if target.compute_fraction else "",
            _text(in_theory, "{:.2f}x"),
            _text(in_practice, "{:.2f}x"),
            _text(target.psnr_db, "{:.2f}"),
            _text(target.expected_error, "{:.3f}"),
        )
        for target, in_theory, in_practice in zip_longest(profile.evidence.verifications, predicted, measured)
    )
    headings = ("speedup", "blocks", "seconds, predicted", "seconds, measured", "PSNR, dB", "largest expected error")
    return TextTable(headings, rows)


def ranking_table(profile: Profile) -> TextTable:
    """One row for each proxy, best first: Spearman's rho with its interval, over all steps, and by lag."""
    rows = tuple(
        (
            row.proxy,
            f"{row.rho:.3f}",
            f"{row.low:.3f} to {row.high:.3f}",
            f"{row.whole_run:.3f}",
            *(f"{value:.3f}" for value in row.by_lag),
            f"{row.cost:g}",
        )
        for row in profile.evidence.ranking
    )
    lags = [f"lag {index + 1}" for index in range(len(profile.evidence.ranking[0].by_lag))]
    return TextTable(("proxy", "rho", "95 % interval", "whole run", *lags, "cost, blocks"), rows)


def settings_table(profile: Profile) -> TextTable:
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
    return TextTable(("setting", "value"), tuple(rows.items()))


def _text(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
