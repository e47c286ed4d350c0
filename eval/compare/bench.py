"""Generate, measure and store: one record per result, so that a run that was killed continues where it was."""

import io
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from diffusers import DiffusionPipeline
from numpy.typing import NDArray

from galaxydit.calibration.provenance import device_name
from galaxydit.errors import FullComputeWarning, NoEffectWarning
from galaxydit.eval.compare.compute_counter import ComputeCounter, measure_parts, only_transformer
from galaxydit.eval.compare.method import Method, Setting
from galaxydit.eval.compare.plan import Case
from galaxydit.eval.metrics import ssim
from galaxydit.pipelines.conditions import conditions_of
from galaxydit.pipelines.generate import Generation, generate
from galaxydit.pipelines.psnr import psnr
from galaxydit.pipelines.runs import (
    Executor,
    HopelessUnitError,
    InProcess,
    Maker,
    Output,
    Progress,
    Rank,
    Record,
    Store,
    Unit,
    hash_of,
    run,
)
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.sharing import share_video
from galaxydit.pipelines.video import to_uint8

logger = logging.getLogger(__name__)

PACKAGES = ("torch", "diffusers", "transformers")
KIND = "comparison"
FRAMES = "frames.npz"
SCHEMA = 1  # of what a result holds and of how it is counted


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


class SampleMaker(Maker):
    """Calibrates methods and measures samples on one worker; `load` returns its pipeline.

    It keeps the plain video of the last case in memory. Its seconds are of this process, because timings drift between
    processes.
    """

    def __init__(
        self,
        load: Callable[[], DiffusionPipeline],
        settings: GenerationSettings,
        methods: Mapping[str, Method],
        calibrations: Mapping[str, Any],
    ) -> None:
        self._load = load
        self._settings = settings
        self.methods = methods
        self.calibrations = calibrations
        self._plain: tuple[Case, Generation, float] | None = None
        self._logged: set[tuple[str, str]] = set()
        self._broken: dict[str, str] = {}

    def prepare(self, rank: Rank) -> None:
        """Load the pipeline, and count what a plain generation computes."""
        self.pipe = self._load()
        share_video(self.pipe, rank)
        self._parts = measure_parts(self.pipe, "a", self._settings)

    def make(self, unit: Unit) -> Output:
        """A method's calibration, a sample, or a plain video. After its first error a method is given up."""
        data = unit.data
        name = data["method"]
        if name in self._broken:
            raise HopelessUnitError(self._broken[name])
        try:
            if data["part"] == "calibration":
                calibrate = self.methods[name].calibrate
                assert calibrate is not None  # it is not asked for
                return Output(calibrate(self.pipe, data["prompts"], self._settings, data["seed"]))
            case = Case(**data["case"])
            if data["part"] == "plain":
                return Output(None, {FRAMES: _pack(self._plain_of(case)[0].frames)})
            return self._sample(self.methods[name], data, case)
        except Exception as error:
            self._broken[name] = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise HopelessUnitError(self._broken[name]) from error

    def _sample(self, method: Method, data: Mapping[str, Any], case: Case) -> Output:
        plain, plain_flops = self._plain_of(case)
        setting, calibration = data["setting"], self.calibrations[data["calibration"]]
        settings = method.generation(self._settings, setting) if method.generation else self._settings
        with ExitStack() as stack:
            caught = stack.enter_context(warnings.catch_warnings(record=True))
            attached = stack.enter_context(method.attach(self.pipe, setting, calibration))
            counter = ComputeCounter(only_transformer(self.pipe), self._parts, attached.bytes_held)
            stack.enter_context(counter)
            video = generate(self.pipe, case.prompt, settings, case.seed)
        for warning in caught:
            self._log_once(method, warning.category, str(warning.message))
        sample = Sample(
            compute_fraction=counter.flops / plain_flops,
            denoise_seconds=video.denoise_seconds,
            end_to_end_seconds=video.end_to_end_seconds,
            plain_denoise_seconds=plain.denoise_seconds,
            plain_end_to_end_seconds=plain.end_to_end_seconds,
            psnr=psnr(video.frames, plain.frames),
            ssim=ssim(video.frames, plain.frames),
            bytes_held=counter.bytes_held,
        )
        return Output(asdict(sample), {FRAMES: _pack(to_uint8(video.frames))} if data["keep_frames"] else {})

    def _plain_of(self, case: Case) -> tuple[Generation, float]:
        """The plain generation, and the operations that its blocks ran."""
        if self._plain is None or self._plain[0] != case:
            with ComputeCounter(only_transformer(self.pipe), self._parts) as counter:
                video = generate(self.pipe, case.prompt, self._settings, case.seed)
            self._plain = case, video, counter.flops
        return self._plain[1:]

    def _log_once(self, method: Method, category: type[Warning], text: str) -> None:
        # A candidate setting that reuses little is expected; the table shows it.
        if issubclass(category, FullComputeWarning | NoEffectWarning) or (method.name, text) in self._logged:
            return
        self._logged.add((method.name, text))
        logger.warning("%s: %s", method.name, text)


class Bench:
    """One pipeline under test, and the store of its results.

    A result is identified by everything that it depends on: model, settings, method with its calibration, prompt, seed,
    device and package versions. `executor` is where units are made, by default this process; on another one, `load`
    returns the same pipeline.
    """

    def __init__(
        self,
        pipe: DiffusionPipeline,
        settings: GenerationSettings,
        folder: Path,
        executor: Executor | None = None,
        load: Callable[[], DiffusionPipeline] | None = None,
    ) -> None:
        if settings.steps is None:
            raise ValueError("steps=None is not allowed: expected an integer; pass the number of steps")
        self.pipe = pipe
        self.settings = settings
        self.steps = settings.steps
        self.store = Store(folder)
        self.store.create(KIND, {})
        self._conditions = hash_of(conditions(pipe, settings))
        self._executor = executor or InProcess()
        self._maker = SampleMaker(load or (lambda: pipe), settings, {}, {})
        self._identities: dict[str, str] = {}

    def know(self, methods: Sequence[Method], calibrations: Sequence[Any] = ()) -> None:
        """Hand methods and calibrations to workers, which start anew with them."""
        known, old = {method.name: method for method in methods}, self._maker
        values = {hash_of(value): value for value in calibrations}
        if (
            all(old.methods.get(name) is one for name, one in known.items())
            and values.keys() <= old.calibrations.keys()
        ):
            return
        self._maker = SampleMaker(old._load, self.settings, {**old.methods, **known}, {**old.calibrations, **values})

    def calibration_unit(self, method: Method, prompts: Sequence[str], seed: int) -> Unit:
        """The calibration of a method."""
        return self._unit("calibration", method, prompts=list(prompts), seed=seed)

    def sample_unit(
        self, method: Method, setting: Setting, calibration: Any, case: Case, *, keep_frames: bool = False
    ) -> Unit:
        """One measured generation. Units of a case and method are made by one worker."""
        details = {"setting": dict(setting), "calibration": hash_of(calibration), "case": asdict(case)}
        return self._unit("sample", method, **details, keep_frames=keep_frames)

    def plain_unit(self, case: Case) -> Unit:
        """The plain video of a case."""
        data = {"conditions": self._conditions, "part": "plain", "method": "", "case": asdict(case)}
        return Unit("plain", data, hash_of(asdict(case)))

    def measure(self, units: Sequence[Unit], progress: Progress | None = None) -> list[Record]:
        """The records of these units, in their order; from the store if they were made before."""
        run(units, self._maker, self.store, self._executor, progress=progress, retry_failed=True)
        records = [self.store.read(unit.id) for unit in units]
        return [record for record in records if record is not None]

    def frames(self, unit: Unit) -> NDArray[Any]:
        """The video of a unit that keeps its frames, `(frames, height, width, 3)`: uint8, of a plain one float32."""
        (record,) = self.measure([unit])
        with np.load(self.store.local_path(record.files[FRAMES].path)) as data:
            frames: NDArray[Any] = data["frames"]
        return frames

    def _unit(self, part: str, method: Method, **details: Any) -> Unit:
        if method.name not in self._identities:
            identity = method.identity(self.pipe) if method.identity else ""
            self._identities[method.name] = f"{identity} {_version(method.needs)}"
        data = {"conditions": self._conditions, "part": part, "method": method.name}
        case = details.get("case", {})
        group = f"{hash_of(case)}-{method.slug}"
        return Unit(f"{method.slug}-{part}", {**data, "identity": self._identities[method.name], **details}, group)


def conditions(pipe: DiffusionPipeline, settings: GenerationSettings) -> dict[str, Any]:
    """What all results of a run depend on, as JSON data."""
    return {
        "schema": SCHEMA,
        **conditions_of(pipe, settings),
        "dtype": str(only_transformer(pipe).dtype).removeprefix("torch."),
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


def _pack(frames: NDArray[Any]) -> bytes:
    """The content of an npz file."""
    content = io.BytesIO()
    np.savez_compressed(content, frames=frames)
    return content.getvalue()
