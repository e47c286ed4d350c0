"""TeaCache (Liu et al., arXiv 2411.19108; github.com/ali-vilab/TeaCache, TeaCache4Wan2.1).

A polynomial of the time embedding's relative change estimates the relative change of the model's output. A step is
computed when the estimates sum to a threshold (equation 7); each branch decides for itself. A reused step adds the
residual of the block stack at the last full step. For models other than the authors', the polynomial is fitted as they
describe: degree 4, least squares, on L1 changes between consecutive steps.

A setting holds the watched `signal` ("time_embedding" or "time_projection"), the `threshold`, the numbers of steps that
are always computed at the beginning (`first`) and the end (`last`), and, if published, the `polynomial`: "fitted", or
the authors' for "Wan2.1-T2V-1.3B".
"""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from diffusers import DiffusionPipeline
from torch import Tensor

from galaxydit.eval.methods.accumulation import Accumulation, attached, share_of_steps
from galaxydit.eval.methods.method import Context, Setting, geometric_grid, method
from galaxydit.eval.methods.trajectory import EMBEDDER, record_each
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.policies.policy import Observation
from galaxydit.proxies import PROXIES, TEACACHE, Place, Proxy, relative_l1
from galaxydit.runtime.guidance import CONDITIONAL

DEGREE = 4
WAN = "Wan2.1-T2V-1.3B"
# The authors' polynomials for it, highest degree first (github.com/ali-vilab/TeaCache, TeaCache4Wan2.1).
WAN_POLYNOMIALS = {
    "time_embedding": (2.39676752e3, -1.31110545e3, 2.01331979e2, -8.29855975, 1.37887774e-1),
    "time_projection": (-5.21862437e4, 9.23041404e3, -5.28275948e2, 1.36987616e1, -4.99875664e-2),
}
# By signal: the authors' thresholds for Wan2.1-1.3B, then those of arXiv 2610.10457 and 2609.36433 (plain mode).
PUBLISHED_THRESHOLDS = {
    "time_embedding": (0.05, 0.07, 0.08, 0.142, 0.15, 0.195, 0.36),
    "time_projection": (0.05, 0.1, 0.2),
}


SIGNALS = {
    "time_embedding": Proxy(
        "time_embedding_before_projection",
        Place.MODULE,
        0.0,
        TEACACHE,
        lambda output: output[0].clone(),
        part=EMBEDDER,
        differs_by_sample=False,
    ),
    "time_projection": PROXIES["time_embedding"],  # Wan's blocks receive the projected time embedding
}


def estimate(coefficients: Sequence[float], observation: Observation) -> float | None:
    """The polynomial's estimate of the output's change; `coefficients` are from the highest degree down."""
    if observation.distance is None:
        return None
    return float(np.polyval(coefficients, observation.distance))


def fit_polynomial(changes: Sequence[float], output_changes: Sequence[float]) -> list[float]:
    """Coefficients, highest degree first, of the polynomial from the embedding's change to the output's change."""
    degree = min(DEGREE, len(set(changes)) - 1)
    return [float(value) for value in np.polyfit(changes, output_changes, degree)]


def modes(steps: int) -> tuple[Setting, Setting]:
    """The authors' modes, without a threshold: plain watches the time embedding, retention its projection.

    Plain computes the first and the last step, retention the first tenth of the steps.
    """
    plain = {"signal": "time_embedding", "first": 1, "last": 1}
    retention = {"signal": "time_projection", "first": share_of_steps(steps, 0.1), "last": 0}
    return plain, retention


def settings(steps: int) -> list[Setting]:
    grid: list[Setting] = []
    for mode in modes(steps):
        for value in geometric_grid(0.012, 0.5, 14):
            grid.append({**mode, "threshold": value})
    return grid


def published_settings(steps: int) -> list[Setting]:
    """The published thresholds of both modes, with the fitted polynomial and with the authors'."""
    listed: list[Setting] = []
    for polynomial in ("fitted", WAN):
        for mode in modes(steps):
            for threshold in PUBLISHED_THRESHOLDS[mode["signal"]]:
                listed.append({**mode, "polynomial": polynomial, "threshold": threshold})
    return listed


def calibrate(
    pipe: DiffusionPipeline, prompts: Sequence[str], generation: GenerationSettings, seed: int
) -> dict[str, list[float]]:
    """By signal, the coefficients of the fitted polynomial, from the highest degree down."""
    changes: dict[str, list[float]] = {"time_embedding": [], "time_projection": []}
    output_changes: list[float] = []
    for recorded in record_each(pipe, prompts, generation, seed):
        changes["time_embedding"] += _changes(recorded.time_embeddings)
        changes["time_projection"] += _changes(recorded.time_projections)
        output_changes += _changes(recorded.outputs[CONDITIONAL])
    return {name: fit_polynomial(values, output_changes) for name, values in changes.items()}


def _changes(tensors: Sequence[Tensor]) -> list[float]:
    return [float(relative_l1(now, before)) for before, now in pairwise(tensors)]


@method("TeaCache", "arXiv 2411.19108", settings, published=published_settings, calibrate=calibrate)
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Context:
    polynomials = WAN_POLYNOMIALS if setting.get("polynomial") == WAN else calibration
    cost = partial(estimate, polynomials[setting["signal"]])
    policy = Accumulation(setting["threshold"], setting["first"], setting["last"], cost)
    return attached(pipe, policy, proxy=SIGNALS[setting["signal"]], guidance_alignment=False)
