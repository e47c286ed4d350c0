"""`calibrate`: record, rank, plan and solve thresholds, choose by generated videos, verify."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.calibration.build_profile import at_order, build_profile, with_proxy
from galaxydit.calibration.costs import measure_proxy_costs, measure_seconds
from galaxydit.calibration.evidence import (
    add_compared_proxies,
    add_measurements,
    choose_compared_proxy,
    verification_of,
)
from galaxydit.calibration.generation_observer import record_sample
from galaxydit.calibration.perturbation import INTERVALS, average_perturbations, perturb
from galaxydit.calibration.prompt_files import split_prompts
from galaxydit.calibration.provenance import device_name, package_versions
from galaxydit.calibration.rank import proxies_to_compare, rank_proxies
from galaxydit.calibration.recording import Recording
from galaxydit.calibration.redundancy import Redundancy, measure_redundancy
from galaxydit.calibration.schedule_error import Order
from galaxydit.calibration.search import LONGEST_GAP, PLANNER_VERSION
from galaxydit.calibration.verify import VerifiedPrompt, verify_target
from galaxydit.errors import check_number, refusal
from galaxydit.pipelines.conditions import conditions_of
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.inputs import hash_files
from galaxydit.pipelines.published_models import recommended_settings
from galaxydit.pipelines.runs import Executor, InProcess, Maker, Output, Rank, Store, Unit, progress_of, results, run
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.sharing import share_video
from galaxydit.policies.budget import full_step_count
from galaxydit.profiles.evidence import ComparedProxy, Seconds
from galaxydit.profiles.schema import SCHEMA_VERSION, Profile, parse_profile
from galaxydit.request import PROXY, SCHEDULE
from galaxydit.validation import parse

SPEEDUPS = (1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0)
KIND = "calibration"
VERIFICATION_SEED = 10_000  # added to the seed, so that verification starts from other noise than every sample
CHOICE_SEED = 20_000  # likewise, for the choice of order and proxy
CHOICE_PROMPTS = 8
CHOICE_SPEEDUPS = (2.0, 3.0)  # or the nearest that are planned; the order is chosen at the first


@dataclass(frozen=True)
class Calibration:
    """A finished calibration.

    Attributes:
        profile: for `galaxydit.accelerate(pipe, profile=...)`; `profile.save(path)` writes it.
        recordings: of the samples that the profile was fitted to.
        verifications: of each target on each held-out prompt.
        psnr_of_order: mean PSNR in dB of each order on prompts of samples; the profile has the better order.
        redundancy: how much the outputs of each block changed from step to step; None if it was not analysed.
    """

    profile: Profile
    recordings: tuple[Recording, ...]
    verifications: tuple[VerifiedPrompt, ...]
    psnr_of_order: dict[Order, float]
    redundancy: Redundancy | None = None

    @property
    def chosen_order(self) -> str:
        """Which order the profile has, and why, as a sentence without its full stop."""
        measured = ", ".join(f"order {order} {psnr:.1f} dB" for order, psnr in self.psnr_of_order.items())
        return f"order {self.profile.recipe.order} is used: at 2x, or near it, {measured}"


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
    analyze: bool = False,
    progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
    executor: Executor | None = None,
    load: Callable[[], DiffusionPipeline] | None = None,
) -> Calibration:
    """Measure a profile of `pipe`.

    Args:
        pipe: a video pipeline, not accelerated. Two transformers (Wan2.2 A14B) are one trajectory with one budget.
        prompts: texts, or JSON objects that also name images and videos (`galaxydit.pipelines.inputs`). The last
            `verified_prompts` of them are held out for verification; samples cycle through the others.
        resume_dir: folder of the finished parts. Started again with the same arguments, an interrupted calibration
            continues from there and gives the same profile.
        samples: recorded generations, at least 2.
        settings: of the generations; by default what the authors of the model recommend.
        seed: sample i starts from the noise of seed + i.
        speedups: in block evaluations, each above 1; the profile gets a verified target for each.
        proxy_costs: of `measure_proxy_costs`, by proxy, from an earlier calibration; measured by default. Timings vary,
            so two calibrations are equal only if their costs are.
        name: of the profile.
        analyze: also measure how similar each block's outputs are to the step before, in one more generation.
        progress: called with the stage ("timing", "recording", "planning", "choosing", "verifying" or "analysing"), the
            number of finished parts and the number of all parts.
        executor: where the parts are measured; by default in this process, on `pipe`.
        load: returns the same pipeline on a worker of another executor.

    Raises:
        GalaxyDiTError: too few prompts, samples or steps, a speedup that cannot be planned, an unsupported pipeline,
            one that leaves out the first steps (video to video with a strength below 1).
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
    store = Store(resume_dir).create(KIND, {})
    maker, executor = CalibrationMaker(load or (lambda: pipe)), executor or InProcess()

    def measure(stage: str, units: Sequence[Unit]) -> list[Any]:
        run(units, maker, store, executor, progress=progress_of(stage, progress), retry_failed=True)
        return results(units, store)

    units = [
        Unit(
            f"sample-{index:04d}",
            {
                **key,
                "part": "sample",
                **_start(own[index % len(own)], seed + index),
                "intervals": list(range(index, len(INTERVALS), samples)),
                "bounds": INTERVALS,
            },
        )
        for index in range(samples)
    ]
    (timing,) = measure("timing", [Unit("seconds", {**key, "part": "timing", **_start(own[0], seed)})])
    parts = measure("recording", units)
    recordings = parse(tuple[Recording, ...], [part["recording"] for part in parts], "recordings")
    progress("planning", 0, 1)
    propagation = average_perturbations([tuple(one) for part in parts for one in part["perturbations"]])
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
    drafts: dict[Order, Profile] = {1: profile, 0: at_order(pipe, profile, recordings, speedups, 0)}
    proxies = proxies_to_compare(ranking, profile.recipe.proxy)
    by_proxy = [profile, *(with_proxy(pipe, profile, recordings, proxy) for proxy in proxies[1:])]
    progress("planning", 1, 1)

    planned = [target.speedup for target in profile.evidence.verifications]
    tried_at = list(dict.fromkeys(_nearest(wanted, planned) for wanted in CHOICE_SPEEDUPS))
    chosen_on = own[:CHOICE_PROMPTS]
    tried = [(draft, SCHEDULE, tried_at[:1]) for draft in drafts.values()]
    tried += [(draft, PROXY, tried_at) for draft in by_proxy]
    fixed = {**key, "part": "choice", "tried": [(draft.to_dict(), *how) for draft, *how in tried]}
    units = [
        Unit(f"choice-{index:04d}", {**fixed, **_start(prompt, seed + CHOICE_SEED + index)})
        for index, prompt in enumerate(chosen_on)
    ]
    # By draft, then by prompt: a row for each speedup.
    rows_by_draft = [
        [[VerifiedPrompt(**row) for row in rows] for rows in prompts]
        for prompts in zip(*measure("choosing", units), strict=True)
    ]
    psnr_of_order: dict[Order, float] = {
        order: fmean(rows[0].psnr_db for rows in prompts) for order, prompts in zip(drafts, rows_by_draft, strict=False)
    }
    of_proxies = rows_by_draft[len(drafts) :]
    costs = {row.proxy: row.cost for row in ranking.rows}
    psnrs = [[fmean(row.psnr_db for row in rows) for rows in prompts] for prompts in of_proxies]
    proxy = proxies[choose_compared_proxy(psnrs, [costs[name] for name in proxies])]
    profile = drafts[max(drafts, key=lambda order: psnr_of_order[order])]  # at equal PSNR order 1
    if proxy != profile.recipe.proxy:
        profile = with_proxy(pipe, profile, recordings, proxy)
    compared = [
        ComparedProxy(
            draft.recipe.proxy,
            tuple(
                verification_of(speedup, rows)
                for speedup, rows in zip(tried_at, zip(*prompts, strict=True), strict=True)
            ),
        )
        for draft, prompts in zip(by_proxy, of_proxies, strict=True)
    ]
    profile = add_compared_proxies(profile, sorted(compared, key=lambda one: one.proxy != proxy))

    fixed = {**key, "part": "verification", "profile": profile.to_dict()}
    units = [
        Unit(f"verification-{index:04d}", {**fixed, **_start(prompt, seed + VERIFICATION_SEED + index)})
        for index, prompt in enumerate(held_out)
    ]
    verifications = tuple(VerifiedPrompt(**row) for rows in measure("verifying", units) for row in rows)
    profile = add_measurements(profile, Seconds(**timing["seconds"]), verifications)
    redundancy = None
    if analyze:
        (found,) = measure("analysing", [Unit("redundancy", {**key, "part": "redundancy", **_start(own[0], seed)})])
        redundancy = parse(Redundancy, found, "redundancy")
    return Calibration(profile, recordings, verifications, psnr_of_order, redundancy)


@dataclass(eq=False)
class CalibrationMaker(Maker):
    """Measures the parts of a calibration on one worker; `load` returns its pipeline."""

    load: Callable[[], DiffusionPipeline]

    def prepare(self, rank: Rank) -> None:
        """Load the pipeline."""
        self.pipe = self.load()
        share_video(self.pipe, rank)

    def make(self, unit: Unit) -> Output:
        """One part: seconds of a step and of each proxy, a recorded sample with its perturbations, the drafts of a
        profile on one prompt, or the verification of both policies on one prompt.
        """
        data = unit.data
        settings, prompt, seed = GenerationSettings(**data["settings"]), data["prompt"], data["seed"]
        if data["part"] == "timing":
            seconds = measure_seconds(self.pipe, prompt, settings, seed)
            costs = measure_proxy_costs(self.pipe, prompt, settings, seed, seconds.step)
            # Of the process that measures: on Ray, and after a resume, another process may calibrate.
            versions = package_versions()
            return Output(
                {"seconds": asdict(seconds), "costs": costs, "device": device_name(self.pipe), "versions": versions}
            )
        if data["part"] in ("choice", "verification"):
            plain = generate(self.pipe, prompt, settings, seed)
            verify = partial(verify_target, self.pipe, prompt=prompt, settings=settings, seed=seed, plain=plain)
            if data["part"] == "choice":
                drafts = [(parse_profile(draft), policy, speedups) for draft, policy, speedups in data["tried"]]
                return Output(
                    [
                        [asdict(verify(draft, speedup, policy=policy)) for speedup in speedups]
                        for draft, policy, speedups in drafts
                    ]
                )
            profile = parse_profile(data["profile"])
            asked = [target.speedup for target in profile.evidence.verifications]
            return Output(
                [asdict(verify(profile, speedup, policy=word)) for speedup in asked for word in (SCHEDULE, PROXY)]
            )
        if data["part"] == "redundancy":
            return Output(asdict(measure_redundancy(self.pipe, prompt, settings, seed)))
        recording, generation = record_sample(self.pipe, prompt, settings, seed)
        perturbations = [perturb(self.pipe, recording, generation, index) for index in data["intervals"]]
        return Output({"recording": asdict(recording), "perturbations": perturbations})


def _nearest(wanted: float, planned: Sequence[float]) -> float:
    return min(planned, key=lambda speedup: abs(speedup - wanted))


def _start(prompt: str, seed: int) -> dict[str, Any]:
    """What a generation starts from, as data of a unit: prompt, seed, and hashes of the files that the prompt names."""
    files = hash_files(prompt)
    return {"prompt": prompt, "seed": seed} | ({"files": files} if files else {})


def _check_speedups(speedups: Sequence[float], steps: int | None) -> None:
    """Refuse, before anything is recorded, what could not be planned."""
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
