"""The parts of a calibration, such as the recording of one sample: units whose results a store keeps.

A draft is a profile that is tried, with the policy and the speedups to try.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.calibration.costs import measure_proxy_costs, time_steps
from galaxydit.calibration.full_precision import in_float32, is_rounded, rounds
from galaxydit.calibration.generation_observer import observed, record_sample
from galaxydit.calibration.perturbation import INTERVALS, Perturbation, perturb
from galaxydit.calibration.recording import Recording, estimated_rounding, rounding_between
from galaxydit.calibration.redundancy import Redundancy, measure_redundancy
from galaxydit.calibration.thresholds import planned_steps
from galaxydit.calibration.verify import VerifiedPrompt, verify_target
from galaxydit.pipelines.conditions import device_name, package_versions
from galaxydit.pipelines.generate import GeneratedVideo, generate
from galaxydit.pipelines.inputs import hash_files, verify_files
from galaxydit.pipelines.runs import Executor, Maker, Output, Rank, Store, Unit, progress_of, results, run
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.sharing import share_video
from galaxydit.pipelines.video import save_video
from galaxydit.profiles.schema import Profile, parse_profile
from galaxydit.request import PROXY, SCHEDULE
from galaxydit.validation import parse

VERIFICATION_SEED = 10_000  # added to the seed, so that verification starts from other noise than every sample
CHOICE_SEED = 20_000  # likewise added, for the videos of drafts


@dataclass(frozen=True)
class Sample:
    """One recorded generation, its perturbations, and its recording in the model's own dtype where that was made."""

    recording: Recording
    perturbations: tuple[Perturbation, ...]
    own: Recording | None = None


Draft = tuple[Profile, str, Sequence[float]]
"""A profile to try, the policy that it is tried with, and the speedups."""


@dataclass(eq=False)
class CalibrationMaker(Maker):
    """Measures the parts of a calibration in one worker process; `load` returns the pipeline of this process.

    The method `_timing` measures the part "timing" from the unit's data, prompt, settings and seed, and so on.
    """

    load: Callable[[], DiffusionPipeline]
    videos: Path | None = None  # folder in which the videos of full size are kept

    def prepare(self, rank: Rank) -> None:
        """Load the pipeline; if the worker has several processes, `rank` makes them compute each video together."""
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
        with in_float32(self.pipe) if is_rounded(self.pipe) else nullcontext():
            small = time_steps(self.pipe, prompt, recorded, seed)
        found = {"full": asdict(timed), "small": asdict(small)}
        return found | {"device": device_name(self.pipe), "versions": package_versions()}

    def _sample(self, data: Mapping[str, Any], prompt: str, settings: GenerationSettings, seed: int) -> Any:
        """The recording of one generation in float32, and its perturbations in all intervals.

        With `data["rounding"]`, a model of 16 bits is also recorded in its own dtype. Where the weights cannot be
        widened, an estimate of the rounding is subtracted.
        """
        widened = is_rounded(self.pipe)
        with in_float32(self.pipe) if widened else nullcontext():
            recording, plain, outputs = record_sample(self.pipe, prompt, settings, seed)
            if not widened and rounds(self.pipe):
                recording = recording.without_rounding(estimated_rounding(recording))
            found = [perturb(self.pipe, recording, plain, outputs, index) for index in range(len(INTERVALS))]
        own = None
        if widened and data["rounding"]:
            own, *_ = record_sample(self.pipe, prompt, settings, seed)
            recording = replace(recording, rounding=rounding_between(own, recording))
        return {"recording": asdict(recording), "perturbations": found, "own": own and asdict(own)}

    def _check(self, data: Mapping[str, Any], prompt: str, settings: GenerationSettings, seed: int) -> Any:
        """The recording of one plain generation in the model's own dtype."""
        with observed(self.pipe) as observer:
            self._keep("plain", generate(self.pipe, prompt, settings, seed, decode=self.videos is not None))
        return asdict(observer.recording(prompt, seed))

    def _plain(self, prompt: str, settings: GenerationSettings, seed: int) -> GeneratedVideo:
        plain = generate(self.pipe, prompt, settings, seed)
        self._keep("plain", plain)
        return plain

    def _keep(self, name: str, video: GeneratedVideo) -> None:
        if self.videos is not None:
            fps, path = video.settings.fps, self.videos / f"seed-{video.seed}-{name}.mp4"
            save_video(video.frames, path, fps, sound=video.sound)

    def _costs(self, data: Mapping[str, Any], prompt: str, settings: GenerationSettings, seed: int) -> Any:
        """Seconds that reading each proxy adds to a reused step, divided by those of a full step."""
        return measure_proxy_costs(self.pipe, prompt, settings, seed, data["step_seconds"])

    def _choice(self, data: Mapping[str, Any], prompt: str, settings: GenerationSettings, seed: int) -> Any:
        """For each draft of `data["tried"]` (profile, policy, speedups), a row for each of its speedups."""
        plain, keep = self._plain(prompt, settings, seed), self._keep
        verify = partial(verify_target, self.pipe, prompt=prompt, settings=settings, seed=seed, plain=plain, keep=keep)
        drafts = [(parse_profile(draft), policy, speedups) for draft, policy, speedups in data["tried"]]
        return [
            [asdict(verify(draft, speedup, policy=policy)) for speedup in speedups]
            for draft, policy, speedups in drafts
        ]

    def _verification(self, data: Mapping[str, Any], prompt: str, settings: GenerationSettings, seed: int) -> Any:
        """A row for each verified speedup of a profile and policy, "proxy" first.

        If "proxy" computed exactly the planned steps and ran no part of a block, its video counts for the schedule,
        too.
        """
        plain, profile, keep = self._plain(prompt, settings, seed), parse_profile(data["profile"]), self._keep
        verify = partial(
            verify_target, self.pipe, profile, prompt=prompt, settings=settings, seed=seed, plain=plain, keep=keep
        )
        rows = []
        for speedup in [target.speedup for target in profile.evidence.verifications]:
            if not data["both"]:
                rows.append(verify(speedup=speedup))
                continue
            by_proxy = verify(speedup=speedup, policy=PROXY)
            as_planned = tuple(by_proxy.full_steps) == planned_steps(profile, speedup)
            shared = as_planned and profile.recipe.proxy_share == 0
            rows += [by_proxy, replace(by_proxy, policy=SCHEDULE) if shared else verify(speedup=speedup)]
        return [asdict(row) for row in rows]

    def _redundancy(self, data: Mapping[str, Any], prompt: str, settings: GenerationSettings, seed: int) -> Any:
        return asdict(measure_redundancy(self.pipe, prompt, settings, seed))


@dataclass(frozen=True)
class Parts:
    """The parts of one calibration; each method reads its parts from the store or measures them.

    `key` is what all parts depend on, and `seed` is that of the first sample.
    """

    store: Store
    maker: CalibrationMaker
    executor: Executor
    key: Mapping[str, Any]
    seed: int
    progress: Callable[[str, int, int], None]

    def timing(self, prompt: str, recorded: GenerationSettings) -> Mapping[str, Any]:
        (timing,) = self._measure(
            "timing", [self._unit("timing", "timing", prompt, self.seed, recorded=asdict(recorded))]
        )
        return dict(timing)

    def samples(
        self, prompts: Sequence[str], indices: Sequence[int], settings_for: Callable[[str], GenerationSettings]
    ) -> list[Sample]:
        """The samples of these indices, whose prompts cycle; the first also tells the rounding of the model's dtype."""
        units = []
        for index in indices:
            prompt, seed = prompts[index % len(prompts)], self.seed + index
            details = {"bounds": INTERVALS, "rounding": index == 0, "settings": asdict(settings_for(prompt))}
            units.append(self._unit(f"sample-{index:04d}", "sample", prompt, seed, **details))
        return [parse(Sample, part, "sample") for part in self._measure("recording", units)]

    def check(self, prompt: str) -> Recording:
        """The recording of a plain generation with the prompt and the seed of the first sample."""
        (part,) = self._measure("checking", [self._unit("check", "check", prompt, self.seed)])
        return parse(Recording, part, "recording")

    def costs(self, prompt: str, step_seconds: float) -> Mapping[str, float]:
        """The measured cost of each proxy."""
        unit = self._unit("costs", "costs", prompt, self.seed, step_seconds=step_seconds)
        (costs,) = self._measure("timing", [unit])
        return dict(costs)

    def drafts(self, tried: Sequence[Draft], prompts: Sequence[str]) -> list[list[list[VerifiedPrompt]]]:
        """Measurements of the drafts in videos of the prompts: by draft, then by its speedups, then by prompt."""
        data = [(profile.to_dict(), policy, list(speedups)) for profile, policy, speedups in tried]
        by_prompt = self._measure("choosing", self._units("choice", prompts, CHOICE_SEED, tried=data))
        return [
            [[VerifiedPrompt(**row) for row in rows] for rows in zip(*of_prompts, strict=True)]
            for of_prompts in zip(*by_prompt, strict=True)
        ]

    def verifications(self, profile: Profile, prompts: Sequence[str], both: bool) -> tuple[VerifiedPrompt, ...]:
        """Measurements of the schedule and, with `both`, of "proxy": by prompt, then speedup, then "proxy" first."""
        units = self._units("verification", prompts, VERIFICATION_SEED, profile=profile.to_dict(), both=both)
        return tuple(VerifiedPrompt(**row) for rows in self._measure("verifying", units) for row in rows)

    def redundancy(self, prompt: str) -> Redundancy:
        (measured,) = self._measure("analysing", [self._unit("redundancy", "redundancy", prompt, self.seed)])
        return parse(Redundancy, measured, "redundancy")

    def _units(self, part: str, prompts: Sequence[str], offset: int, **details: Any) -> list[Unit]:
        return [
            self._unit(f"{part}-{index:04d}", part, prompt, self.seed + offset + index, **details)
            for index, prompt in enumerate(prompts)
        ]

    def _unit(self, name: str, part: str, prompt: str, seed: int, **details: Any) -> Unit:
        """The unit of a part, with the hashes of the files that its prompt names."""
        files = hash_files(prompt)
        start = {"prompt": prompt, "seed": seed} | ({"files": files} if files else {})
        return Unit(name, {**self.key, "part": part, **start, **details})

    def _measure(self, stage: str, units: Sequence[Unit]) -> list[Any]:
        run(units, self.maker, self.store, self.executor, progress=progress_of(stage, self.progress), retry_failed=True)
        return results(units, self.store)
