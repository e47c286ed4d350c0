"""The parts of a calibration, such as the recording of one sample: units whose results a store keeps."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.calibration.full_precision import in_float32, is_rounded, rounds
from galaxydit.calibration.generation_observer import observed, record_sample
from galaxydit.calibration.perturbation import INTERVALS, Perturbation, perturb
from galaxydit.calibration.recording import Recording, estimated_rounding, rounding_between
from galaxydit.calibration.redundancy import measure_redundancy
from galaxydit.calibration.step_times import time_steps
from galaxydit.calibration.thresholds import planned_steps
from galaxydit.pipelines.additions import share_video
from galaxydit.pipelines.conditions import device_name, package_versions
from galaxydit.pipelines.generate import GeneratedVideo, generate
from galaxydit.pipelines.inputs import hash_files, verify_files
from galaxydit.pipelines.runs import Executor, Maker, Output, Rank, Store, Unit, progress_of, results, run
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.trial import accelerated, generate_with, result_of
from galaxydit.pipelines.trial_result import TrialResult
from galaxydit.pipelines.video import save_video
from galaxydit.profiles.schema import Profile, parse_profile
from galaxydit.request import PROXY, SCHEDULE
from galaxydit.validation import parse

TRIALS = {"verification": ("verifying", 10_000), "choice": ("choosing", 20_000)}
"""By name, the stage of trials and the number that is added to the seed for other noise than that of all samples."""


@dataclass(frozen=True)
class Sample:
    """One recorded generation and its perturbations."""

    recording: Recording
    perturbations: tuple[Perturbation, ...]


@dataclass(frozen=True)
class Tried:
    """The trial of a profile with a policy ("schedule" or "proxy") at a speedup."""

    policy: str
    speedup: float
    prompt: str
    seed: int
    result: TrialResult

    @property
    def compute_fraction(self) -> float:
        return self.result.compute_fraction or math.nan

    @property
    def psnr_db(self) -> float:
        return self.result.metrics["psnr"]

    @property
    def seconds(self) -> tuple[float, float]:
        """Seconds of denoising without and with the plugin, in one process."""
        return self.result.plain_denoise_seconds or math.nan, self.result.denoise_seconds or math.nan

    @property
    def full_steps(self) -> tuple[int, ...]:
        if not self.result.report:
            return ()
        full = set()
        for call in self.result.report["calls"]:
            if not call["reused"]:
                full.add(call["step"])
        return tuple(sorted(full))


@dataclass(eq=False)
class CalibrationMaker(Maker):
    """Measures the parts of a calibration in one worker process; `load` returns the pipeline of this process.

    The method `_timing` measures the part "timing" from the unit's data, prompt, settings and seed, and so on.
    """

    load: Callable[[], DiffusionPipeline]
    videos: Path | None = None  # folder in which the videos of full size are kept

    def prepare(self, rank: Rank) -> None:
        self.pipe = self.load()
        share_video(self.pipe, rank)

    def make(self, unit: Unit) -> Output:
        data = unit.data
        verify_files([data["prompt"]], data.get("files", {}))
        measure = getattr(self, f"_{data['part']}")
        return Output(measure(data, data["prompt"], GenerationSettings(**data["settings"]), data["seed"]))

    def _timing(self, data: Mapping[str, Any], prompt: str, settings: GenerationSettings, seed: int) -> Any:
        """Seconds of a plain step and its parts, of a recorded step, and joules and bytes where they are known."""
        recorded = GenerationSettings(**data["recorded"])
        timed = time_steps(self.pipe, prompt, settings, seed)
        with in_float32(self.pipe), observed(self.pipe):
            small = time_steps(self.pipe, prompt, recorded, seed)
        found = {"full": asdict(timed), "small": asdict(small)}
        return found | {"device": device_name(self.pipe), "versions": package_versions()}

    def _sample(self, data: Mapping[str, Any], prompt: str, settings: GenerationSettings, seed: int) -> Any:
        """The recording of one generation in float32, and its perturbations in all intervals.

        With `data["rounding"]`, a model of 16 bits is also recorded in its own dtype. Where the weights cannot be
        widened, an estimate of the rounding is subtracted.
        """
        widened = is_rounded(self.pipe)
        with in_float32(self.pipe):
            recording, plain, outputs = record_sample(self.pipe, prompt, settings, seed)
            if not widened and rounds(self.pipe):
                recording = recording.without_rounding(estimated_rounding(recording))
            found = [perturb(self.pipe, recording, plain, outputs, index) for index in range(len(INTERVALS))]
        if widened and data["rounding"]:
            own, *_ = record_sample(self.pipe, prompt, settings, seed)
            recording = replace(recording, rounding=rounding_between(own, recording))
        return {"recording": asdict(recording), "perturbations": found}

    def _check(self, data: Mapping[str, Any], prompt: str, settings: GenerationSettings, seed: int) -> Any:
        with observed(self.pipe) as observer:
            self._keep("plain", generate(self.pipe, prompt, settings, seed, decode=self.videos is not None))
        return asdict(observer.recording(prompt, seed))

    def _keep(self, name: str, video: GeneratedVideo) -> None:
        if self.videos is not None:
            fps = video.settings.fps
            path = self.videos / f"seed-{video.seed}-{name}.mp4"
            save_video(video.frames, path, fps, sound=video.sound)

    def _videos(self, data: Mapping[str, Any], prompt: str, settings: GenerationSettings, seed: int) -> Any:
        """For each draft of `data["tried"]` (profile, policy, speedups), a row for each of its speedups.

        If the policy "proxy" computed exactly the planned steps and ran no part of a block, its video also counts for
        the schedule of the same profile, if that comes later.
        """
        plain = generate(self.pipe, prompt, settings, seed)
        self._keep("plain", plain)
        rows = []
        by_proxy = dict[tuple[str, float], Tried]()
        for draft, policy, speedups in data["tried"]:
            profile = parse_profile(draft)
            rows_of_draft = []
            for speedup in speedups:
                known = None
                if policy == SCHEDULE:
                    known = by_proxy.get((profile.identity, speedup))
                row = known or self.try_profile(profile, policy, speedup, plain)
                as_planned = policy == PROXY and row.full_steps == planned_steps(profile, speedup)
                if as_planned and profile.recipe.proxy_share == 0:
                    by_proxy[profile.identity, speedup] = replace(row, policy=SCHEDULE)
                rows_of_draft.append(asdict(row))
            rows.append(rows_of_draft)
        return rows

    def try_profile(self, profile: Profile, policy: str, speedup: float, plain: GeneratedVideo) -> Tried:
        """The video of `plain` again with a profile."""
        attach = partial(accelerated, speedup=speedup, policy=policy, profile=profile)
        made = generate_with(self.pipe, plain.prompt, plain.settings, plain.seed, attach)
        self._keep(f"{policy}-{speedup:g}x-order-{profile.recipe.order}-{profile.recipe.proxy}", made)
        result = result_of(self.pipe, made, plain)
        return Tried(policy, speedup, plain.prompt, plain.seed, result)

    def _redundancy(self, data: Mapping[str, Any], prompt: str, settings: GenerationSettings, seed: int) -> Any:
        return asdict(measure_redundancy(self.pipe, prompt, settings, seed))


@dataclass(frozen=True)
class Parts:
    """The parts of one calibration; each method reads its parts from the store or measures them."""

    store: Store
    maker: CalibrationMaker
    executor: Executor
    key: Mapping[str, Any]  # what all parts depend on
    prompts: Sequence[str]  # of the samples, which cycle them
    seed: int  # of the first sample
    progress: Callable[[str, int, int], None]

    def samples(self, indices: Sequence[int], settings_for: Callable[[str], GenerationSettings]) -> list[Sample]:
        """The samples of these indices; sample 0 also tells the rounding of a 16-bit model."""
        units = [self._sample_unit(index, settings_for) for index in indices]
        samples = self._measure("recording", units)
        for sample in samples:
            sample.pop("own", None)  # written by earlier versions
        return [parse(Sample, sample, "sample") for sample in samples]

    def unmade(self, samples: Sequence[int], settings_for: Callable[[str], GenerationSettings]) -> int:
        """How many samples of these indices the store lacks."""
        there = self.store.unit_ids()
        return sum(self._sample_unit(index, settings_for).id not in there for index in samples)

    def _sample_unit(self, index: int, settings_for: Callable[[str], GenerationSettings]) -> Unit:
        prompt = self.prompts[index % len(self.prompts)]
        seed = self.seed + index
        details = {"bounds": INTERVALS, "rounding": index == 0, "settings": asdict(settings_for(prompt))}
        return self._unit(f"sample-{index:04d}", "sample", prompt, seed, **details)

    def one(self, part: str, stage: str, **details: Any) -> Any:
        """The one part of this kind, with the prompt and the seed of the first sample."""
        return self._measure(stage, [self._unit(part, part, self.prompts[0], self.seed, **details)])[0]

    def verifications(self, profile: Profile, prompts: Sequence[str], both: bool) -> tuple[Tried, ...]:
        """Trials of the schedule and, with `both`, of the policy "proxy" at each speedup on each held-out prompt."""
        speedups = [row.speedup for row in profile.evidence.verifications]
        drafts = [(profile, SCHEDULE, speedups)]
        if both:
            # First, because videos of "proxy" that follow the schedule also count for it.
            drafts.insert(0, (profile, PROXY, speedups))
        verified: list[Tried] = []
        for by_speedup in self.trials("verification", drafts, prompts):
            for rows in by_speedup:
                verified.extend(rows)
        return tuple(verified)

    def trials(
        self, name: str, drafts: Sequence[tuple[Profile, str, Sequence[float]]], prompts: Sequence[str]
    ) -> list[list[list[Tried]]]:
        """By draft (profile, policy, speedups), then by speedup, the trials of each prompt; `name` is in `TRIALS`."""
        stage, offset = TRIALS[name]
        tried = []
        for profile, policy, speedups in drafts:
            tried.append((profile.to_dict(), policy, list(speedups)))
        units = []
        for index, prompt in enumerate(prompts):
            seed = self.seed + offset + index
            units.append(self._unit(f"{name}-{index:04d}", "videos", prompt, seed, tried=tried))
        by_prompt = parse(list[list[list[Tried]]], self._measure(stage, units), name)
        # A unit holds all drafts of one prompt; the caller reads all prompts of one draft.
        by_draft = []
        for speedups_of_prompts in zip(*by_prompt, strict=True):
            by_draft.append([list(rows) for rows in zip(*speedups_of_prompts, strict=True)])
        return by_draft

    def _unit(self, name: str, part: str, prompt: str, seed: int, **details: Any) -> Unit:
        """The unit of a part, with the hashes of the files that its prompt names."""
        data: dict[str, Any] = {**self.key, "part": part, "prompt": prompt, "seed": seed}
        if files := hash_files(prompt):
            data["files"] = files
        return Unit(name, data | details)

    def _measure(self, stage: str, units: Sequence[Unit]) -> list[Any]:
        run(units, self.maker, self.store, self.executor, progress=progress_of(stage, self.progress), retry_failed=True)
        return results(units, self.store)
