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
        self.factors, self.scales = factors, scales

    def predict(self, call: Call, past: Sequence[CachedStep]) -> Tensor:
        source, step = past[-1], call.info.step
        factor = at(self.factors[call.branch], source.step, step) if self.factors else None
        scale = at(self.scales, source.step, step) if self.scales else None
        change = source.tensor - source.side
        return (1.0 if scale is None else scale) * (call.latent + (1 + (factor or 0.0)) * change)


def sources_under(errors: Pairs, threshold: float) -> list[int]:
    """For each step the full step whose residual it uses; a full step is its own source.

    A step is reused if the last full step's residual has an error below `threshold` there.
    """
    sources = [0]
    for step in range(1, len(errors)):
        error = at(errors, sources[-1], step)
        sources.append(sources[-1] if error is not None and error < threshold else step)
    return sources


def sources_for(errors: Pairs, full_steps: int) -> list[int]:
    """The sources at the smallest threshold that gives nearest to `full_steps` full steps."""
    thresholds = sorted({0.0, *(error for row in errors for error in row)})
    candidates = [sources_under(errors, threshold) for threshold in (*thresholds, 2 * thresholds[-1])]
    return min(candidates, key=lambda sources: abs(len(set(sources)) - full_steps))


def settings(steps: int) -> list[Setting]:
    """The whole method, and its schedule alone."""
    counts = full_step_counts(steps)
    return [{"full_steps": count, "adjust": on, "rectify": on} for on in (True, False) for count in counts]


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
    steps, branches = recordings[0].steps, list(recordings[0].outputs)
    factors = {branch: over_pairs(steps, partial(_factor, recordings, branch)) for branch in branches}
    unrectified: dict[str, Pairs] = {branch: over_pairs(steps, lambda *_: 0.0) for branch in branches}
    return {
        "errors": over_pairs(steps, partial(_error, recordings)),
        "factors": factors,
        "scales": [over_pairs(steps, partial(_scale, recordings, table)) for table in (unrectified, factors)],
    }


def _error(recordings: Sequence[RecordedSteps], earlier: int, step: int) -> float:
    residuals = [[each.guided(place) - each.latents[place] for place in (earlier, step)] for each in recordings]
    return sum(float(relative_l1(cached, true)) for cached, true in residuals) / len(residuals)


def _factor(recordings: Sequence[RecordedSteps], branch: str, earlier: int, step: int) -> float:
    residuals = [(each.residual(step, branch), each.residual(earlier, branch)) for each in recordings]
    return slope_through_origin([(true - cached, cached) for true, cached in residuals])


def _scale(recordings: Sequence[RecordedSteps], factors: Mapping[str, Pairs], earlier: int, step: int) -> float:
    pairs = []
    for each in recordings:
        predicted = {
            branch: each.latents[step] + (1 + (at(table, earlier, step) or 0.0)) * each.residual(earlier, branch)
            for branch, table in factors.items()
        }
        reused = guide(predicted[CONDITIONAL], predicted.get(UNCONDITIONAL), each.guidance_scale)
        pairs.append((each.guided(step), reused))
    return min(1.0, max(0.0, slope_through_origin(pairs)))


def slope_through_origin(pairs: Sequence[tuple[Tensor, Tensor]]) -> float:
    """The least-squares factor f of y = f x over all pairs (y, x)."""
    along = sum(float((y * x).sum()) for y, x in pairs)
    return along / max(sum(float((x * x).sum()) for _, x in pairs), 1e-12)


@method("ERTACache (guessed)", "arXiv 2508.21091", settings, published=published_settings, calibrate=calibrate)
def attach(pipe: DiffusionPipeline, setting: Setting, calibration: Any) -> Context:
    check_count("full_steps", setting["full_steps"], 1)
    sources = sources_for(calibration["errors"], setting["full_steps"])
    factors = calibration["factors"] if setting["rectify"] else {}
    scales = calibration["scales"][int(setting["rectify"])] if setting["adjust"] else None
    schedule = OfflineSchedule(tuple(sources), len(sources))
    return attached(pipe, schedule, reuse=Rectified(factors, scales))
