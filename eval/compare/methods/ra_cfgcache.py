"""RA-CFGCache (arXiv 2609.36433; github.com/yiming-l21/RA-CFGCache, its Wan2.1 backend).

One decision for both guidance branches, on the error that reuse would put into the *guided* prediction and on what that
error does to the result. Built from the repository, as the paper was not at hand.

The branches' errors r come from TeaCache's signal, here the change of the projected time embedding since the last full
step, through a polynomial. Guidance composes them (u + s (c - u), rho the correlation of the branches' errors):

    e^2 = (1 - s)^2 r_u^2 + s^2 r_c^2 + 2 s (1 - s) rho r_u r_c

and propagation weighs them by w(t) = a ((T - t) / T)^alpha + b, scaled to a mean of 1. The risks w e add up since the
last full step; a step is reused while the sum stays within a threshold. rho, for pairs of steps, and the law w are
measured beforehand: w from generations in which one step's guided prediction is replaced by that of the step before.
Reused is what the block stack added to its input.
"""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np
import torch
from diffusers import DiffusionPipeline
from scipy.optimize import curve_fit
from torch import Tensor

from galaxydit.eval.arena.attach import spread
from galaxydit.eval.arena.method import Attached, Method, Setting
from galaxydit.eval.arena.policies.attachment import under_policy
from galaxydit.eval.arena.policies.pairs import Pairs, at, mean_of, over_pairs
from galaxydit.eval.arena.policies.recording import (
    CONDITIONAL,
    UNCONDITIONAL,
    Trajectory,
    record_all,
    relative_change,
)
from galaxydit.eval.arena.policies.rule import Seen, check_steps, is_kept_full, share_of_steps, warm_ups
from galaxydit.eval.arena.policies.teacache import fit_polynomial
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings

LINEAR_DECAY = (1.0, 1.0, 0.0)
PERTURBED_PROMPTS = 2
PERTURBED_STEPS = 12
FITTED_GAPS = 8  # steps; the polynomial is asked for changes over as many


def guided_error(unconditional: float, conditional: float, guidance_scale: float, rho: float) -> float:
    """Size of the guided prediction's error, from those of the branches."""
    s = guidance_scale
    square = (1 - s) ** 2 * unconditional**2 + s**2 * conditional**2
    return math.sqrt(max(0.0, square + 2 * s * (1 - s) * rho * unconditional * conditional))


def propagation_weights(steps: int, law: Sequence[float]) -> list[float]:
    """What an error at each step weighs, by the law (a, alpha, b); their mean is 1."""
    a, alpha, b = law
    raw = [a * ((steps - 1 - step) / max(1, steps - 1)) ** alpha + b for step in range(steps)]
    mean = max(sum(raw) / steps, 1e-12)
    return [value / mean for value in raw]


class RiskRule:
    """Reuse while the weighted guided errors since the last full step add up to at most `threshold`."""

    def __init__(
        self, threshold: float, first: int, coefficients: Sequence[float], rho: Pairs, law: Sequence[float]
    ) -> None:
        self.threshold, self.first, self.coefficients, self.rho = threshold, first, coefficients, rho
        self.weights = propagation_weights(len(rho), law)
        self.last_full = 0
        self.accumulated = 0.0

    def decide(self, seen: Seen) -> bool:
        check_steps(seen, len(self.rho))
        rho = at(self.rho, self.last_full, seen.step)
        if seen.drift is not None and rho is not None and not is_kept_full(seen, self.first, 0):
            error = max(0.0, float(np.polyval(self.coefficients, seen.drift)))
            risk = guided_error(error, error, seen.guidance_scale, rho) * self.weights[seen.step]
            if 0 < self.threshold >= self.accumulated + risk:
                self.accumulated += risk
                return True
        self.accumulated, self.last_full = 0.0, seen.step
        return False


def settings(steps: int) -> list[Setting]:
    """The warm-up of the authors' Wan settings (10 of 50 steps) and none; the fitted law, and a linear decay, which is
    reported to be nearly as good.
    """
    modes: list[dict[str, Any]] = [{"first": first, "propagation": "fitted"} for first in warm_ups(steps, 0.2)]
    modes.append({"first": 1, "propagation": "linear"})
    return [mode | {"threshold": value} for mode in modes for value in spread(0.03, 4.0, 13)]


def calibrate(
    pipe: DiffusionPipeline, prompts: Sequence[str], generation: GenerationSettings, seed: int
) -> dict[str, Any]:
    """The polynomial of the branches' errors, `rho` for pairs of steps, and the `law` of propagation."""
    recorded = record_all(pipe, prompts, generation, seed)
    steps = recorded[0].steps
    drifts, errors = [], []
    for one in recorded:
        for step in range(1, steps):
            for earlier in range(max(0, step - FITTED_GAPS), step):
                drift = relative_change(one.time_projections[step], one.time_projections[earlier])
                for outputs in one.outputs.values():
                    drifts.append(drift)
                    errors.append(relative_change(outputs[earlier], outputs[step]))
    return {
        "coefficients": fit_polynomial(drifts, errors),
        "rho": mean_of([over_pairs(steps, partial(branch_correlation, one)) for one in recorded]),
        "law": fit_law(steps, _propagation(pipe, prompts, generation, seed, recorded)),
    }


def branch_correlation(recorded: Trajectory, earlier: int, step: int) -> float:
    """Cosine between the errors that reusing an earlier residual makes in the two branches; 1 without guidance."""
    if UNCONDITIONAL not in recorded.outputs:
        return 1.0
    errors = [recorded.residual(earlier, b) - recorded.residual(step, b) for b in (CONDITIONAL, UNCONDITIONAL)]
    return float(torch.cosine_similarity(errors[0].flatten(), errors[1].flatten(), dim=0))


class RepeatAt:
    """Reuse one step alone."""

    def __init__(self, step: int) -> None:
        self.step = step

    def decide(self, seen: Seen) -> bool:
        return seen.step == self.step


def _propagation(
    pipe: DiffusionPipeline,
    prompts: Sequence[str],
    generation: GenerationSettings,
    seed: int,
    recorded: list[Trajectory],
) -> dict[int, float]:
    """By step: relative change of the final latents / relative error of the guided prediction that caused it.

    The first tenth of the steps is left out, where the ratio is extreme (the authors leave out the first 5 points).
    """
    steps = recorded[0].steps
    begin = share_of_steps(steps, 0.1)
    ratios = {}
    for step in range(begin, steps, max(1, (steps - begin) // PERTURBED_STEPS)):
        found = []
        for index, one in enumerate(recorded[:PERTURBED_PROMPTS]):
            with under_policy(pipe, partial(RepeatAt, step), predict=lambda latent, full, *_: full.output):
                final = generate(pipe, prompts[index], generation, seed + index).latents
            caused = _relative_l2(one.guided(step - 1), one.guided(step))
            found.append(_relative_l2(final, one.final) / max(caused, 1e-12))
        ratios[step] = sum(found) / len(found)
    return ratios


def fit_law(steps: int, ratios: dict[int, float]) -> list[float]:
    """(a, alpha, b) of the law a ((T - t) / T)^alpha + b nearest to the ratios, none of them negative."""
    left = [(steps - step) / steps for step in ratios]
    values = list(ratios.values())
    start, bounds = (max(values), 1.0, min(values)), ([0.0, 0.1, 0.0], [math.inf, 10.0, math.inf])
    law, _ = curve_fit(lambda x, a, alpha, b: a * x**alpha + b, left, values, start, bounds=bounds)
    return [float(value) for value in law]


def _relative_l2(tensor: Tensor, reference: Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor - reference) / torch.linalg.vector_norm(reference).clamp_min(1e-12))


def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    law = calibration["law"] if setting["propagation"] == "fitted" else LINEAR_DECAY
    return under_policy(
        pipe,
        lambda: RiskRule(setting["threshold"], setting["first"], calibration["coefficients"], calibration["rho"], law),
        signal="time_projection",
    )


METHOD = Method("RA-CFGCache", "arXiv 2609.36433", settings, attach, calibrate)
