"""RA-CFGCache (arXiv 2609.36433; github.com/yiming-l21/RA-CFGCache, its Wan2.1 backend).

One decision for both branches, from the error that reuse causes in the guided prediction and from how it propagates to
the final latent. Written from the repository, because the paper was not available.

A polynomial of the projected time embedding's change since the last full step estimates each branch's error r. The
change depends on the two steps alone, so it is measured beforehand. With
guidance scale s and the correlation rho of the branches' errors, the error e of the guided prediction is

    e^2 = (1 - s)^2 r_u^2 + s^2 r_c^2 + 2 s (1 - s) rho r_u r_c

The sensitivity w(t) = a ((T - 1 - t) / (T - 1))^alpha + b of step t of T, scaled to a mean of 1, weights e. Steps are
reused while the risks w e since the last full step sum to at most a threshold. The polynomial, rho for pairs of steps
and the law (a, alpha, b) are measured beforehand. A reused step adds the residual of the last full step.

A setting holds the `threshold`, the number of `first` full steps, and the law `propagation`: "fitted", or "linear" for
a = alpha = 1 and b = 0.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from diffusers import DiffusionPipeline
from scipy.optimize import curve_fit

from galaxydit import FixedSteps
from galaxydit.calibration.recording import round_digits
from galaxydit.eval.methods.accumulation import attached, share_of_steps, warm_ups
from galaxydit.eval.methods.method import Context, Setting, geometric_grid, method
from galaxydit.eval.methods.teacache import fit_polynomial
from galaxydit.eval.methods.trajectory import Pairs, RecordedSteps, at, check_calibrated, over_pairs, record_each
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.policies.policy import Decision, Observation, Reason
from galaxydit.proxies import relative_l1, relative_l2

LINEAR_DECAY = (1.0, 1.0, 0.0)
PERTURBED_PROMPTS = 2
PERTURBED_STEPS = 12
FITTED_GAPS = 8  # the polynomial is fitted to changes over 1 to so many steps


def guided_error(unconditional: float, conditional: float, guidance_scale: float, rho: float) -> float:
    # e^2 = (1 - s)^2 r_u^2 + s^2 r_c^2 + 2 s (1 - s) rho r_u r_c
    s = guidance_scale
    square = (1 - s) ** 2 * unconditional**2 + s**2 * conditional**2
    return math.sqrt(max(0.0, square + 2 * s * (1 - s) * rho * unconditional * conditional))


def sensitivities(steps: int, law: Sequence[float]) -> list[float]:
    """Sensitivity w of the final latent to an error at each step, by the law (a, alpha, b)."""
    a, alpha, b = law
    # w(t) = a ((T - 1 - t) / (T - 1))^alpha + b, before it is scaled
    raw = [a * ((steps - 1 - step) / max(1, steps - 1)) ** alpha + b for step in range(steps)]
    mean = max(sum(raw) / steps, 1e-12)
    return [value / mean for value in raw]


@dataclass(frozen=True)
class RiskLimit:
    """Reuse while the sum of the risks w e since the last full step, the state, is at most `threshold`.

    coefficients: of the polynomial, highest degree first; changes, rho: tables by pairs of steps; weights: w of each
    step.
    """

    threshold: float
    first: int
    coefficients: Sequence[float]
    changes: Pairs
    rho: Pairs
    weights: Sequence[float]
    reads_proxy = False
    reuses = True
    learns_errors = False

    def decide(self, observation: Observation, state: float | None = None) -> tuple[Decision, float]:
        check_calibrated(observation.steps, len(self.rho))
        step = observation.step
        last_full = observation.step - observation.consecutive - 1
        change = at(self.changes, last_full, step)
        rho = at(self.rho, last_full, step)
        if change is not None and rho is not None and step >= self.first and observation.has_history:
            error = max(0.0, float(np.polyval(self.coefficients, change)))
            risk = guided_error(error, error, observation.guidance_scale, rho) * self.weights[step]
            accumulated = (state or 0.0) + risk
            if 0 < self.threshold >= accumulated:
                return Decision(True, Reason.CUSTOM), accumulated
        return Decision(False, Reason.CUSTOM), 0.0


def settings(steps: int) -> list[Setting]:
    """The fitted law with the authors' warm-up (10 of 50 steps) and with one step; a linear decay with one step.

    The authors report the last to be nearly as good.
    """
    modes = [(first, "fitted") for first in warm_ups(steps, 0.2)]
    modes.append((1, "linear"))
    thresholds = geometric_grid(0.03, 4.0, 13)
    grid: list[Setting] = []
    for first, law in modes:
        for value in thresholds:
            grid.append({"first": first, "propagation": law, "threshold": value})
    return grid


def published_settings(steps: int) -> list[Setting]:
    """The authors' slow and fast settings for Wan2.1."""
    first = share_of_steps(steps, 0.2)
    return [{"first": first, "propagation": "fitted", "threshold": value} for value in (0.4, 0.6)]


def calibrate(
    pipe: DiffusionPipeline, prompts: Sequence[str], generation: GenerationSettings, seed: int
) -> dict[str, Any]:
    """The `coefficients` of the error polynomial, highest degree first, the tables `changes` and `rho`, the `law`."""
    recordings = record_each(pipe, prompts, generation, seed)
    steps = recordings[0].steps
    projections = recordings[0].time_projections
    table = over_pairs(steps, lambda earlier, step: float(relative_l1(projections[step], projections[earlier])))
    changes = []
    errors = []
    for recording in recordings:
        for step in range(1, steps):
            for earlier in range(max(0, step - FITTED_GAPS), step):
                for outputs in recording.outputs.values():
                    changes.append(at(table, earlier, step) or 0.0)
                    errors.append(float(relative_l1(outputs[earlier], outputs[step])))
    return {
        "coefficients": fit_polynomial(changes, errors),
        "changes": table,
        "rho": over_pairs(steps, partial(branch_correlation, recordings)),
        "law": fit_law(steps, _propagation(pipe, prompts, generation, seed, recordings)),
    }


def branch_correlation(recordings: Sequence[RecordedSteps], earlier: int, step: int) -> float:
    """Mean cosine between the branches' errors if a step reuses an earlier residual; 1 without guidance."""
    cosines = []
    for recording in recordings:
        errors = []
        for branch in recording.outputs:
            error = recording.residual(earlier, branch) - recording.residual(step, branch)
            errors.append(error.flatten())
        cosine = 1.0
        if len(errors) > 1:
            cosine = round_digits(torch.cosine_similarity(errors[0], errors[1], dim=0), 6)
        cosines.append(cosine)
    return float(np.mean(cosines))


def _propagation(
    pipe: DiffusionPipeline,
    prompts: Sequence[str],
    generation: GenerationSettings,
    seed: int,
    plain: list[RecordedSteps],
) -> dict[int, float]:
    """By step: relative change of the final latent / relative error of the guided prediction that caused it.

    The error is that of the previous step's prediction; about PERTURBED_STEPS steps are measured, without the first
    tenth, where the ratio is extreme. `plain` are recordings without the error.
    """
    steps = plain[0].steps
    begin = share_of_steps(steps, 0.1)
    ratios = {}
    for step in range(begin, steps, max(1, (steps - begin) // PERTURBED_STEPS)):
        gains = []
        only_this = FixedSteps(tuple({*range(steps)} - {step}))
        for index, recording in enumerate(plain[:PERTURBED_PROMPTS]):
            with attached(pipe, only_this, reuse="output"):
                final = generate(pipe, prompts[index], generation, seed + index).latents
            caused = float(relative_l2(recording.guided(step), recording.guided(step - 1)))
            gains.append(float(relative_l2(recording.final, final)) / max(caused, 1e-12))
        ratios[step] = sum(gains) / len(gains)
    return ratios


def fit_law(steps: int, ratios: dict[int, float]) -> list[float]:
    """The law (a, alpha, b) fitted to `_propagation`; a, b at least 0, alpha from 0.1 to 10."""
    left = [(steps - 1 - step) / (steps - 1) for step in ratios]
    values = list(ratios.values())
    start = (max(values), 1.0, min(values))
    bounds = ([0.0, 0.1, 0.0], [math.inf, 10.0, math.inf])
    law, _ = curve_fit(lambda x, a, alpha, b: a * x**alpha + b, left, values, start, bounds=bounds)
    return [float(value) for value in law]


@method("RA-CFGCache", "arXiv 2609.36433", settings, published=published_settings, calibrate=calibrate)
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Context:
    measured = {name: calibration[name] for name in ("coefficients", "changes", "rho")}
    if setting["propagation"] == "fitted":
        law = calibration["law"]
    else:
        law = LINEAR_DECAY
    weights = sensitivities(len(measured["rho"]), law)
    return attached(pipe, RiskLimit(setting["threshold"], setting["first"], **measured, weights=weights))
