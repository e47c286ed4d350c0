"""ERTACache (Peng et al., arXiv 2508.21091).

Three parts, all measured beforehand on recorded generations. *Offline policy calibration*: going through the steps,
each is reused where the relative L1 error of the residual (prediction - latent) kept from the last full step is below a
threshold; the schedule that results is fixed for all prompts. *Error rectification*: the error of a kept residual is
taken to be proportional to it, with one factor K for each step, found by least squares in closed form. *Timestep
adjustment*: the step that the sampler takes with a reused prediction is shortened by a factor phi in [0, 1].

Built from the paper's abstract and the project's page: the authors' code and their formulas for K and phi were not at
hand. Here phi is the length, along the reused prediction, that comes nearest to the step with the true one, by least
squares; and as a flow step is a difference of sigma times the prediction, it is the prediction that is scaled, so that
any sampler will do. Errors and phi are those of the guided prediction, which the sampler sees; K is each branch's own.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from diffusers import DiffusionPipeline
from torch import Tensor

from galaxydit.eval.arena.attach import spread
from galaxydit.eval.arena.method import Attached, Method, Setting
from galaxydit.eval.arena.policies.attachment import Full, under_policy
from galaxydit.eval.arena.policies.pairs import Pairs, at, mean_of, over_pairs
from galaxydit.eval.arena.policies.recording import Trajectory, guide, record_all, relative_change
from galaxydit.eval.arena.policies.rule import Seen, check_steps
from galaxydit.pipelines.settings import GenerationSettings


def full_step_before(errors: Pairs, threshold: float) -> list[int]:
    """For each step the full step whose residual it uses: itself where it is computed."""
    anchors = [0]
    for step in range(1, len(errors)):
        error = at(errors, anchors[-1], step)
        anchors.append(anchors[-1] if error is not None and error < threshold else step)
    return anchors


class ScheduleRule:
    """Reuse the steps whose entry in `anchors` is an earlier one."""

    def __init__(self, anchors: Sequence[int]) -> None:
        self.anchors = anchors

    def decide(self, seen: Seen) -> bool:
        check_steps(seen, len(self.anchors))
        return self.anchors[seen.step] != seen.step


def settings(steps: int) -> list[Setting]:
    """The whole method, and its schedule alone."""
    return [{"threshold": value, "correct": correct} for correct in (True, False) for value in spread(0.02, 0.8, 14)]


def calibrate(
    pipe: DiffusionPipeline, prompts: Sequence[str], generation: GenerationSettings, seed: int
) -> dict[str, Any]:
    """`errors` of residuals kept from earlier steps, and the factors that correct them: `gains` by branch (K), `scales`
    (phi).
    """
    recorded = record_all(pipe, prompts, generation, seed)
    steps = recorded[0].steps
    gains = {branch: over_pairs(steps, partial(_gain, recorded, branch)) for branch in recorded[0].outputs}
    return {
        "errors": mean_of([over_pairs(steps, partial(_error, one)) for one in recorded]),
        "gains": gains,
        "scales": over_pairs(steps, partial(_scale, recorded, gains)),
    }


def _error(recorded: Trajectory, earlier: int, step: int) -> float:
    kept = recorded.guided(earlier) - recorded.latents[earlier]
    return relative_change(kept, recorded.guided(step) - recorded.latents[step])


def _gain(recorded: list[Trajectory], branch: str, earlier: int, step: int) -> float:
    residuals = [(one.residual(step, branch), one.residual(earlier, branch)) for one in recorded]
    return slope_through_origin([(true - kept, kept) for true, kept in residuals])


def _scale(recorded: list[Trajectory], gains: dict[str, Pairs], earlier: int, step: int) -> float:
    pairs = []
    for one in recorded:
        predicted = {
            branch: one.latents[step] + (1 + (at(gains[branch], earlier, step) or 0.0)) * one.residual(earlier, branch)
            for branch in one.outputs
        }
        pairs.append((one.guided(step), guide(predicted, one.guidance_scale)))
    return min(1.0, max(0.0, slope_through_origin(pairs)))


def slope_through_origin(pairs: Sequence[tuple[Tensor, Tensor]]) -> float:
    """The factor f that makes f x nearest to y over all pairs (y, x), by least squares."""
    along = sum(float((y * x).sum()) for y, x in pairs)
    return along / max(sum(float((x * x).sum()) for _, x in pairs), 1e-12)


def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> AbstractContextManager[Attached]:
    anchors = full_step_before(calibration["errors"], setting["threshold"])

    def predict(latent: Tensor, full: Full, branch: str, step: int) -> Tensor:
        residual = full.output - full.latent
        if not setting["correct"]:
            return latent + residual
        gain = at(calibration["gains"][branch], anchors[step], step) or 0.0
        scale = at(calibration["scales"], anchors[step], step) or 0.0
        return scale * (latent + (1 + gain) * residual)

    return under_policy(pipe, lambda: ScheduleRule(anchors), predict=predict)


METHOD = Method("ERTACache", "arXiv 2508.21091", settings, attach, calibrate)
