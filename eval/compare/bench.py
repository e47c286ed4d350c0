"""Generate, measure and store: one file per result, so that a run that was killed continues where it was."""

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
from galaxydit.eval.compare.compute_counter import ComputeCounter, measure_parts, only_transformer
from galaxydit.eval.compare.method import Method, Setting
from galaxydit.eval.files import replacing
from galaxydit.eval.metrics import ssim
from galaxydit.pipelines.generate import Generation, generate
from galaxydit.pipelines.psnr import psnr
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.video import to_uint8
from galaxydit.profiles.fingerprint import model_of, project_weights

logger = logging.getLogger(__name__)

PACKAGES = ("torch", "diffusers", "transformers")
SCHEMA = 1  # of what a result holds and of how it is counted


@dataclass(frozen=True)
class Case:
    """One prompt, and the seed of its noise."""

    prompt: str
    seed: int


@dataclass(frozen=True)
class Sample:
    """One generation with a method, measured.

    Attributes:
        compute_fraction: operations done in the blocks / those of a plain generation with all steps.
        denoise_seconds, end_to_end_seconds: of this generation.
        plain_denoise_seconds, plain_end_to_end_seconds: of the plain one, timed in the same process.
        psnr, ssim: against the plain video; PSNR in dB.
        bytes_held: None if the method does not expose it.
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
    """The plain generation of a case; `timed_now` tells whether its seconds were measured in this process."""

    case: Case
    frames: NDArray[np.float32]
    flops: float
    denoise_seconds: float
    end_to_end_seconds: float
    timed_now: bool


class Bench:
    """One pipeline under test, and the folder of its results.

    A result is identified by everything that it depends on: model, settings, method with its calibration, prompt, seed,
    device and package versions. Measure case by case with all methods each, because only the last case's plain video
    is kept in memory.
    """

    def __init__(self, pipe: DiffusionPipeline, settings: GenerationSettings, folder: Path) -> None:
        if settings.steps is None:
            raise ValueError("steps=None is not allowed: expected an integer; pass the number of steps")
        self.pipe = pipe
        self.settings = settings
        self.steps = settings.steps
        self.folder = folder
        self._conditions = conditions(pipe, settings)
        self._store = Store(folder / "samples", self._conditions)
        self._plain: _Plain | None = None
        self._parts = measure_parts(pipe, "a", settings)
        self._identities: dict[str, str] = {}
        self._logged: set[tuple[str, str]] = set()

    def calibrate(self, method: Method, prompts: Sequence[str], seed: int) -> Any:
        """The method's calibration, from disk if it was measured before; None if the method needs none."""
        if method.calibrate is None:
            return None
        name = self._name("calibration", method, {"prompts": list(prompts), "seed": seed})
        found = self._store.get(name)
        if found is None:
            found = {"result": method.calibrate(self.pipe, prompts, self.settings, seed)}
            self._store.put(name, found)
            found = json.loads(json.dumps(found))  # as a resumed run reads it
        return found["result"]

    def sample(
        self, method: Method, setting: Setting, calibration: Any, case: Case, *, keep_frames: bool = False
    ) -> Sample:
        """One measured generation, from disk if it was measured before."""
        name = self._sample_name(method, setting, calibration, case)
        known = self._store.get(name)
        if known is not None and not (keep_frames and not self._frames_path(name).exists()):
            return Sample(**known)
        plain = self._plain_of(case, timed_now=True)
        video, flops, held = self._generate(method, setting, calibration, case)
        sample = Sample(
            compute_fraction=flops / plain.flops,
            denoise_seconds=video.denoise_seconds,
            end_to_end_seconds=video.end_to_end_seconds,
            plain_denoise_seconds=plain.denoise_seconds,
            plain_end_to_end_seconds=plain.end_to_end_seconds,
            psnr=psnr(video.frames, plain.frames),
            ssim=ssim(video.frames, plain.frames),
            bytes_held=held,
        )
        if keep_frames:
            _save(self._frames_path(name), frames=to_uint8(video.frames))
        self._store.put(name, asdict(sample))
        return sample

    def frames(self, method: Method, setting: Setting, calibration: Any, case: Case) -> NDArray[np.uint8]:
        """The video of a sample that was measured with `keep_frames`."""
        name = self._sample_name(method, setting, calibration, case)
        with np.load(self._frames_path(name)) as data:
            frames: NDArray[np.uint8] = data["frames"]
        return frames

    def plain_frames(self, case: Case) -> NDArray[np.float32]:
        """The plain video, `(frames, height, width, 3)` in [0, 1]."""
        return self._plain_of(case, timed_now=False).frames

    def _generate(
        self, method: Method, setting: Setting, calibration: Any, case: Case
    ) -> tuple[Generation, float, int | None]:
        settings = method.generation(self.settings, setting) if method.generation else self.settings
        with ExitStack() as stack:
            caught = stack.enter_context(warnings.catch_warnings(record=True))
            attached = stack.enter_context(method.attach(self.pipe, setting, calibration))
            counter = ComputeCounter(only_transformer(self.pipe), self._parts, attached.bytes_held)
            stack.enter_context(counter)
            video = generate(self.pipe, case.prompt, settings, case.seed)
        for warning in caught:
            self._log_once(method, warning.category, str(warning.message))
        return video, counter.flops, counter.bytes_held

    def _log_once(self, method: Method, category: type[Warning], text: str) -> None:
        # A candidate setting that reuses little is expected; the table shows it.
        if issubclass(category, FullComputeWarning | NoEffectWarning) or (method.name, text) in self._logged:
            return
        self._logged.add((method.name, text))
        logger.warning("%s: %s", method.name, text)

    def _plain_of(self, case: Case, *, timed_now: bool) -> _Plain:
        """The plain generation. Seconds drift between processes, so a stored one is run again if they are needed."""
        plain = self._plain
        if plain is not None and plain.case == case and (plain.timed_now or not timed_now):
            return plain
        path = self.folder / "plain" / f"{hash_of([self._conditions, asdict(case)])[:24]}.npz"
        stored = _load(path, case)
        if stored is not None and not timed_now:
            self._plain = stored
            return stored
        with ComputeCounter(only_transformer(self.pipe), self._parts) as counter:
            video = generate(self.pipe, case.prompt, self.settings, case.seed)
        now = _Plain(case, video.frames, counter.flops, video.denoise_seconds, video.end_to_end_seconds, True)
        if stored is not None:
            now = replace(now, frames=stored.frames)
        else:
            seconds = [now.denoise_seconds, now.end_to_end_seconds]
            _save(path, frames=now.frames, flops=np.float64(now.flops), seconds=np.array(seconds))
        self._plain = now
        return now

    def _sample_name(self, method: Method, setting: Setting, calibration: Any, case: Case) -> str:
        return self._name(
            "sample", method, {"setting": dict(setting), "calibration": hash_of(calibration), "case": asdict(case)}
        )

    def _name(self, kind: str, method: Method, rest: dict[str, Any]) -> str:
        """A readable name with a hash of everything that the result depends on."""
        if method.name not in self._identities:
            identity = method.identity(self.pipe) if method.identity else ""
            self._identities[method.name] = f"{identity} {_version(method.needs)}"
        key = [self._conditions, kind, method.name, self._identities[method.name], rest]
        return f"{method.slug}-{kind}-{hash_of(key)[:24]}"

    def _frames_path(self, name: str) -> Path:
        return self.folder / "frames" / f"{name}.npz"


def conditions(pipe: DiffusionPipeline, settings: GenerationSettings) -> dict[str, Any]:
    """What all results of a run depend on, as JSON data."""
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
    """Write an npz file that appears only when it is complete."""
    with replacing(path) as partial:
        np.savez_compressed(partial, **arrays)


def _load(path: Path, case: Case) -> _Plain | None:
    if not path.exists():
        return None
    with np.load(path) as data:
        denoise, end_to_end = (float(value) for value in data["seconds"])
        return _Plain(case, data["frames"], float(data["flops"]), denoise, end_to_end, False)
