"""`calibrate`: record, rank, plan and solve thresholds, choose by generated videos, verify."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.calibration.budget import DEFAULT, Budget, Costs
from galaxydit.calibration.build_profile import shares_of_blocks
from galaxydit.calibration.choose import add_measurements, choose
from galaxydit.calibration.generation_observer import read_recorded
from galaxydit.calibration.parts import CalibrationMaker, Parts, Tried
from galaxydit.calibration.planner import Planner
from galaxydit.calibration.prompt_files import default_prompts, split_prompts
from galaxydit.calibration.recording import Recording
from galaxydit.calibration.redundancy import Redundancy
from galaxydit.calibration.sampling import Sampling, settings_of_recording
from galaxydit.calibration.search import LONGEST_GAP, PLANNER_VERSION, Order
from galaxydit.calibration.step_times import StepTimes
from galaxydit.errors import check_count, check_number, listed, plain_number, proposing, refusal
from galaxydit.foreign_text import logger_of
from galaxydit.pipelines.conditions import conditions_of, package_versions
from galaxydit.pipelines.inputs import check_inputs, read_inputs
from galaxydit.pipelines.modular import parameters_of
from galaxydit.pipelines.published_models import recommended_settings
from galaxydit.pipelines.runs import Executor, InProcess, Store
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.policies.schedule import full_step_count
from galaxydit.profiles.schema import SCHEMA_VERSION, Profile
from galaxydit.proxies import PROXIES, proxies_of
from galaxydit.runtime.recognition import family_of, transformers_of
from galaxydit.validation import parse

logger = logger_of(__name__)

SPEEDUPS = (1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0)
KIND = "calibration"


@dataclass(frozen=True)
class Calibration:
    """The result of `calibrate`: a profile and the measurements behind it."""

    profile: Profile
    recordings: tuple[Recording, ...]  # to which the profile was fitted
    verifications: tuple[Tried, ...]  # of each policy at each speedup on each held-out prompt
    psnr_of_order: dict[Order, float]  # mean in dB on sample prompts at the planned speedup nearest to 2
    redundancy: Redundancy | None = None  # how much each block's outputs change from step to step, if analysed

    @property
    def chosen_order(self) -> str:
        """The order of prediction of the profile and the reason for it, as a sentence without its full stop."""
        used = self.profile.recipe.order
        psnrs = self.psnr_of_order
        if not psnrs:
            return f"order {used} is used, not compared by videos"
        measured = ", ".join(f"order {order} {psnr:.1f} dB" for order, psnr in psnrs.items())
        chance = ""
        # `choose_order` keeps order 1 unless the lead of order 0 is certain.
        if psnrs[used] < max(psnrs.values()):
            chance = ", whose difference may be chance"
        return f"order {used} is used: at 2x, or near it, {measured}{chance}"


@proposing
def calibrate(
    pipe: DiffusionPipeline,
    prompts: Sequence[str] | None = None,
    *,
    resume_dir: Path,
    budget: Budget | float | str = DEFAULT,
    settings: GenerationSettings | None = None,
    seed: int = 0,
    speedups: Sequence[float] = SPEEDUPS,
    proxy_costs: Mapping[str, float] | None = None,
    name: str = "profile",
    full_size: bool = False,
    recorded: Path | None = None,
    save_videos: Path | None = None,
    analyze: bool = False,
    on_profile: Callable[[Profile], None] = lambda profile: None,
    say: Callable[[str], None] = logger.info,
    progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
    executor: Executor | None = None,
    load: Callable[[], DiffusionPipeline] | None = None,
) -> Calibration:
    """Measure a profile of `pipe` from small recordings in float32; with a larger budget, verify it by videos.

    Args:
        pipe: a video pipeline, not accelerated. Two transformers (Wan2.2 A14B) share each target's full steps.
        prompts: texts, or JSON objects that also name images and videos (`galaxydit.pipelines.inputs`); by default 16
            of the plugin. The last 8, or the second half of fewer than 16, are held out; samples cycle the others.
        resume_dir: folder of the finished parts, from which an interrupted or a larger calibration continues.
        budget: the stages; or their limit in plain videos of full size, or in hours as a text such as "2h".
        settings: of the videos that the profile is for; by default what the authors of the model recommend.
        seed: sample i starts from the noise of seed + i.
        speedups: block evaluations without the plugin divided by those with it, each from 1 to 100.
        proxy_costs: seconds that reading a proxy adds to a reused step / those of a full step; by default the share
            of blocks that it runs, which does not differ from run to run.
        full_size: record at the size of the videos.
        recorded: a file of `--record`; its video takes the place of the plain video that checks the recordings.
        save_videos: folder in which the videos of full size are kept; by default none are.
        analyze: also measure how similar the outputs of each block are to those at the step before.
        on_profile: called with each profile, the first one after the first recording.
        say: called with sentences.
        progress: called with a stage and the numbers of its finished and of all its parts.
        executor: where parts are measured.
        load: returns the pipeline there.

    Raises:
        GalaxyDiTError: for prompts, steps or speedups that cannot serve, and for an unsupported pipeline, also one that
            leaves out the first steps (video to video, strength below 1).
    """
    _check_runs_all_steps(pipe)
    settings = settings or recommended_settings(pipe)
    seed = check_count("seed", seed, 0)
    budget = plain_number(budget)
    speedups = listed("speedups", speedups, float)
    _check_speedups(speedups, settings.steps)
    verifies = isinstance(budget, Budget) and budget.verified > 0
    conditions = conditions_of(pipe, settings)
    film = None if recorded is None else read_recorded(recorded, conditions)
    if prompts is None:
        prompts = default_prompts(pipe)
    own, held_out = split_prompts(prompts, settings.steps, verifies)
    if film is not None:  # the first recording is of its prompt, too
        others = [prompt for prompt in own if prompt != film.prompt]
        own = [film.prompt, *others]
        held_out = [prompt for prompt in held_out if prompt != film.prompt]
    check_inputs(pipe, read_inputs(own[0], first_frames=True))
    # Measure how long steps take, which tells what fits into the budget.
    maker = CalibrationMaker(load or (lambda: pipe), save_videos)
    store = Store(resume_dir).create(KIND, {})
    parts = Parts(store, maker, executor or InProcess(), _key_of_parts(pipe, conditions), own, seed, progress)
    size = settings_of_recording(pipe, own[0], settings, full_size=full_size)
    timing = parts.one("timing", "timing", recorded=asdict(size))
    plain = parse(StepTimes, timing["full"], "timing")
    recording = parse(StepTimes, timing["small"], "timing")
    steps = settings.steps or len(pipe.scheduler.timesteps)
    costs = Costs(steps, speedups, plain, recording, check=float(film is None))
    if not isinstance(budget, Budget):
        budget = costs.within(budget)
        budget = replace(budget, verified=min(budget.verified, len(held_out)))
    held_out = held_out[: budget.verified]
    frames = f"{size.width}x{size.height} pixels and {size.num_frames or 1} frames"
    say(f"recordings of {frames} in float32; {costs.describe(budget)}")
    # Record, plan, choose by videos, verify.
    planner = Planner(pipe, settings, speedups, name, timing, proxy_costs or shares_of_blocks(pipe))
    sampling = Sampling(
        parts=parts,
        planner=planner,
        costs=costs,
        budget=budget,
        on_profile=on_profile,
        say=say,
        full_size=full_size,
        are_smaller=size != settings,
    )
    samples = sampling.record(film)
    progress("planning", 0, 1)
    profile = planner.profile(samples)
    build = planner.builder(samples)
    progress("planning", 1, 1)
    psnr_of_order: dict[Order, float] = {}
    if budget.choice:
        profile, psnr_of_order = choose(build, parts, profile, own[: budget.choice])
    on_profile(profile)
    verifications: tuple[Tried, ...] = ()
    if held_out:
        verifications = parts.verifications(profile, held_out, both=bool(budget.choice))
    profile = add_measurements(profile, plain.seconds, verifications)
    on_profile(profile)
    redundancy = None
    if analyze:
        redundancy = parse(Redundancy, parts.one("redundancy", "analysing"), "redundancy")
    return Calibration(profile, tuple(build.recordings), verifications, psnr_of_order, redundancy)


def _key_of_parts(pipe: DiffusionPipeline, conditions: Mapping[str, Any]) -> dict[str, Any]:
    """What all parts depend on. A finished part with another key is measured again."""
    return {
        "schema": SCHEMA_VERSION,
        "recording": [field.name for field in fields(Recording)],  # other versions keep other fields
        "planner": PLANNER_VERSION,
        "versions": package_versions(),
        **conditions,
        **_plugins_of_proxies(pipe),
    }


def _plugins_of_proxies(pipe: DiffusionPipeline) -> dict[str, dict[str, str]]:
    """Under "proxies", the hash of the code of each plugin whose proxies recordings hold; empty without plugins."""
    offered = {name for transformer in transformers_of(pipe).values() for name in proxies_of(family_of(transformer))}
    plugins = [plugin for name in sorted(offered) if (plugin := PROXIES.plugin_of(name)) is not None]
    return {"proxies": {plugin.name: plugin.digest for plugin in plugins}} if plugins else {}


def _check_speedups(speedups: Sequence[float], steps: int | None) -> None:
    """Raise GalaxyDiTError for a speedup that no schedule of `steps` steps can reach; None is not checked."""
    for speedup in speedups:
        check_number("speedups", speedup, 1.0, 100.0)
        if steps is not None and (full_step_count(steps, speedup) - 1) * LONGEST_GAP < steps - 1:
            expected = f"speedups that compute at least one of {LONGEST_GAP} steps"
            raise refusal("speedups", speedup, expected, f"pass less than {LONGEST_GAP}")


def _check_runs_all_steps(pipe: DiffusionPipeline) -> None:
    strength = parameters_of(pipe).get("strength")
    if strength is not None and strength.default < 1:
        missing = f"its strength of {strength.default} leaves out the first"
        expected = f"one that runs all steps, because a recording needs them, and {missing}"
        raise refusal("pipe", type(pipe).__name__, expected, "calibrate the text-to-video pipeline of the same model")
