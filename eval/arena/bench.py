"""Generates, measures and remembers: one file for each result, so that a run killed anywhere goes on."""

import json
import logging
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from diffusers import DiffusionPipeline
from numpy.typing import NDArray
from torch import nn

from galaxydit.calibration.provenance import device_name
from galaxydit.calibration.store import Store, hash_of
from galaxydit.errors import FullComputeWarning, NoEffectWarning
from galaxydit.eval.arena.counter import ComputeCounter, measure_parts, only_transformer
from galaxydit.eval.arena.method import Method, Setting
from galaxydit.eval.files import replacing
from galaxydit.eval.metrics import psnr, ssim
from galaxydit.fingerprint import model_of, project_weights
from galaxydit.pipelines.generate import Generation, generate
from galaxydit.pipelines.psnr import HIGHEST_PSNR
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.video import to_uint8

logger = logging.getLogger(__name__)

PACKAGES = ("torch", "diffusers", "transformers")
SCHEMA = 1  # of what a result holds and of how it is counted


@dataclass(frozen=True)
class Job:
    """One prompt and the seed of its noise."""

    prompt: str
    seed: int


@dataclass(frozen=True)
class Sample:
    """One generation with a method, measured.

    compute_fraction is what ran in the blocks over what a plain generation of all steps runs there. psnr (dB) and ssim
    are against the plain video, whose seconds are those of this process. bytes_held is None where a method tells none.
    """

    compute_fraction: float
    denoise_seconds: float
    end_to_end_seconds: float
    plain_denoise_seconds: float
    plain_end_to_end_seconds: float
    psnr: float
    ssim: float
    bytes_held: int | None


@dataclass(frozen=True, eq=False)
class _Plain:
    """The plain generation of a job: its video, what its blocks ran, its seconds, and whether these are of now."""

    job: Job
    frames: NDArray[np.float32]
    flops: float
    denoise_seconds: float
    end_to_end_seconds: float
    timed_now: bool


class Bench:
    """One pipeline under test, and the folder of its results.

    A result is found again by everything that it depends on: model, settings, method with its calibration, prompt,
    seed, device and versions. Take jobs one after the other with all methods each: only the last job's plain video is
    at hand.
    """

    def __init__(self, pipe: DiffusionPipeline, settings: GenerationSettings, folder: Path) -> None:
        if settings.steps is None:
            raise ValueError("steps is None, allowed are integers: the arena counts in shares of them")
        self.pipe = pipe
        self.settings = settings
        self.steps = settings.steps
        self.folder = folder
        self._conditions = conditions(pipe, settings)
        self._store = Store(folder / "samples", self._conditions)
        self._plain: _Plain | None = None
        self._parts = measure_parts(pipe, "a", settings)
        self._identities: dict[str, str] = {}
        self._told: set[tuple[str, str]] = set()

    def calibrate(self, method: Method, prompts: Sequence[str], seed: int) -> Any:
        """What the method measures beforehand, from disk where it was measured already; None where it needs nothing."""
        if method.calibrate is None:
            return None
        name = self._name("calibration", method, {"prompts": list(prompts), "seed": seed})
        found = self._store.get(name)
        if found is None:
            found = {"result": method.calibrate(self.pipe, prompts, self.settings, seed)}
            self._store.put(name, found)
            found = json.loads(json.dumps(found))  # the first run sees what a resumed one will
        return found["result"]

    def sample(
        self, method: Method, setting: Setting, calibration: Any, job: Job, *, keep_frames: bool = False
    ) -> Sample:
        """One generation measured, from disk where it was measured already."""
        name = self._sample_name(method, setting, calibration, job)
        known = self._store.get(name)
        if known is not None and not (keep_frames and not self._frames_path(name).exists()):
            return Sample(**known)
        plain = self._plain_of(job, timed_now=True)
        video, flops, held = self._generate(method, setting, calibration, job)
        sample = Sample(
            compute_fraction=flops / plain.flops,
            denoise_seconds=video.denoise_seconds,
            end_to_end_seconds=video.end_to_end_seconds,
            plain_denoise_seconds=plain.denoise_seconds,
            plain_end_to_end_seconds=plain.end_to_end_seconds,
            psnr=min(psnr(video.frames, plain.frames), HIGHEST_PSNR),
            ssim=ssim(video.frames, plain.frames),
            bytes_held=held,
        )
        if keep_frames:
            _save(self._frames_path(name), frames=to_uint8(video.frames))
        self._store.put(name, asdict(sample))
        return sample

    def frames(self, method: Method, setting: Setting, calibration: Any, job: Job) -> NDArray[np.uint8]:
        """The video of a sample that was measured with `keep_frames`."""
        name = self._sample_name(method, setting, calibration, job)
        with np.load(self._frames_path(name)) as data:
            frames: NDArray[np.uint8] = data["frames"]
        return frames

    def plain_frames(self, job: Job) -> NDArray[np.float32]:
        """The plain video, `(frames, height, width, 3)` in [0, 1]."""
        return self._plain_of(job, timed_now=False).frames

    def _generate(
        self, method: Method, setting: Setting, calibration: Any, job: Job
    ) -> tuple[Generation, float, int | None]:
        settings = method.generation(self.settings, setting) if method.generation else self.settings
        with ExitStack() as stack:
            caught = stack.enter_context(warnings.catch_warnings(record=True))
            attached = stack.enter_context(method.attach(self.pipe, setting, calibration))
            counter = ComputeCounter(only_transformer(self.pipe), self._parts, attached.bytes_held)
            stack.enter_context(counter)
            video = generate(self.pipe, job.prompt, settings, job.seed)
        for warning in caught:
            self._tell_once(method, warning.category, str(warning.message))
        return video, counter.flops, counter.bytes_held

    def _tell_once(self, method: Method, category: type[Warning], text: str) -> None:
        # That a candidate setting reuses nothing, or too little, is what its place in the table says.
        if issubclass(category, FullComputeWarning | NoEffectWarning) or (method.name, text) in self._told:
            return
        self._told.add((method.name, text))
        logger.warning("%s: %s", method.name, text)

    def _plain_of(self, job: Job, *, timed_now: bool) -> _Plain:
        """The plain generation. One of an earlier process is run again for its seconds: a machine has its moods."""
        plain = self._plain
        if plain is not None and plain.job == job and (plain.timed_now or not timed_now):
            return plain
        path = self.folder / "plain" / f"{hash_of([self._conditions, asdict(job)])[:24]}.npz"
        stored = _load(path, job)
        if stored is not None and not timed_now:
            self._plain = stored
            return stored
        with ComputeCounter(only_transformer(self.pipe), self._parts) as counter:
            video = generate(self.pipe, job.prompt, self.settings, job.seed)
        now = _Plain(job, video.frames, counter.flops, video.denoise_seconds, video.end_to_end_seconds, True)
        if stored is not None:
            now = replace(now, frames=stored.frames)
        else:
            seconds = [now.denoise_seconds, now.end_to_end_seconds]
            _save(path, frames=now.frames, flops=np.float64(now.flops), seconds=np.array(seconds))
        self._plain = now
        return now

    def _sample_name(self, method: Method, setting: Setting, calibration: Any, job: Job) -> str:
        return self._name(
            "sample", method, {"setting": dict(setting), "calibration": hash_of(calibration), "job": asdict(job)}
        )

    def _name(self, kind: str, method: Method, rest: dict[str, Any]) -> str:
        """Readable in front, unmistakable behind."""
        if method.name not in self._identities:
            identity = method.identity(self.pipe) if method.identity else ""
            self._identities[method.name] = f"{identity} {_version(method.needs)}"
        key = [self._conditions, kind, method.name, self._identities[method.name], rest]
        return f"{method.slug}-{kind}-{hash_of(key)[:24]}"

    def _frames_path(self, name: str) -> Path:
        return self.folder / "frames" / f"{name}.npz"


def conditions(pipe: DiffusionPipeline, settings: GenerationSettings) -> dict[str, Any]:
    """Everything that all results of a run depend on, as plain data."""
    transformer = only_transformer(pipe)
    return {
        "schema": SCHEMA,
        "pipeline": type(pipe).__name__,
        "model": asdict(model_of(transformer)),
        "weights": {
            name: project_weights(part) for name, part in pipe.components.items() if isinstance(part, nn.Module)
        },
        "scheduler": {name: str(value) for name, value in pipe.scheduler.config.items() if not name.startswith("_")},
        "settings": asdict(settings),
        "dtype": str(transformer.dtype).removeprefix("torch."),
        "device": device_name(pipe),
        "versions": {name: version(name) for name in PACKAGES},
    }


def _version(module: str | None) -> str:
    if module is None:
        return ""
    try:
        return version(module.replace("_", "-"))
    except PackageNotFoundError:
        return "unknown"


def _save(path: Path, **arrays: Any) -> None:
    """Under its name only when complete."""
    with replacing(path) as partial:
        np.savez_compressed(partial, **arrays)


def _load(path: Path, job: Job) -> _Plain | None:
    if not path.exists():
        return None
    with np.load(path) as data:
        denoise, end_to_end = (float(value) for value in data["seconds"])
        return _Plain(job, data["frames"], float(data["flops"]), denoise, end_to_end, False)
