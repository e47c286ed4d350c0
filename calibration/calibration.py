"""`calibrate`: record, rank, plan and solve thresholds, choose by generated videos, verify.

A target is a speedup with its planned full steps (the policy "schedule") and its threshold (the policy "proxy"). The
order of prediction is 0 if a reused step repeats the last full step, and 1 if it extrapolates the last two.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import fmean

from diffusers import DiffusionPipeline

from galaxydit.calibration.build_profile import at_order, build_profile, with_proxy
from galaxydit.calibration.evidence import (
    add_compared_proxies,
    add_measurements,
    choose_compared_proxy,
    choose_order,
    verification_of,
)
from galaxydit.calibration.parts import CalibrationMaker, Parts
from galaxydit.calibration.prompt_files import split_prompts
from galaxydit.calibration.provenance import package_versions
from galaxydit.calibration.rank import Ranking, proxies_to_compare, rank_proxies
from galaxydit.calibration.recording import Recording
from galaxydit.calibration.redundancy import Redundancy
from galaxydit.calibration.schedule_error import Order
from galaxydit.calibration.search import LONGEST_GAP, PLANNER_VERSION
from galaxydit.calibration.thresholds import follows_schedule
from galaxydit.calibration.verify import VerifiedPrompt
from galaxydit.errors import check_number, refusal
from galaxydit.pipelines.conditions import conditions_of
from galaxydit.pipelines.published_models import recommended_settings
from galaxydit.pipelines.runs import Executor, InProcess, Store
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.policies.budget import full_step_count
from galaxydit.profiles.evidence import ComparedProxy, Seconds
from galaxydit.profiles.schema import SCHEMA_VERSION, Profile
from galaxydit.request import PROXY, SCHEDULE

SPEEDUPS = (1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0)
KIND = "calibration"
CHOICE_PROMPTS = 8  # of the samples' prompts, with other noise, for the choice of order and proxy
CHOICE_SPEEDUPS = (2.0, 3.0)  # or the nearest that are planned; the order is chosen at the first


@dataclass(frozen=True)
class Calibration:
    """The result of `calibrate`: a profile and the measurements behind it.

    Attributes:
        profile: for `galaxydit.accelerate(pipe, profile=...)`; `profile.save(path)` writes it.
        recordings: one for each sample, that is, for each recorded generation; the profile was fitted to them.
        verifications: PSNR and seconds of both policies at each requested speedup on each held-out prompt.
        psnr_of_order: mean PSNR in dB of each order of prediction on sample prompts at 2x, or at the nearest planned
            speedup; `choose_order` chose the order from it.
        redundancy: how much the outputs of each block changed from step to step; None if it was not analysed.
    """

    profile: Profile
    recordings: tuple[Recording, ...]
    verifications: tuple[VerifiedPrompt, ...]
    psnr_of_order: dict[Order, float]
    redundancy: Redundancy | None = None

    @property
    def chosen_order(self) -> str:
        """The order of prediction of the profile and the reason for it, as a sentence without its full stop."""
        used, psnrs = self.profile.recipe.order, self.psnr_of_order
        if not psnrs:
            return f"order {used} is used, not compared by videos"
        measured = ", ".join(f"order {order} {psnr:.1f} dB" for order, psnr in psnrs.items())
        chance = ", whose difference may be chance" if psnrs[used] < max(psnrs.values()) else ""
        return f"order {used} is used: at 2x, or near it, {measured}{chance}"


def calibrate(
    pipe: DiffusionPipeline,
    prompts: Sequence[str],
    *,
    resume_dir: Path,
    samples: int = 16,
    settings: GenerationSettings | None = None,
    seed: int = 0,
    verified_prompts: int = 8,
    speedups: Sequence[float] = SPEEDUPS,
    proxy_costs: Mapping[str, float] | None = None,
    name: str = "profile",
    float32: bool = True,
    analyze: bool = False,
    progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
    executor: Executor | None = None,
    load: Callable[[], DiffusionPipeline] | None = None,
) -> Calibration:
    """Measure a profile of `pipe`, and verify it on held-out prompts.

    Args:
        pipe: a video pipeline, not accelerated. If it has two transformers (Wan2.2 A14B), the number of full steps of a
            target is for both together.
        prompts: texts, or JSON objects that also name images and videos (`galaxydit.pipelines.inputs`), such as
            '{"prompt": "a cat walks", "image": "cat.png"}'. The last `verified_prompts` of them are held out for
            verification; samples cycle through the first `samples` of the others.
        resume_dir: folder of the finished parts, such as the recording of one sample. Started again with the same
            arguments, an interrupted calibration continues from there and gives the same profile.
        samples: number of recorded generations, at least 2.
        settings: of the generations; by default what the authors of the model recommend.
        seed: sample i starts from the noise of seed + i.
        verified_prompts: number of held-out prompts.
        speedups: block evaluations without the plugin / with it, each from 1 to 100; the profile gets a verified target
            for each that can be planned.
        proxy_costs: for each proxy by name, seconds that reading it adds to a reused step / seconds of a full step, as
            measured in an earlier calibration (`measure_proxy_costs`); measured by default. Timings vary, so two
            calibrations are equal only if their costs are.
        name: of the profile.
        float32: record each sample of a 16-bit model a second time, in float32, as the reference of ranking and
            schedules. The transformers take twice their memory meanwhile. Quantised models are recorded once.
        analyze: also measure how similar the outputs of each block are to its outputs at the step before, in one more
            generation.
        progress: called with the stage ("timing", "recording", "planning", "choosing", "verifying" or "analysing"), the
            number of its finished parts and the number of all its parts.
        executor: runs the workers that measure the parts; by default in this process, on `pipe`.
        load: called by each worker of `executor`, returns the same pipeline there; by default returns `pipe`.

    Raises:
        GalaxyDiTError: too few prompts, samples or steps, a speedup out of reach, none that can be planned, an
            unsupported pipeline, or a pipeline that leaves out the first steps (video to video, strength below 1).
    """
    _check_runs_all_steps(pipe)
    settings = settings or recommended_settings(pipe)
    own, held_out = split_prompts(prompts, samples, verified_prompts, settings.steps)
    _check_speedups(speedups, settings.steps)
    key = {
        "schema": SCHEMA_VERSION,
        "recording": [field.name for field in fields(Recording)],  # other versions keep other fields
        "planner": PLANNER_VERSION,
        "versions": package_versions(),
        **conditions_of(pipe, settings),
    }
    maker, store = CalibrationMaker(load or (lambda: pipe)), Store(resume_dir).create(KIND, {})
    parts = Parts(store, maker, executor or InProcess(), key, seed, progress)
    timing = parts.timing(own[0])
    recordings, propagation = parts.samples(own, samples, float32)
    progress("planning", 0, 1)
    ranking = rank_proxies(recordings, timing["costs"] if proxy_costs is None else proxy_costs)
    profile = build_profile(
        pipe,
        recordings,
        settings,
        seed=seed,
        speedups=speedups,
        propagation=propagation,
        name=name,
        ranking=ranking,
        device=timing["device"],
        versions=timing["versions"],
    )
    profile, psnr_of_order = _choose(pipe, parts, profile, ranking, recordings, speedups, own[:CHOICE_PROMPTS])
    verifications = parts.verifications(profile, held_out)
    profile = add_measurements(profile, Seconds(**timing["seconds"]), verifications)
    redundancy = parts.redundancy(own[0]) if analyze else None
    means = {order: fmean(values) for order, values in psnr_of_order.items()}
    return Calibration(profile, recordings, verifications, means, redundancy)


def _choose(
    pipe: DiffusionPipeline,
    parts: Parts,
    profile: Profile,
    ranking: Ranking,
    recordings: Sequence[Recording],
    speedups: Sequence[float],
    prompts: Sequence[str],
) -> tuple[Profile, dict[Order, list[float]]]:
    """`profile` with the order and the proxy chosen by videos of `prompts`, and for each order a list with one PSNR in
    dB for each prompt, against the video without the plugin.

    The PSNRs of an order are those of the policy "schedule" at the planned speedup nearest to 2; `choose_order` chooses
    from them. `choose_compared_proxy` chooses from the PSNRs of the proxies with the policy "proxy", means over the
    planned speedups nearest to 2 and 3. `parts` generates and measures the videos, unless its store has the results.
    `profile` was built at order 1 from the recordings, `speedups` and `ranking`, which ranks the proxies by the
    correlation of their change with the error of reuse and has their costs.
    """
    orders: dict[Order, Profile] = {1: profile, 0: at_order(pipe, profile, recordings, speedups, 0)}
    proxies = proxies_to_compare(ranking, profile.recipe.proxy)
    by_proxy = [profile, *(with_proxy(pipe, profile, recordings, proxy) for proxy in proxies[1:])]
    parts.progress("planning", 1, 1)

    planned = [target.speedup for target in profile.evidence.verifications]
    tried_at = list(dict.fromkeys(_nearest(wanted, planned) for wanted in CHOICE_SPEEDUPS))
    # A proxy that moves no step of any sample shares the videos of the schedule.
    moving = [any(not follows_schedule(recordings, draft, at) for at in tried_at) for draft in by_proxy]
    tried = [(orders[1], SCHEDULE, tried_at), (orders[0], SCHEDULE, tried_at[:1])]
    tried += [(draft, PROXY, tried_at) for draft, moves in zip(by_proxy, moving, strict=True) if moves]
    by_schedule, at_order_0, *by_moving = parts.drafts(tried, prompts)
    rows_of_order: dict[Order, list[VerifiedPrompt]] = {1: by_schedule[0], 0: at_order_0[0]}
    psnr_of_order = {order: [row.psnr_db for row in rows] for order, rows in rows_of_order.items()}
    profile = orders[choose_order(psnr_of_order)]
    left = iter(by_moving)
    measured = [next(left) if moves else by_schedule for moves in moving]
    compared = [
        ComparedProxy(proxy, tuple(map(verification_of, tried_at, rows)))
        for proxy, rows in zip(proxies, measured, strict=True)
    ]
    costs = {row.proxy: row.cost for row in ranking.rows}
    psnrs = [[fmean(row.psnr_db for row in of_prompt) for of_prompt in zip(*rows, strict=True)] for rows in measured]
    proxy = proxies[choose_compared_proxy(psnrs, [costs[name] for name in proxies])]
    if proxy != profile.recipe.proxy:
        profile = with_proxy(pipe, profile, recordings, proxy)
    compared.sort(key=lambda of_proxy: of_proxy.proxy != proxy)
    return add_compared_proxies(profile, compared), psnr_of_order


def _nearest(wanted: float, planned: Sequence[float]) -> float:
    return min(planned, key=lambda speedup: abs(speedup - wanted))


def _check_speedups(speedups: Sequence[float], steps: int | None) -> None:
    """Raise GalaxyDiTError for a speedup below 1 or above 100, or that no schedule of `steps` steps can reach.

    It is called before anything is recorded. If `steps` is None, the number of steps is unknown and not checked.
    """
    for speedup in speedups:
        check_number("speedups", speedup, 1.0, 100.0)
        if steps is not None and (full_step_count(steps, speedup) - 1) * LONGEST_GAP < steps - 1:
            expected = f"speedups that compute at least one of {LONGEST_GAP} steps"
            raise refusal("speedups", speedup, expected, f"pass less than {LONGEST_GAP}")


def _check_runs_all_steps(pipe: DiffusionPipeline) -> None:
    strength = inspect.signature(type(pipe).__call__).parameters.get("strength")
    if strength is not None and strength.default < 1:
        missing = f"its strength of {strength.default} leaves out the first"
        expected = f"one that runs all steps, because a recording needs them, and {missing}"
        raise refusal("pipe", type(pipe).__name__, expected, "calibrate the text-to-video pipeline of the same model")
