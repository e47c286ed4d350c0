"""RA-CFGCache (arXiv 2609.36433; github.com/yiming-l21/RA-CFGCache, its Wan2.1 backend).

One decision for both guidance branches, from the error that reuse causes in the *guided* prediction and from how that
error propagates to the final latent. Written from the repository, because the paper was not available.

A polynomial of TeaCache's signal, here the change of the projected time embedding since the last full step, estimates
each branch's error r. Guidance u + s (c - u), with scale s, combines the errors of the branches to an error e of the
guided prediction, with rho the correlation of the branches' errors:

    e^2 = (1 - s)^2 r_u^2 + s^2 r_c^2 + 2 s (1 - s) rho r_u r_c

The sensitivity w(t) = a ((T - 1 - t) / (T - 1))^alpha + b of step t of T, scaled to a mean of 1, weights e. The risks
w e are summed since the last full step, and steps are reused while the sum is at most a threshold. Beforehand are
measured: the polynomial; rho for each pair of steps; and the law (a, alpha, b) of w, from generations in which one
step's guided prediction is replaced by that of the previous step. A reused step adds the residual of the block stack at
the last full step.

A setting holds the `threshold`, the warm-up `first` (number of first steps that are always computed), and the law
`propagation`: "fitted", or "linear" for a = alpha = 1 and b = 0. Row t of a table (`Pairs`) holds the values of step t
for the earlier steps t - 1, t - 2 and so on.
"""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from diffusers import DiffusionPipeline
from scipy.optimize import curve_fit

from galaxydit.calibration.recording import round_digits
from galaxydit.eval.methods.method import Setting, geometric_grid, method
from galaxydit.eval.methods.rules.decision import ScheduleRule, StepObservation, share_of_steps, warm_ups
from galaxydit.eval.methods.rules.rule_observer import under_rule
from galaxydit.eval.methods.teacache import fit_polynomial
from galaxydit.eval.methods.trajectory import Pairs, RecordedSteps, at, check_calibrated, over_pairs, record_each
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.trial import Attached
from galaxydit.proxies import relative_l1, relative_l2

LINEAR_DECAY = (1.0, 1.0, 0.0)
PERTURBED_PROMPTS = 2
PERTURBED_STEPS = 12
FITTED_GAPS = 8  # the polynomial is fitted to changes over 1 to so many steps


def guided_error(unconditional: float, conditional: float, guidance_scale: float, rho: float) -> float:
    """Size of the guided prediction's error, from the sizes of the branches' errors and their correlation `rho`."""
    s = guidance_scale
    square = (1 - s) ** 2 * unconditional**2 + s**2 * conditional**2
    return math.sqrt(max(0.0, square + 2 * s * (1 - s) * rho * unconditional * conditional))


def sensitivities(steps: int, law: Sequence[float]) -> list[float]:
    """Sensitivity w of the final latent to an error at each step; `law` is (a, alpha, b), and the mean is 1."""
    a, alpha, b = law
    raw = [a * ((steps - 1 - step) / max(1, steps - 1)) ** alpha + b for step in range(steps)]
    mean = max(sum(raw) / steps, 1e-12)
    return [value / mean for value in raw]


@dataclass
class RiskRule:
    """Reuse while the sum of the risks w e since the last full step is at most `threshold`.

    Attributes:
        threshold: largest sum of risks; 0 or less computes every step.
        first: number of first steps that are always computed.
        coefficients: of the polynomial from the signal's change to a branch's error, from the highest degree down.
        rho: table of the correlation of the branches' errors if a step reuses an earlier full step.
        weights: sensitivity w of each step.
        last_full: index of the last full step.
        accumulated: sum of the risks since the last full step.
    """

    threshold: float
    first: int
    coefficients: Sequence[float]
    rho: Pairs
    weights: Sequence[float]
    last_full: int = 0
    accumulated: float = 0.0

    def decide(self, observation: StepObservation) -> bool:
        check_calibrated(observation.steps, len(self.rho))
        step, change = observation.step, observation.change_since_full
        rho = at(self.rho, self.last_full, step)
        if change is not None and step >= self.first and rho is not None:
            error = max(0.0, float(np.polyval(self.coefficients, change)))
            risk = guided_error(error, error, observation.guidance_scale, rho) * self.weights[step]
            if 0 < self.threshold >= self.accumulated + risk:
                self.accumulated += risk
                return True
        self.accumulated, self.last_full = 0.0, step
        return False


def settings(steps: int) -> list[Setting]:
    """Candidate settings in three modes, by the law of the sensitivities and the warm-up (first full steps).

    The modes: the fitted law with the warm-up of the authors' Wan settings (10 of 50 steps); the fitted law with one
    step; a linear decay with one step, which the authors report to be nearly as good.
    """
    modes = [*((first, "fitted") for first in warm_ups(steps, 0.2)), (1, "linear")]
    thresholds = geometric_grid(0.03, 4.0, 13)
    return [{"first": first, "propagation": law, "threshold": value} for first, law in modes for value in thresholds]


def published_settings(steps: int) -> list[Setting]:
    """The authors' slow and fast settings for Wan2.1: thresholds 0.4 and 0.6, both with the fitted law.

    The first fifth of the `steps` is always computed (10 of 50 steps), at least one step.
    """
    return [{"first": share_of_steps(steps, 0.2), "propagation": "fitted", "threshold": value} for value in (0.4, 0.6)]


def calibrate(
    pipe: DiffusionPipeline, prompts: Sequence[str], generation: GenerationSettings, seed: int
) -> dict[str, Any]:
    """Return the `coefficients` of the error polynomial, highest degree first, the table `rho`, and the `law`
    (a, alpha, b).
    """
    recordings = record_each(pipe, prompts, generation, seed)
    steps = recordings[0].steps
    changes, errors = [], []
    for recording in recordings:
        for step in range(1, steps):
            for earlier in range(max(0, step - FITTED_GAPS), step):
                change = float(relative_l1(recording.time_projections[step], recording.time_projections[earlier]))
                for outputs in recording.outputs.values():
                    changes.append(change)
                    errors.append(float(relative_l1(outputs[earlier], outputs[step])))
    return {
        "coefficients": fit_polynomial(changes, errors),
        "rho": over_pairs(steps, partial(branch_correlation, recordings)),
        "law": fit_law(steps, _propagation(pipe, prompts, generation, seed, recordings)),
    }


def branch_correlation(recordings: Sequence[RecordedSteps], earlier: int, step: int) -> float:
    """Cosine between the errors of the two branches if step `step` reuses the residual of step `earlier`.

    The result is the mean over the recordings; a recording without guidance counts as 1.
    """
    cosines = []
    for recording in recordings:
        first, *others = [
            (recording.residual(earlier, branch) - recording.residual(step, branch)).flatten()
            for branch in recording.outputs
        ]
        cosines.append(round_digits(torch.cosine_similarity(first, others[0], dim=0), 6) if others else 1.0)
    return float(np.mean(cosines))


def _propagation(
    pipe: DiffusionPipeline,
    prompts: Sequence[str],
    generation: GenerationSettings,
    seed: int,
    plain: list[RecordedSteps],
) -> dict[int, float]:
    """By step: relative change of the final latent / relative error of the guided prediction that caused the change,
    mean over the first PERTURBED_PROMPTS prompts.

    The error comes from replacing the step's guided prediction by that of the previous step; `plain` holds recordings
    without the replacement. About PERTURBED_STEPS evenly spaced steps are measured, without the first tenth of the
    steps, where the ratio is extreme (the authors omit the first 5 points).
    """
    steps = plain[0].steps
    begin = share_of_steps(steps, 0.1)
    ratios = {}
    for step in range(begin, steps, max(1, (steps - begin) // PERTURBED_STEPS)):
        gains = []
        only_this = partial(ScheduleRule, set(range(steps)) - {step})
        for index, recording in enumerate(plain[:PERTURBED_PROMPTS]):
            with under_rule(pipe, only_this, predict=lambda latent, cached, *_: cached.output):
                final = generate(pipe, prompts[index], generation, seed + index).latents
            caused = float(relative_l2(recording.guided(step), recording.guided(step - 1)))
            gains.append(float(relative_l2(recording.final, final)) / max(caused, 1e-12))
        ratios[step] = sum(gains) / len(gains)
    return ratios


def fit_law(steps: int, ratios: dict[int, float]) -> list[float]:
    """Fit (a, alpha, b) of a ((T - 1 - t) / (T - 1))^alpha + b to `ratios` by step t, where T is `steps`.

    A ratio is the relative change of the final latent / the relative error of the step's guided prediction that caused
    the change. Ratios and law are not scaled; `sensitivities` scales the law to a mean of 1. a and b are at least 0,
    alpha is from 0.1 to 10.
    """
    left = [(steps - 1 - step) / (steps - 1) for step in ratios]
    values = list(ratios.values())
    start, bounds = (max(values), 1.0, min(values)), ([0.0, 0.1, 0.0], [math.inf, 10.0, math.inf])
    law, _ = curve_fit(lambda x, a, alpha, b: a * x**alpha + b, left, values, start, bounds=bounds)
    return [float(value) for value in law]


@method("RA-CFGCache", "arXiv 2609.36433", settings, published=published_settings, calibrate=calibrate)
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    coefficients, rho = calibration["coefficients"], calibration["rho"]
    weights = sensitivities(len(rho), calibration["law"] if setting["propagation"] == "fitted" else LINEAR_DECAY)
    new_rule = partial(RiskRule, setting["threshold"], setting["first"], coefficients, rho, weights)
    return under_rule(pipe, new_rule, signal="time_projection")
