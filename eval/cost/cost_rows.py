"""The table of `galaxydit estimate`."""

from galaxydit.eval.cost.cost_estimate import Estimate, Interval
from galaxydit.pipelines.table import Table, digits

QUANTITIES: dict[str, tuple[str, float]] = {
    "denoise s": ("denoise_s", 1),
    "of it plugin s": ("plugin_s", 1),
    "text encoder s": ("text_encoder_s", 1),
    "decode s": ("decoder_s", 1),
    "whole video s": ("batch_latency_s", 1),
    "kJ": ("energy_per_video_joules", 1000),
    "mean W": ("avg_power_watts", 1),
    "peak GiB": ("peak_memory_bytes", 2**30),
    "of it plugin GiB": ("plugin_bytes", 2**30),
    "price of all": ("price", 1),
}
"""By heading: the field of `Cost`, and the divisor that converts it to the heading's unit."""


def estimate_table(made: Estimate) -> Table:
    """Predictions, plain and with the plugin side by side, a row for each quantity that is known and not 0."""
    costs = {"plain": made.plain}
    if made.accelerated is not None:
        costs[f"galaxydit {made.speedup:g}x"] = made.accelerated
    rows = []
    for heading, (field, unit) in QUANTITIES.items():
        cells = [shown(getattr(cost, field), unit) for cost in costs.values()]
        if any(cells):
            rows.append([heading, *cells])
    return Table(("", *costs), rows)


def shown(value: Interval | float | None, unit: float) -> str:
    """Such as "12.3 (10.1 to 15)"; "" for nothing and 0."""
    if isinstance(value, Interval):
        middle = shown(value.value, unit)
        return f"{middle} ({digits(value.low / unit)} to {digits(value.high / unit)})" if middle else ""
    return digits(value / unit) if value else ""
