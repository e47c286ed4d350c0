"""Make the videos of a job: generate them, measure the decoded frames, encode them."""

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from diffusers import DiffusionPipeline
from numpy.typing import NDArray
from safetensors import SafetensorError

import galaxydit
from galaxydit.calibration.provenance import device_name, package_versions
from galaxydit.errors import GalaxyDiTError, noted, refusal
from galaxydit.eval.compare.bench import Workload
from galaxydit.eval.compare.compute_counter import measure_parts
from galaxydit.eval.compare.plan import Case
from galaxydit.eval.jobs.decoder_input import decode_frames, from_bytes, recording, to_bytes
from galaxydit.eval.jobs.job import FEWER_STEPS, OWN, PLUGIN, Job, Variant, compared_methods
from galaxydit.eval.jobs.jobfile import named
from galaxydit.eval.jobs.record import BASELINE, DECODER_INPUT, THUMBNAIL, VIDEO, VideoResult, to_plain
from galaxydit.eval.jobs.run_job import read_hashes
from galaxydit.eval.jobs.thumbnail import encode_thumbnail
from galaxydit.eval.metrics import METRICS, measure
from galaxydit.pipelines.conditions import conditions_of
from galaxydit.pipelines.generate import GeneratedVideo, generate
from galaxydit.pipelines.inputs import verify_files
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.published_models import recommended_settings
from galaxydit.pipelines.runs import Maker, Output, PermanentError, Rank, Record, Store, Unit
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.sharing import share_video
from galaxydit.pipelines.video import encode_video, hash_frames

logger = logging.getLogger(__name__)

WARM_UP_STEPS = 3
CALIBRATION_SEED = 1_000_000


@dataclass(frozen=True)
class Generated:
    """A video and how much compute it took."""

    video: GeneratedVideo
    compute_fraction: float | None = None  # None if it follows from `operations`
    operations: float = 0.0  # of the transformer's blocks; 0 if not counted
    report: Mapping[str, Any] | None = None  # of the plugin
    failures: dict[str, str] = field(default_factory=dict)  # error by by-product


@dataclass(frozen=True, eq=False)
class Baseline:
    """The plain video of one prompt and seed, with which variants are compared."""

    unit: str  # id
    frames: NDArray[np.float32]
    operations: float  # 0 if not counted


@dataclass(eq=False)
class VideoMaker(Maker):
    """Makes units of a job on one worker; the last baseline stays in memory for its variants."""

    job: Job
    store: Store
    _baseline: Baseline | None = None
    _can_decode_again: bool = False

    def prepare(self, rank: Rank) -> None:
        """Load the model, and make a warm-up video of at most 3 steps.

        It takes one-time costs, fails early, and shows whether decoding again gives equal bits. Raises GalaxyDiTError
        for a store of another model and unsuitable variants.
        """
        job = self.job
        pipe, settings = load(job)
        share_video(pipe, rank)
        self.store.bind("model", conditions_of(pipe, settings))
        for variant in job.variants:
            with named(f"variants.{variant.name}: "):
                self._check(variant, pipe, settings.steps)
        prompt, seed = job.prompts[0], job.seeds_of(0)[0]
        if settings.steps is not None:
            with recording(pipe) as inputs:
                video = generate(pipe, prompt, replace(settings, steps=min(WARM_UP_STEPS, settings.steps)), seed)
            # The ranks of a shared video have to take the same path, also if a hash differs on one of them.
            if job.baseline and rank.size == 1 and len(inputs) == 1:
                self._can_decode_again = _decodes_to(pipe, inputs[0], hash_frames(video.frames)) is not None
        elif any(variant.method == FEWER_STEPS for variant in job.variants):
            raise GalaxyDiTError("steps is missing: expected a whole number from 1; set steps in the job file")
        counts = any(variant.method not in (BASELINE, *OWN) for variant in job.variants)
        self.workload = Workload(pipe, settings, measure_parts(pipe, prompt, settings, seed) if counts else ())

    def _check(self, variant: Variant, pipe: DiffusionPipeline, steps: int | None) -> None:
        """Raise GalaxyDiTError if a variant does not suit the model or the number of steps."""
        if variant.method == PLUGIN:
            galaxydit.accelerate(pipe, **variant.options).remove()
        elif variant.method not in (BASELINE, FEWER_STEPS):
            method, given = compared_methods()[variant.method], variant.options
            count = "of" if "of" in given else "steps"  # the setting that has to be the job's number of steps
            if given.get(count, steps) != steps:
                raise refusal(count, given[count], f"{steps}, the steps of the job", f"pass {count} = {steps}")
            if method.calibrate is None:
                with method.attach(pipe, given, None):
                    pass

    def make(self, unit: Unit) -> Output:
        """Measurements and files of a video, or a method's calibration."""
        verify_files(unit.data.get("prompts") or [unit.data["prompt"]], read_hashes(self.store))
        if "calibrates" in unit.data:
            calibrate = compared_methods()[unit.data["calibrates"]].calibrate
            assert calibrate is not None  # such a unit exists only for methods that calibrate
            return Output(calibrate(self.workload.pipe, self.job.calibration, self.workload.settings, CALIBRATION_SEED))
        is_baseline = unit.data["variant"]["name"] == BASELINE
        baseline = self._baseline_of(unit) if self.job.baseline and not is_baseline else None
        keeps_input = is_baseline and self._can_decode_again
        watching: AbstractContextManager[list[torch.Tensor]]
        watching = recording(self.workload.pipe) if keeps_input else nullcontext([])
        with watching as inputs:
            made = self._generate(unit)
        video, compute_fraction, failures = made.video, made.compute_fraction, dict(made.failures)
        if compute_fraction is None and baseline is not None and baseline.operations:
            compute_fraction = made.operations / baseline.operations
        fps = self.workload.settings.fps
        is_lossless = self.job.video == "lossless"
        files = {VIDEO: encode_video(video.frames, fps, lossless=is_lossless, sound=video.sound)}
        with noted(failures, THUMBNAIL):
            files[THUMBNAIL] = encode_thumbnail(video.frames[0])
        if is_baseline:
            self._baseline = Baseline(unit.id, video.frames, made.operations)
        if keeps_input:
            with noted(failures, DECODER_INPUT):
                files[DECODER_INPUT] = to_bytes(inputs[0])
        metrics = [METRICS[name] for name in (METRICS if self.job.metrics is None else self.job.metrics)]
        if not self.job.baseline:
            metrics = [metric for metric in metrics if not metric.needs_reference]
        reference = None if baseline is None else baseline.frames
        values, skipped, raised = measure(video.frames, reference, unit.data["prompt"], metrics)
        versions: dict[str, str] = {}
        with noted(failures, "versions"):
            versions = package_versions()
        device = ""
        with noted(failures, "device"):
            device = device_name(self.workload.pipe)
        result = VideoResult(
            frames_sha256=hash_frames(video.frames),
            shape=tuple(video.frames.shape),
            settings=asdict(video.settings),
            denoise_seconds=video.denoise_seconds,
            end_to_end_seconds=video.end_to_end_seconds,
            compute_fraction=compute_fraction,
            denoise_joules=video.denoise_joules,
            energy_per_video_joules=video.joules,
            avg_power_watts=video.watts,
            energy_note="" if video.energy is None else video.energy.note,
            load=video.load,
            shared=video.shared,
            report=made.report,
            metrics=values,
            skipped=skipped,
            failures=failures | raised,
            versions=versions,
            device=device,
            block_operations=made.operations or None,
        )
        return Output(to_plain(result), files)

    def _generate(self, unit: Unit) -> Generated:
        variant, case = Variant(**unit.data["variant"]), Case(unit.data["prompt"], unit.data["seed"])
        pipe, settings = self.workload.pipe, self.workload.settings
        if variant.method == PLUGIN:
            with galaxydit.accelerate(pipe, **variant.options) as acceleration:
                video = generate(pipe, case.prompt, settings, case.seed)
            report: dict[str, Any] = {}
            failures: dict[str, str] = {}
            with noted(failures, "report"):
                report = acceleration.report.to_dict()
            return Generated(video, report.get("compute_fraction"), report=report or None, failures=failures)
        if variant.method == BASELINE:
            video, counter = self.workload.run_plain(case)
            return Generated(video, 1.0, counter.flops)
        calibration = self.store.read_sound(self.job.calibration_unit(variant.method).id)
        method = compared_methods()[variant.method]
        video, counter = self.workload.run(case, method, variant.options, calibration and calibration.result)
        share = variant.options["steps"] / settings.steps if variant.method == FEWER_STEPS and settings.steps else None
        return Generated(video, share, counter.flops)

    def _baseline_of(self, unit: Unit) -> Baseline:
        """The unit's baseline: from memory, decoded, or generated again. Raises PermanentError if it failed."""
        baseline = self.job.baseline_of(unit)
        record = self.store.read_sound(baseline.id)
        if record is not None and not record.is_done:
            raise PermanentError(f"{baseline.id} failed, so there is nothing to compare with")
        if self._baseline is None or self._baseline.unit != baseline.id:
            restored = None if record is None else self._restore(record)
            self._baseline = restored or self._generate_again(baseline, record)
        return self._baseline

    def _restore(self, record: Record) -> Baseline | None:
        """The baseline, decoded from its record; None if that is missing or gives other frames."""
        operations, file = record.result.get("block_operations"), record.files.get(DECODER_INPUT)
        if not self._can_decode_again or file is None or (self.workload.parts and not operations):
            return None
        try:
            latents = from_bytes(self.store.local_path(file.path).read_bytes())
        except (OSError, SafetensorError, KeyError) as error:
            logger.warning("%s cannot be read (%s), so the baseline is generated again", file.path, error)
            return None
        frames = _decodes_to(self.workload.pipe, latents, record.result["frames_sha256"])
        return None if frames is None else Baseline(record.unit, frames, operations or 0.0)

    def _generate_again(self, unit: Unit, record: Record | None) -> Baseline:
        made = self._generate(unit)
        if record is not None and hash_frames(made.video.frames) != record.result["frames_sha256"]:
            logger.warning("%s differed the second time: this device does not compute reproducibly", unit.id)
        return Baseline(unit.id, made.video.frames, made.operations)


def load(job: Job) -> tuple[DiffusionPipeline, GenerationSettings]:
    """The pipeline of a job, and its settings, recommended where the job sets none."""
    dtype = None if job.dtype is None else getattr(torch, job.dtype)
    pipe = load_pipeline(job.model, dtype=dtype, revision=job.revision, offload=job.offload)
    pipe.set_progress_bar_config(disable=True)
    return pipe, replace(recommended_settings(pipe), **job.settings)


def _decodes_to(pipe: DiffusionPipeline, latents: torch.Tensor, frames_sha256: str) -> NDArray[np.float32] | None:
    """The frames of these latents; None if they cannot be decoded, or have another hash."""
    try:
        frames = decode_frames(pipe, latents)
    except (AttributeError, TypeError, ValueError, RuntimeError):  # the pipeline decodes in another way
        return None
    return frames if hash_frames(frames) == frames_sha256 else None
