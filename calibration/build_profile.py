"""Build a `Profile` from recordings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.calibration.fit import fit_error_map
from galaxydit.calibration.rank import Ranking, choose_proxy
from galaxydit.calibration.recording import Recording, median_change, round_digits
from galaxydit.calibration.search import WARMUP, FullSteps, Order, ScheduleError, planned_schedules
from galaxydit.calibration.thresholds import deviation_weight, mean_distance, solve_threshold
from galaxydit.errors import refusal
from galaxydit.families import SEPARATE
from galaxydit.pipelines.runs import hash_of
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.policies.error_map import CumulativeDistance, ErrorMap
from galaxydit.policies.policy import Limits
from galaxydit.policies.proxy_threshold import ProxyThreshold, full_speedup
from galaxydit.policies.schedule import Schedule, full_step_count
from galaxydit.profiles.changed_conditions import boundary_of, dtype_of
from galaxydit.profiles.evidence import ErrorPropagation, Evidence, Fit, Recorded, Verification
from galaxydit.profiles.fingerprint import model_of
from galaxydit.profiles.generation_settings import settings_of
from galaxydit.profiles.recipe import Recipe, Target
from galaxydit.profiles.schema import SCHEMA_VERSION, Conditions, Profile
from galaxydit.proxies import PROXIES, proxies_of
from galaxydit.runtime.recognition import blocks_of, family_of, transformers_of
from galaxydit.schedulers import draws_noise

SPARE_REUSE = 2  # reused steps in a row that a target allows beyond its longest interval


@dataclass(frozen=True)
class ProfileBuilder:
    """Builds profiles of `pipe` from recordings, before any video is compared or verified."""

    pipe: DiffusionPipeline
    recordings: Sequence[Recording]
    ranking: Ranking
    propagation: ErrorPropagation
    speedups: Sequence[float]

    def profile(
        self, name: str, settings: GenerationSettings, recorded: Recorded | None = None, **where: Any
    ) -> Profile:
        """The profile for `settings` with the proxy that ranks best; `where` are `Conditions` of the full video.

        Raises GalaxyDiTError if no speedup can be planned.
        """
        chosen, reason = choose_proxy(self.ranking)
        share = self.recordings[0].rounding
        if share > 0:
            rounding = f"its dtype rounds the guided prediction by {100 * share:.1f} %"
            change = median_change(self.recordings)
            reason += f"; {rounding}, and a step changes it by {100 * change:.1f} % (medians over the steps)"
        models = [model_of(transformer) for transformer in transformers_of(self.pipe).values()]
        order: Order = 0 if draws_noise(self.pipe.scheduler) else 1
        recipe, fit, verifications = self._recipe(chosen, order, self._targets(order))
        return Profile(
            schema_version=SCHEMA_VERSION,
            name=name,
            source=f"galaxydit calibrate, {len(self.recordings)} recordings",
            model=models[0],
            conditions=self._conditions(settings, where),
            recipe=recipe,
            evidence=Evidence(reason, self.ranking.rows, fit, self.propagation, verifications, recorded=recorded),
            second_model=models[1] if len(models) > 1 else None,
        )

    def again(self, profile: Profile, *, proxy: str | None = None, order: Order | None = None) -> Profile:
        """`profile` with another proxy (error map and thresholds change), or order (the schedules change, too)."""
        recipe = profile.recipe
        if order is None:
            order = recipe.order
            targets = recipe.targets
        else:
            targets = self._targets(order)
        recipe, fit, verifications = self._recipe(proxy or recipe.proxy, order, targets)
        return replace(profile, recipe=recipe, evidence=replace(profile.evidence, fit=fit, verifications=verifications))

    def _targets(self, order: Order) -> tuple[Target, ...]:
        """The targets with their schedules. Raises GalaxyDiTError if no speedup can be planned."""
        sigmas = self.recordings[0].sigmas
        corrects = not draws_noise(self.pipe.scheduler)
        counts = sorted({full_step_count(len(sigmas), speedup) for speedup in self.speedups})
        schedules = planned_schedules(ScheduleError(self.recordings, corrects), self.propagation, counts, order)
        targets = plan_targets(schedules, sigmas, self.speedups)
        if not any(target.speedup in self.speedups for target in targets):
            expected = f"speedups of which one can be planned with {len(sigmas)} steps"
            raise refusal("speedups", tuple(self.speedups), expected, "pass smaller ones or more steps")
        return targets

    def _recipe(
        self, proxy: str, order: Order, targets: Sequence[Target]
    ) -> tuple[Recipe, Fit | None, tuple[Verification, ...]]:
        """The recipe, the scores of its error map, and an unmeasured verification of each planned speedup."""
        family = family_of(next(iter(transformers_of(self.pipe).values())))
        # A reused step reads the proxy in one branch alone.
        calls = 1
        if family.branches == SEPARATE and self.recordings[0].guidance_scale > 1:
            calls = 2
        share = shares_of_blocks(self.pipe)[proxy] / calls
        error_map, fit = fit_error_map(self.recordings, proxy, order)
        cumulative = mean_distance(self.recordings, proxy)
        weight = deviation_weight(self.recordings, proxy, order)
        solved = []
        for target in targets:
            # Reused steps pay for the proxy, so the schedule is that of a larger speedup.
            full = full_speedup(target.speedup, share)
            count = round(self.recordings[0].steps / full)
            planned = min(targets, key=lambda other: (abs(len(other.sigmas) - count), other.speedup))
            schedule = Schedule(full, planned.sigmas, None, cumulative, planned_sigmas=self.recordings[0].sigmas)
            limits = Limits(warmup=target.warmup, max_consecutive=None)
            policy = ProxyThreshold(schedule, deviation_weight=weight)
            threshold = solve_threshold(self.recordings, proxy, policy, limits, target.speedup, share)
            solved.append(replace(target, threshold=threshold))
        verifications = []
        for target in targets:
            if target.speedup in self.speedups:
                expected_error = largest_expected_error(target, error_map, cumulative)
                verifications.append(Verification(target.speedup, expected_error))
        recipe = Recipe(
            proxy=proxy,
            reuse="output",
            order=order,
            error_map=error_map,
            cumulative_distance=cumulative,
            targets=tuple(solved),
            proxy_share=share,
            deviation_weight=weight,
        )
        return recipe, fit, tuple(verifications)

    def _conditions(self, settings: GenerationSettings, where: Mapping[str, Any]) -> Conditions:
        pipe = self.pipe
        first = self.recordings[0]
        shift = settings.flow_shift
        if shift is None:  # schedulers name it in two ways
            shift = pipe.scheduler.config.get("flow_shift", pipe.scheduler.config.get("shift"))
        guidance_scale_2 = settings.guidance_scale_2
        if guidance_scale_2 is None:
            guidance_scale_2 = first.guidance_scale
        return Conditions(
            scheduler=type(pipe.scheduler).__name__,
            steps=first.steps,
            flow_shift=None if shift is None else float(shift),
            guidance_scale=first.guidance_scale,
            guidance_scale_2=guidance_scale_2,
            boundary=boundary_of(pipe),
            dtype=dtype_of(next(iter(transformers_of(pipe).values()))),
            samples=len(self.recordings),
            seed=first.seed,
            prompts_sha256=hash_of([[recording.prompt, recording.seed] for recording in self.recordings]),
            sigmas=first.sigmas,
            settings=settings_of(pipe, pipe.scheduler, transformers_of(pipe).values()),
            **where,
        )


def shares_of_blocks(pipe: DiffusionPipeline) -> dict[str, float]:
    """For each proxy of the pipeline, the share of a transformer call's blocks that it runs."""
    transformer = next(iter(transformers_of(pipe).values()))
    family = family_of(transformer)
    blocks = len(blocks_of(transformer, family))
    return {name: PROXIES[name].cost / blocks for name in proxies_of(family)}


def plan_targets(
    schedules: Mapping[int, FullSteps], sigmas: Sequence[float], speedups: Sequence[float]
) -> tuple[Target, ...]:
    """The targets by rising speedup, without thresholds: for each of `speedups` and each number of full steps between,
    because a schedule stretched to another number would drop early full steps.
    """
    steps = len(sigmas)
    asked = {round(steps / speedup) for speedup in speedups}
    between = set()
    for count in range(min(asked) + 1, max(asked)):
        if count not in asked:
            between.add(steps / count)
    targets = []
    for speedup in sorted({*speedups, *between}):
        count = full_step_count(steps, speedup)
        if count in schedules:
            full = schedules[count]
            longest = max(after - before for before, after in pairwise(full))
            planned = tuple(sigmas[step] for step in full)
            targets.append(Target(speedup, WARMUP / steps, max_consecutive=longest - 1 + SPARE_REUSE, sigmas=planned))
    return tuple(targets)


def largest_expected_error(target: Target, error_map: ErrorMap, cumulative: CumulativeDistance) -> float:
    """The largest relative error that `error_map` expects of a step that `target` reuses; 0 if it reuses none."""
    full = [cumulative.sigmas.index(sigma) for sigma in target.sigmas]
    largest = 0.0
    for before, after in pairwise(full):
        for step in range(before + 1, after):
            distance = cumulative.distances[step] - cumulative.distances[before]
            largest = max(largest, error_map(distance, cumulative.sigmas[step]))
    return round_digits(largest, 6)
