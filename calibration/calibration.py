"""The whole calibration: record, rank, fit, budget, verify."""

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from statistics import median

import numpy as np
from accelerate import PartialState
from diffusers import DiffusionPipeline

from galaxydit.acceleration import transformers_of
from galaxydit.calibration.costs import Costs, measure_costs
from galaxydit.calibration.disturb import ZONES, disturb, propagation_of
from galaxydit.calibration.fit import fit_error_map
from galaxydit.calibration.provenance import conditions_of
from galaxydit.calibration.rank import choose_proxy, rank_proxies
from galaxydit.calibration.record import record_sample
from galaxydit.calibration.recording import Recording
from galaxydit.calibration.replay import mean_distances, planned_config
from galaxydit.calibration.search import Planner
from galaxydit.calibration.store import Progress, Store, work_through
from galaxydit.calibration.verify import Verified, verify_prompt, with_measurements
from galaxydit.config import FEW_STEPS, Config
from galaxydit.errors import GalaxyDiTError
from galaxydit.fingerprint import model_of
from galaxydit.pipelines.settings import GenerationSettings, recommended_settings
from galaxydit.planning import reused_cost
from galaxydit.profile import SCHEMA_VERSION, Profile, Seconds, Target
from galaxydit.propagation import Propagation

SPEEDUPS = (1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0)
VERIFIED_PROMPTS = 4
ORDER, REUSE = 1, "output"
UNMEASURED = Propagation()
SEED_APART = 10_000  # seeds of verification are those of no sample


@dataclass(frozen=True)
class Calibration:
    """A finished calibration: the profile and what it was made from."""

    profile: Profile
    recordings: tuple[Recording, ...]
    verified: tuple[Verified, ...]


def calibrate(pipe: DiffusionPipeline, prompts: Sequence[str], *, resume_dir: Path, **options: object) -> Profile:
    """Measure a profile of `pipe`; arguments as for `run_calibration`."""
    return run_calibration(pipe, prompts, resume_dir=resume_dir, **options).profile  # type: ignore[arg-type]


def run_calibration(
    pipe: DiffusionPipeline,
    prompts: Sequence[str],
    *,
    resume_dir: Path,
    samples: int = 16,
    settings: GenerationSettings | None = None,
    seed: int = 0,
    verified_prompts: int = VERIFIED_PROMPTS,
    speedups: Sequence[float] = SPEEDUPS,
    proxy: str | None = None,
    name: str = "profile",
    progress: Progress = lambda stage, done, total: None,
) -> Calibration:
    """Record `samples` full generations, disturb a few, choose the proxy, fit the map, plan each speedup, verify.

    Args:
        pipe: a text-to-video pipeline with one denoising transformer, not accelerated.
        prompts: the last `verified_prompts` of them are kept for verification; samples go round the others, each with
            a seed of its own.
        resume_dir: where finished samples are kept; started again with the same arguments, the calibration goes on
            from there and gives the same profile. Processes started together (torchrun) share it and the work.
        samples: recorded generations, at least 2.
        settings: of the generations; by default what the makers recommend.
        seed: sample i starts from the noise of seed + i.
        speedups: to plan for, each above 1.
        proxy: takes this one instead of the best.
        name: of the profile.
        progress: called with stage, finished and total pieces of this process.

    Raises:
        GalaxyDiTError: too few prompts, samples or steps, a speedup that cannot be planned, an unsupported pipeline.
    """
    settings = settings or recommended_settings(pipe)
    own, unseen = _split(prompts, samples, verified_prompts, settings)
    jobs = [(own[i % len(own)], seed + i) for i in range(samples)]
    state = PartialState(cpu=pipe.device.type == "cpu")
    model = model_of(transformers_of(pipe)["transformer"])
    scheduler = {k: str(v) for k, v in pipe.scheduler.config.items() if not k.startswith("_")}
    key = {
        "schema": SCHEMA_VERSION,
        "recording": [field.name for field in fields(Recording)],  # other versions keep something else
        "model": asdict(model),
        "settings": asdict(settings),
        "scheduler": scheduler,
        "jobs": jobs,
        "zones": ZONES,
    }
    store = Store(resume_dir, key)

    def report(stage: str) -> Callable[[int, int], None]:
        return lambda done, total: progress(stage, done, total)

    def record(index: int) -> object:
        recording, generation = record_sample(pipe, jobs[index][0], settings, jobs[index][1])
        zones = [zone for zone in range(len(ZONES)) if zone % samples == index]
        found = [disturb(pipe, recording, generation, zone, REUSE) for zone in zones]
        return {"recording": recording.to_dict(), "disturbances": found}

    costs = store.get("costs")
    if costs is None and state.is_main_process:
        costs = asdict(measure_costs(pipe, own[0], settings, seed))
        store.put("costs", costs)
    names = [f"sample-{index:04d}" for index in range(samples)]
    pieces = work_through(store, names, record, state, report("recording"))
    recordings = tuple(Recording.from_dict(piece["recording"]) for piece in pieces)
    propagation = propagation_of([tuple(found) for piece in pieces for found in piece["disturbances"]])
    profile = draft_profile(pipe, recordings, settings, jobs, seed, speedups, name, proxy, progress, propagation)

    check = Store(resume_dir, {"profile": profile.identity, "seed": seed})
    names = [f"verify-{index:04d}" for index in range(len(unseen))]
    rows = work_through(
        check,
        names,
        lambda index: verify_prompt(pipe, profile, unseen[index], settings, seed + SEED_APART + index),
        state,
        report("verifying"),
    )
    verified = tuple(Verified(**row) for piece in rows for row in piece)
    profile = with_measurements(profile, list(verified))
    measured = Costs(**store.get("costs"))  # type: ignore[arg-type]
    return Calibration(replace(profile, seconds=_seconds(profile, measured, verified)), recordings, verified)


def draft_profile(
    pipe: DiffusionPipeline,
    recordings: Sequence[Recording],
    settings: GenerationSettings,
    jobs: Sequence[tuple[str, int]],
    seed: int,
    speedups: Sequence[float],
    name: str = "profile",
    proxy: str | None = None,
    progress: Progress = lambda stage, done, total: None,
    propagation: Propagation = UNMEASURED,
) -> Profile:
    """The profile that follows from the recordings alone, before anything is verified."""
    transformer = transformers_of(pipe)["transformer"]
    ranking = rank_proxies(recordings)
    chosen, reason = choose_proxy(ranking)
    if proxy is not None:
        chosen, reason = proxy, f"{proxy} was asked for; {reason}"
    error_map, fit = fit_error_map(recordings, chosen, ORDER)
    clock = np.cumsum(mean_distances(recordings, chosen))
    profile = Profile(
        schema_version=SCHEMA_VERSION,
        name=name,
        kind="measured",
        source=f"galaxydit calibrate, {len(recordings)} samples",
        model=model_of(transformer),
        conditions=conditions_of(pipe, recordings, settings, jobs, seed),
        proxy=chosen,
        reason=reason,
        ranking=ranking,
        error_map=error_map,
        fit=fit,
        clock=tuple(float(f"{value:.7g}") for value in clock),
        propagation=propagation,
        order=ORDER,
        reuse=REUSE,
        reused_cost=round(reused_cost(transformer, Config(proxy=chosen)), 6),
        targets=(Target(1.0, 0.2, 4),),
    )
    planner = Planner(profile, recordings)
    asked, between = sorted(set(speedups)), speedups_between(recordings[0].steps, speedups)
    targets: list[Target] = []
    unverified: list[Target] = []
    for index, speedup in enumerate((*asked, *between)):
        target = planner.target(speedup) if speedup in asked else planner.fixed(speedup)
        if target is not None:
            (targets if speedup in asked else unverified).append(target)
        progress("planning", index + 1, len(asked) + len(between))
    if not targets:
        raise GalaxyDiTError(
            f"speedups={tuple(speedups)} cannot be planned with {chosen}; pass smaller ones or more steps"
        )
    return replace(profile, targets=tuple(targets), unverified=tuple(unverified))


def speedups_between(steps: int, speedups: Sequence[float]) -> tuple[float, ...]:
    """The speedups of all other numbers of full steps between those of the given ones, rising: a schedule stretched to
    another number of full steps would leave out early ones that matter.
    """
    planned = {round(steps / speedup) for speedup in speedups}
    return tuple(steps / count for count in range(max(planned), min(planned), -1) if count not in planned)


def _split(
    prompts: Sequence[str], samples: int, verified_prompts: int, settings: GenerationSettings
) -> tuple[list[str], list[str]]:
    if samples < 2:
        raise GalaxyDiTError(f"samples={samples}, allowed is at least 2; 16 serve well")
    if settings.steps is not None and settings.steps <= FEW_STEPS:
        raise GalaxyDiTError(f"steps={settings.steps}, allowed are more than {FEW_STEPS}: fewer are never reused")
    given = list(dict.fromkeys(prompts))
    if len(given) < verified_prompts + 2:
        raise GalaxyDiTError(
            f"prompts holds {len(given)} different ones, allowed are at least {verified_prompts + 2}: "
            f"{verified_prompts} are kept for verification; pass more, or verify on fewer"
        )
    cut = len(given) - verified_prompts
    return given[:cut][:samples], given[cut:]


def _seconds(profile: Profile, costs: Costs, verified: Sequence[Verified]) -> Seconds:
    steps = profile.conditions.steps
    predicted, measured = [], []
    for target in profile.targets:
        config = planned_config(profile, target, target.speedup)
        if config is None or config.plan is None:
            continue
        full = config.plan.full_steps(steps)
        proxy_cost = config.plan.cost_of_reuse * costs.branches * costs.blocks
        predicted.append(round(costs.predicted_speedup(steps, full, proxy_cost), 4))
        ratios = [row.plain_seconds / row.denoise_seconds for row in verified if row.speedup == target.speedup]
        if ratios:
            measured.append(round(median(ratios), 4))
    return Seconds(
        step=costs.step,
        block=costs.block,
        outside_blocks=costs.outside_blocks,
        outside_transformer=costs.outside_transformer,
        predicted_speedup=tuple(predicted),
        measured_speedup=tuple(measured),
    )


def read_prompts(path: Path) -> list[str]:
    """One prompt a line; empty lines and repeated prompts are left out."""
    lines = [re.sub(r"\s+", " ", line).strip() for line in path.read_text(encoding="utf-8").splitlines()]
    prompts = list(dict.fromkeys(line for line in lines if line))
    if not prompts:
        raise GalaxyDiTError(f"prompts={str(path)!r} holds no prompt; write one a line")
    return prompts
