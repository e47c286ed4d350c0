"""Predicted and measured cost in the columns that `galaxydit estimate` and `galaxydit latency` share."""

from typing import Any

from galaxydit.eval.cost.architecture import architecture_of
from galaxydit.eval.cost.estimate import Cost, Estimate, Interval
from galaxydit.eval.cost.hardware import gpu_named, kernel_of
from galaxydit.eval.cost.predict import Platform, Workload, fitted, predict

Columns = dict[str, tuple[str, float, str]]
"""By heading of a column: the field of a row, the divisor that converts it to the heading's unit, and the format."""
MEASURED: Columns = {"kJ": ("energy_joules", 1000, "{:.3g}"), "mean W": ("avg_power_watts", 1, "{:.0f}")}
PREDICTED: Columns = {
    "predicted denoise s": ("predicted_denoise_s", 1, "{:.3g}"),
    "predicted text s": ("predicted_text_encoder_s", 1, "{:.2g}"),
    "predicted decode s": ("predicted_decoder_s", 1, "{:.2g}"),
    "of it plugin s": ("predicted_plugin_s", 1, "{:.2g}"),
    "predicted s": ("predicted_batch_latency_s", 1, "{:.3g}"),
    "predicted kJ": ("predicted_joules", 1000, "{:.3g}"),
    "predicted W": ("predicted_avg_power_watts", 1, "{:.3g}"),
    "predicted GiB": ("predicted_peak_memory_bytes", 2**30, "{:.3g}"),
    "of it plugin GiB": ("predicted_plugin_bytes", 2**30, "{:.2g}"),
    "price of all": ("predicted_price", 1, "{:.2f}"),
}


def rows_of(made: Estimate) -> list[dict[str, Any]]:
    """A table row for the plain pipeline, and one with the plugin if `made` has a speedup.

    `predicted_` stands before the fields of `Cost`, as dicts of `median`, `low` and `high`; zero and missing ones are
    left out.
    """
    costs = {"plain": made.plain}
    if made.accelerated is not None:
        costs[f"galaxydit {made.speedup:g}x"] = made.accelerated
    return [{"method": name, "compiled": made.compiled} | _row(cost) for name, cost in costs.items()]


def _row(cost: Cost) -> dict[str, Any]:
    row: dict[str, Any] = {"predicted_plugin_bytes": cost.plugin_bytes or None}
    for name, part in (vars(cost) | {"joules": cost.energy_per_video_joules}).items():
        if isinstance(part, Interval) and (name != "plugin_s" or part.value):
            row[f"predicted_{name}"] = {"median": part.value, "low": part.low, "high": part.high}
    return row


def predicted_denoising(
    device: str,
    preset: str,
    size: tuple[int, int, int],
    steps: int,
    compute_fraction: float,
    compiled: bool = False,
) -> dict[str, float]:
    """Predicted seconds and joules of denoising for a row of `galaxydit latency`; empty for unknown devices.

    `device` is a product name, `preset` "1.3B" or "14B" of Wan2.1, `size` (height, width, frames).
    """
    gpu, model = gpu_named(device), {"1.3B": "wan2.1-t2v-1.3b", "14B": "wan2.1-t2v-14b"}.get(preset)
    if gpu is None or model is None:
        return {}
    constants, _ = fitted()
    work, platform = Workload(architecture_of(model), *size, steps), Platform(gpu, kernel_of("native", gpu), compiled)
    made = predict(work, platform, constants, compute_fraction=compute_fraction)
    return {"predicted_denoise_s": made.denoising, "predicted_joules": made.denoising_joules}
