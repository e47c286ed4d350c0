"""Generate, measure and store one record per result, so that a killed run resumes.

A case is a prompt with the seed of its noise. A unit is one piece of work, such as one measured generation, and its
record is the stored result. A plain generation uses no method.
"""

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from diffusers import DiffusionPipeline
from numpy.typing import NDArray

from galaxydit.calibration.provenance import device_name
from galaxydit.errors import FullComputeWarning, NoEffectWarning, refusal
from galaxydit.eval.compare.compute_counter import ComputeCounter, Part, measure_parts, only_transformer
from galaxydit.eval.compare.method import Method, Setting
from galaxydit.eval.compare.methods import fewer_steps
from galaxydit.eval.compare.plan import Case
from galaxydit.eval.metrics import SSIM
from galaxydit.families import transformers_of
from galaxydit.pipelines.conditions import conditions_of
from galaxydit.pipelines.generate import GeneratedVideo, generate
from galaxydit.pipelines.inputs import hash_files, verify_files
from galaxydit.pipelines.psnr import psnr
from galaxydit.pipelines.runs import Executor, InProcess, Maker, Output, Progress, Rank, Record, Store, Unit, run
from galaxydit.pipelines.runs.unit import PermanentError, hash_of
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.sharing import share_video
from galaxydit.pipelines.video import encode_video, load_video
from galaxydit.profiles.conditions import dtype_of

logger = logging.getLogger(__name__)

KIND = "comparison"
VIDEO = "video.mp4"
SCHEMA = 2  # version of a result's fields and of the counting; raise it when either changes


@dataclass(frozen=True)
class Workload:
    """What every generation of a comparison shares.

    Attributes:
        pipe, settings: the pipeline and the settings of its generations.
        parts: the parts of the transformer's blocks whose operations are counted (in Wan: self-attention,
            cross-attention and feed-forward of each block), from `measure_parts`.
    """

    pipe: DiffusionPipeline
    settings: GenerationSettings
    parts: tuple[Part, ...] = ()

    def run(
        self, case: Case, method: Method, setting: Setting, calibration: Any
    ) -> tuple[GeneratedVideo, ComputeCounter]:
        """One generation with a method at a setting, and its `ComputeCounter`: the operations in the counted parts, and
        the most bytes of the tensors that the method kept.

        `calibration` is what `method.calibrate` measured beforehand; None if the method has no `calibrate`.
        """
        settings = self.settings if method.generation is None else method.generation(self.settings, setting)
        transformer = next(iter(transformers_of(self.pipe).values()))  # `measure_parts` refuses several
        with (
            method.attach(self.pipe, setting, calibration) as attached,
            ComputeCounter(transformer, self.parts, attached.bytes_held) as counter,
        ):
            return generate(self.pipe, case.prompt, settings, case.seed), counter

    def run_plain(self, case: Case) -> tuple[GeneratedVideo, ComputeCounter]:
        """One generation without any method, and its `ComputeCounter`."""
        return self.run(case, fewer_steps.METHOD, {"steps": self.settings.steps}, None)


@dataclass(frozen=True)
class Sample:
    """Measurements of one generation with a method.

    Attributes:
        compute_fraction: operations done in the blocks / those of a plain generation with all steps.
        denoise_seconds, end_to_end_seconds: of denoising and of the whole pipeline call.
        plain_denoise_seconds, plain_end_to_end_seconds: of the plain generation in the same process, because timings
            drift between processes.
        psnr, ssim: against the plain video; PSNR in dB.
        bytes_held: most bytes of the tensors that the method kept; None if the method does not expose them.
        energy_per_video_joules, plain_energy_per_video_joules: of the whole pipeline call, with the method and of the
            plain generation; None without an energy counter.
        load, shared: of the generation with the method, see `GeneratedVideo`.
    """

    compute_fraction: float
    denoise_seconds: float
    end_to_end_seconds: float
    plain_denoise_seconds: float
    plain_end_to_end_seconds: float
    psnr: float
    ssim: float
    bytes_held: int | None
    energy_per_video_joules: float | None = None
    plain_energy_per_video_joules: float | None = None
    load: float | None = None
    shared: bool = False


@dataclass(eq=False)
class SampleMaker(Maker):
    """Makes units in one worker process: it calibrates methods and measures samples.

    `load` returns the pipeline of the process, `settings` are those of the generations, `methods` are by name, and
    `store` holds the calibrations. The plain video of the last case stays in memory, so that the next units of the case
    share it.
    """

    load: Callable[[], DiffusionPipeline]
    settings: GenerationSettings
    methods: Mapping[str, Method]
    store: Store
    _workload: Workload | None = None
    _plain: tuple[Case, GeneratedVideo, ComputeCounter] | None = None

    def prepare(self, rank: Rank) -> None:
        """Load the pipeline; if the worker has several processes, `rank` makes them compute each video together."""
        self._pipe = self.load()
        share_video(self._pipe, rank)

    def make(self, unit: Unit) -> Output:
        """The result of a unit, as `unit.data["part"]` says.

        "calibration" gives what the method's `calibrate` returns; "sample" the fields of `Sample`, with the video if it
        is to be kept; "plain" the plain video alone. Raises PermanentError for any error.
        """
        try:
            return self._make(unit.data, self.methods.get(unit.data["method"], fewer_steps.METHOD))
        except Exception as error:
            raise PermanentError(f"{type(error).__name__}: {' '.join(str(error).split())}") from error

    def _make(self, data: Mapping[str, Any], method: Method) -> Output:
        verify_files(_prompts_of(data), data.get("files", {}))
        if data["part"] == "calibration":
            assert method.calibrate is not None  # units are made for methods with `calibrate` only
            return Output(method.calibrate(self._pipe, data["prompts"], self.settings, data["seed"]))
        case = Case(**data["case"])
        if self._workload is None:  # needs a prompt of the comparison, which may name an image
            self._workload = Workload(self._pipe, self.settings, measure_parts(self._pipe, case.prompt, self.settings))
        if self._plain is None or self._plain[0] != case:
            self._plain = (case, *self._workload.run_plain(case))
        _, plain, plain_counter = self._plain
        if data["part"] == "plain":
            return Output(None, {VIDEO: encode_video(plain.frames, self.settings.fps, lossless=True)})
        calibration = data["calibration"] and self.store.read(data["calibration"])
        with warnings.catch_warnings(record=True) as caught:
            video, counter = self._workload.run(case, method, data["setting"], calibration and calibration.result)
        for warning in caught:
            # A candidate setting that reuses little is expected; the table shows it.
            if not issubclass(warning.category, FullComputeWarning | NoEffectWarning):
                _warn_once(method.name, str(warning.message))
        sample = Sample(
            compute_fraction=counter.flops / plain_counter.flops,
            denoise_seconds=video.denoise_seconds,
            end_to_end_seconds=video.end_to_end_seconds,
            plain_denoise_seconds=plain.denoise_seconds,
            plain_end_to_end_seconds=plain.end_to_end_seconds,
            psnr=psnr(video.frames, plain.frames),
            ssim=SSIM(video.frames, plain.frames),
            bytes_held=counter.bytes_held,
            energy_per_video_joules=video.joules,
            plain_energy_per_video_joules=plain.joules,
            load=video.load,
            shared=video.shared,
        )
        files = {VIDEO: encode_video(video.frames, self.settings.fps, lossless=True)} if data["keeps_video"] else {}
        return Output(asdict(sample), files)


@cache
def _warn_once(method: str, text: str) -> None:
    logger.warning("%s: %s", method, text)


class Bench:
    """Measures methods on one pipeline, and stores the results in `folder`.

    A result is identified by everything that it depends on: model, settings, method with its calibration, prompt with
    the content of its files, seed, device and package versions. The attribute `conditions` is what all results depend
    on, as JSON data.

    `settings` must name the number of steps. `methods` are all methods that are measured. `executor` runs the workers
    that make the units, by default in this process, on `pipe`. Each worker calls `load`, which returns the same
    pipeline there, by default `pipe`.
    """

    def __init__(
        self,
        pipe: DiffusionPipeline,
        settings: GenerationSettings,
        folder: Path,
        methods: Sequence[Method],
        executor: Executor | None = None,
        load: Callable[[], DiffusionPipeline] | None = None,
    ) -> None:
        if settings.steps is None:
            raise refusal("steps", None, "a whole number", "pass the number of steps")
        self.pipe, self.settings, self.steps = pipe, settings, settings.steps
        self.store = Store(folder).create(KIND, {})
        self.conditions = {
            "schema": SCHEMA,
            **conditions_of(pipe, settings),
            "dtype": dtype_of(only_transformer(pipe)),
            "device": device_name(pipe),
            "versions": {name: version(name) for name in ("torch", "diffusers", "transformers")},
        }
        self._conditions = hash_of(self.conditions)
        self._executor = executor or InProcess()
        by_name = {each.name: each for method in methods for each in (method, _as_calibrated(method))}
        self._maker = SampleMaker(load or (lambda: pipe), settings, by_name, self.store)
        self._identity = cache(self._identity_of)
        self._hash_files = cache(hash_files)

    def calibration_unit(self, method: Method, prompts: Sequence[str], seed: int) -> Unit:
        """Unit of a method's calibration on `prompts`, of which prompt i starts from the noise of `seed` + i.

        Its result is what `method.calibrate` returns. Methods share the unit if their `calibrate` is the same function
        and their `Method.identity` (what results depend on, such as a hash of code) gives the same text.
        """
        return self._unit("calibration", _as_calibrated(method), prompts=list(prompts), seed=seed)

    def sample_unit(self, method: Method, calibration: str | None, setting: Setting, case: Case, keep: bool) -> Unit:
        """Unit of a measured generation with a method at a setting; its video is stored if `keep` is True.

        `calibration` is the id of the method's calibration unit, None for a method without calibration.
        """
        details = {"setting": dict(setting), "calibration": calibration, "case": asdict(case), "keeps_video": keep}
        return self._unit("sample", method, **details)

    def plain_unit(self, case: Case) -> Unit:
        """Unit of the plain video of a case."""
        return self._unit("plain", fewer_steps.METHOD, case=asdict(case))

    def measure(self, units: Sequence[Unit], progress: Progress | None = None) -> list[Record]:
        """Records of these units in their order, each done or failed.

        Units that are done are read from the store; the others, also those that failed in an earlier run, are made.
        """
        run(units, self._maker, self.store, self._executor, progress=progress, retry_failed=True)
        return [record for unit in units if (record := self.store.read(unit.id)) is not None]

    def frames(self, unit: Unit) -> NDArray[np.uint8]:
        """Video of a unit that stores one, `(frames, height, width, 3)`; the unit is made if it is not done."""
        return load_video(self.store.local_path(self.measure([unit])[0].files[VIDEO].path))

    def _unit(self, part: str, method: Method, **details: Any) -> Unit:
        data = {"conditions": self._conditions, "part": part, "method": method.name, "identity": self._identity(method)}
        if files := {
            path: digest for prompt in _prompts_of(details) for path, digest in self._hash_files(prompt).items()
        }:
            details["files"] = files
        return Unit(f"{method.slug}-{part}", data | details, f"{hash_of(details.get('case', {}))}-{method.slug}")

    def _identity_of(self, method: Method) -> str:
        package = version(method.needs.replace("_", "-")) if method.needs else ""
        return f"{method.identity(self.pipe) if method.identity else ''} {package}"


def _prompts_of(data: Mapping[str, Any]) -> Sequence[str]:
    prompts: Sequence[str] = data["prompts"] if "prompts" in data else [data["case"]["prompt"]]
    return prompts


def _as_calibrated(method: Method) -> Method:
    """A copy with another name, the module and name of the function `method.calibrate`, such as "teacache calibrate".

    The calibration unit of a method holds this name, so methods with the same `calibrate` share one unit. A method
    without `calibrate` is returned as it is.
    """
    if (function := method.calibrate) is None:
        return method
    return replace(method, name=f"{function.__module__.rpartition('.')[2]} {function.__qualname__}")
