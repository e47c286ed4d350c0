"""ERTACache (Peng et al., arXiv 2508.21091; github.com/bytedance/ERTACache).

Three parts, all measured beforehand on recorded generations:

- *Offline policy calibration*: a step is reused if the relative L1 error of the residual (prediction - latent) cached
  at the last full step is below a threshold. The resulting schedule is fixed for all prompts. A setting names the
  number of full steps, from which the threshold follows.
- *Timestep adjustment*: the scheduler step of a reused prediction is shortened by a factor phi in [0, 1].
- *Error rectification*: the error of a cached residual is modelled as K times the residual, with K from a least-squares
  fit for each pair of full and reused step.

Differences from the original: this file was written from the paper's abstract, because the authors' code, step lists
and formulas of K and phi were not available. Here phi is the least-squares factor from the reused guided prediction to
the true one, limited to [0, 1]. A flow step is the prediction times a difference of sigmas, so scaling the prediction
by phi shortens the step with any scheduler. K is fitted for each guidance branch; the errors and phi are measured on
the guided prediction.

A setting holds the number of full steps `full_steps`, and whether phi (`adjust`) and K (`rectify`) are applied.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from diffusers import DiffusionPipeline
from torch import Tensor

from galaxydit import FixedSteps
from galaxydit.errors import check_count
from galaxydit.eval.methods.accumulation import Difference, attached
from galaxydit.eval.methods.fixed_schedules import full_step_counts
from galaxydit.eval.methods.method import Context, Setting, method
from galaxydit.eval.methods.trajectory import Pairs, RecordedSteps, at, check_calibrated, over_pairs, record_each
from galaxydit.extrapolation import CachedStep
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.policies.policy import Decision, Observation
from galaxydit.proxies import relative_l1
from galaxydit.runtime.call import Call
from galaxydit.runtime.guidance import CONDITIONAL, UNCONDITIONAL, guide

PUBLISHED_SPEEDUP = 2.17  # on Wan2.1-1.3B; 22.09 dB with the schedule alone, 22.94 with phi, 23.77 with phi and K


@dataclass(frozen=True)
class OfflineSchedule(FixedSteps):
    """Computes `steps`; refuses a generation of another number of steps than `calibrated`."""

    calibrated: int = 0

    def decide(self, observation: Observation, state: None = None) -> tuple[Decision, None]:
        check_calibrated(observation.steps, self.calibrated)
        return super().decide(observation)


class Rectified(Difference):
    """The difference of the last full step times 1 + K, and the prediction times phi, by branch and step."""

    def __init__(self, factors: Mapping[str, Pairs], scales: Pairs | None) -> None:
        self.factors = factors
        self.scales = scales

    def predict(self, call: Call, past: Sequence[CachedStep]) -> Tensor:
        source = past[-1]
        step = call.info.step
        factor = None
        if self.factors:
            factor = at(self.factors[call.branch], source.step, step)
        scale = None
        if self.scales:
            scale = at(self.scales, source.step, step)
        # phi (latent + (1 + K) residual), with K = 0 and phi = 1 where nothing was measured
        residual = source.tensor - source.side
        rectified = call.latent + (1 + (factor or 0.0)) * residual
        return (1.0 if scale is None else scale) * rectified


def sources_under(errors: Pairs, threshold: float) -> list[int]:
    """For each step the full step whose residual it uses; a full step is its own source.

    A step is reused if the last full step's residual has an error below `threshold` there.
    """
    sources = [0]
    for step in range(1, len(errors)):
        error = at(errors, sources[-1], step)
        if error is not None and error < threshold:
            sources.append(sources[-1])
        else:
            sources.append(step)
    return sources


def sources_for(errors: Pairs, full_steps: int) -> list[int]:
    """The sources at the smallest threshold that gives nearest to `full_steps` full steps."""
    # The schedule changes at measured errors alone.
    thresholds = sorted({0.0}.union(*errors))
    candidates = [sources_under(errors, threshold) for threshold in (*thresholds, 2 * thresholds[-1])]
    return min(candidates, key=lambda sources: abs(len(set(sources)) - full_steps))


def settings(steps: int) -> list[Setting]:
    """The whole method, and its schedule alone."""
    counts = full_step_counts(steps)
    grid: list[Setting] = []
    for on in (True, False):
        for count in counts:
            grid.append({"full_steps": count, "adjust": on, "rectify": on})
    return grid


def published_settings(steps: int) -> list[Setting]:
    """The published speedup with the published ablations: the schedule alone, with phi, and with phi and K."""
    full_steps = round(steps / PUBLISHED_SPEEDUP)
    parts = ((False, False), (True, False), (True, True))
    return [{"full_steps": full_steps, "adjust": adjust, "rectify": rectify} for adjust, rectify in parts]


def calibrate(
    pipe: DiffusionPipeline, prompts: Sequence[str], generation: GenerationSettings, seed: int
) -> dict[str, Any]:
    """Tables over pairs of steps: `errors` of a reused residual (relative L1), `factors` (K by branch) and `scales`
    (phi without K and with it).
    """
    recordings = record_each(pipe, prompts, generation, seed)
    steps = recordings[0].steps
    branches = list(recordings[0].outputs)
    factors = {branch: over_pairs(steps, partial(_factor, recordings, branch)) for branch in branches}
    unrectified: dict[str, Pairs] = {branch: over_pairs(steps, lambda *_: 0.0) for branch in branches}
    scales = [
        over_pairs(steps, partial(_scale, recordings, unrectified)),
        over_pairs(steps, partial(_scale, recordings, factors)),
    ]
    return {"errors": over_pairs(steps, partial(_error, recordings)), "factors": factors, "scales": scales}


def _error(recordings: Sequence[RecordedSteps], earlier: int, step: int) -> float:
    """Relative L1 error of the guided residual of step `earlier` at `step`, mean over the recordings."""
    errors = []
    for recording in recordings:
        cached = recording.guided(earlier) - recording.latents[earlier]
        true = recording.guided(step) - recording.latents[step]
        errors.append(float(relative_l1(cached, true)))
    return sum(errors) / len(errors)


def _factor(recordings: Sequence[RecordedSteps], branch: str, earlier: int, step: int) -> float:
    """K of a branch, with which the error of the cached residual is K times this residual."""
    pairs = []
    for recording in recordings:
        cached = recording.residual(earlier, branch)
        pairs.append((recording.residual(step, branch) - cached, cached))
    return slope_through_origin(pairs)


def _scale(recordings: Sequence[RecordedSteps], factors: Mapping[str, Pairs], earlier: int, step: int) -> float:
    """phi of a reused step, if K of each branch is that of `factors`."""
    pairs = []
    for each in recordings:
        predicted = {}
        for branch, table in factors.items():
            factor = at(table, earlier, step) or 0.0
            predicted[branch] = each.latents[step] + (1 + factor) * each.residual(earlier, branch)
        reused = guide(predicted[CONDITIONAL], predicted.get(UNCONDITIONAL), each.guidance_scale)
        pairs.append((each.guided(step), reused))
    return min(1.0, max(0.0, slope_through_origin(pairs)))


def slope_through_origin(pairs: Sequence[tuple[Tensor, Tensor]]) -> float:
    """The least-squares factor f of y = f x over all pairs (y, x)."""
    # f = (sum of x y) / (sum of x^2)
    along = sum(float((y * x).sum()) for y, x in pairs)
    square = sum(float((x * x).sum()) for _, x in pairs)
    return along / max(square, 1e-12)


@method("ERTACache (guessed)", "arXiv 2508.21091", settings, published=published_settings, calibrate=calibrate)
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Context:
    check_count("full_steps", setting["full_steps"], 1)
    sources = sources_for(calibration["errors"], setting["full_steps"])
    factors = {}
    if setting["rectify"]:
        factors = calibration["factors"]
    scales = None
    if setting["adjust"]:
        scales = calibration["scales"][int(setting["rectify"])]
    schedule = OfflineSchedule(tuple(sources), len(sources))
    return attached(pipe, schedule, reuse=Rectified(factors, scales))
