"""ERTACache (Peng et al., arXiv 2508.21091).

Three parts, all measured beforehand on recorded generations. *Offline policy calibration*: a step is reused if the
relative L1 error of the residual (prediction - latent) cached at the last full step is below a threshold; the resulting
schedule is fixed for all prompts. *Error rectification*: the error of a cached residual is modelled as proportional to
it, with one factor K per step from a least-squares fit. *Timestep adjustment*: the scheduler step that uses a reused
prediction is shortened by a factor phi in [0, 1].

Written from the paper's abstract and the project's page, because the authors' code and formulas for K and phi were not
available. Here phi is the length along the reused prediction that is nearest to the step with the true prediction, by
least squares. A flow step is a difference of sigma times the prediction, so the prediction is scaled, which works with
any scheduler. Errors and phi belong to the guided prediction, K to each branch.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from diffusers import DiffusionPipeline
from torch import Tensor

from galaxydit.eval.compare.identity import with_rules
from galaxydit.eval.compare.method import Attached, Method, Setting, geometric_grid
from galaxydit.eval.compare.rules.decision import ScheduleRule
from galaxydit.eval.compare.rules.full_trajectory import Trajectory, guide, record_all, relative_change
from galaxydit.eval.compare.rules.rule_observer import CachedOutput, under_rule
from galaxydit.eval.compare.rules.step_pairs import Pairs, at, mean_of, over_pairs
from galaxydit.pipelines.settings import GenerationSettings


def full_step_before(errors: Pairs, threshold: float) -> list[int]:
    """For each step the full step whose residual it uses; a full step uses its own."""
    cached_steps = [0]
    for step in range(1, len(errors)):
        error = at(errors, cached_steps[-1], step)
        cached_steps.append(cached_steps[-1] if error is not None and error < threshold else step)
    return cached_steps


def settings(steps: int) -> list[Setting]:
    """The whole method, and its schedule alone."""
    return [
        {"threshold": value, "correct": correct} for correct in (True, False) for value in geometric_grid(0.02, 0.8, 14)
    ]


def calibrate(
    pipe: DiffusionPipeline, prompts: Sequence[str], generation: GenerationSettings, seed: int
) -> dict[str, Any]:
    """`errors` of residuals cached at earlier steps, `factors` by branch (K), and `scales` (phi)."""
    recorded = record_all(pipe, prompts, generation, seed)
    steps = recorded[0].steps
    factors = {branch: over_pairs(steps, partial(_factor, recorded, branch)) for branch in recorded[0].outputs}
    return {
        "errors": mean_of([over_pairs(steps, partial(_error, one)) for one in recorded]),
        "factors": factors,
        "scales": over_pairs(steps, partial(_scale, recorded, factors)),
    }


def _error(recorded: Trajectory, earlier: int, step: int) -> float:
    cached = recorded.guided(earlier) - recorded.latents[earlier]
    return relative_change(cached, recorded.guided(step) - recorded.latents[step])


def _factor(recorded: list[Trajectory], branch: str, earlier: int, step: int) -> float:
    residuals = [(one.residual(step, branch), one.residual(earlier, branch)) for one in recorded]
    return slope_through_origin([(true - cached, cached) for true, cached in residuals])


def _scale(recorded: list[Trajectory], factors: dict[str, Pairs], earlier: int, step: int) -> float:
    pairs = []
    for one in recorded:
        predicted = {
            branch: one.latents[step] + (1 + (at(table, earlier, step) or 0.0)) * one.residual(earlier, branch)
            for branch, table in factors.items()
        }
        pairs.append((one.guided(step), guide(predicted, one.guidance_scale)))
    return min(1.0, max(0.0, slope_through_origin(pairs)))


def slope_through_origin(pairs: Sequence[tuple[Tensor, Tensor]]) -> float:
    """The least-squares factor f of y = f x over all pairs (y, x)."""
    along = sum(float((y * x).sum()) for y, x in pairs)
    return along / max(sum(float((x * x).sum()) for _, x in pairs), 1e-12)


def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    """Run the pipeline on ERTACache's schedule, with its corrections if the setting asks for them."""
    cached_steps = full_step_before(calibration["errors"], setting["threshold"])

    def predict(latent: Tensor, cached: CachedOutput, branch: str, step: int) -> Tensor:
        residual = cached.output - cached.latent
        if not setting["correct"]:
            return latent + residual
        factor = at(calibration["factors"][branch], cached_steps[step], step) or 0.0
        scale = at(calibration["scales"], cached_steps[step], step) or 0.0
        return scale * (latent + (1 + factor) * residual)

    return under_rule(pipe, lambda: ScheduleRule(set(cached_steps), len(cached_steps)), predict=predict)


METHOD = Method("ERTACache", "arXiv 2508.21091", settings, attach, calibrate, identity=with_rules(__file__))
