"""Makes the videos of a job: generated, measured on the decoded arrays, and encoded."""

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from diffusers import DiffusionPipeline

import galaxydit
from galaxydit.calibration.provenance import device_name, package_versions
from galaxydit.errors import GalaxyDiTError, refusal
from galaxydit.eval.compare.bench import Workload
from galaxydit.eval.compare.compute_counter import measure_parts
from galaxydit.eval.compare.plan import Case
from galaxydit.eval.jobs.job import FEWER_STEPS, OWN, PLUGIN, Job, Variant, compared_methods
from galaxydit.eval.jobs.jobfile import named
from galaxydit.eval.jobs.record import BASELINE, VIDEO, VideoResult, to_plain
from galaxydit.eval.metrics import METRICS, measure
from galaxydit.pipelines.conditions import conditions_of
from galaxydit.pipelines.generate import GeneratedVideo, generate
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.published_models import recommended_settings
from galaxydit.pipelines.runs import HopelessUnitError, Maker, Output, Rank, Store, Unit
from galaxydit.pipelines.sharing import share_video
from galaxydit.pipelines.video import encode_video, hash_frames

logger = logging.getLogger(__name__)

WARM_UP_STEPS = 3
CALIBRATION_SEED = 1_000_000


@dataclass(frozen=True)
class Generated:
    """A video and its compute. If `compute_fraction` is None, it follows from `flops`, counted in the blocks."""

    video: GeneratedVideo
    compute_fraction: float | None = None
    flops: float = 0.0
    report: Mapping[str, Any] | None = None


@dataclass(eq=False)
class VideoMaker(Maker):
    """A job with its model, on one worker. It keeps the frames of the last baseline for the variants of its group."""

    job: Job
    store: Store
    _baseline: tuple[str, Generated] | None = None

    def prepare(self, rank: Rank) -> None:
        """Load the model, and check that the store is bound to it and that all variants suit it.

        A warm-up video of at most 3 steps takes the one-time costs, and fails early for a size that cannot be made.
        """
        job = self.job
        dtype = None if job.dtype is None else getattr(torch, job.dtype)
        pipe = load_pipeline(job.model, dtype=dtype, revision=job.revision, offload=job.offload)
        pipe.set_progress_bar_config(disable=True)
        share_video(pipe, rank)
        settings = replace(recommended_settings(pipe), **job.settings)
        self.store.bind("model", conditions_of(pipe, settings))
        for variant in job.variants:
            with named(f"variants.{variant.name}: "):
                self._check(variant, pipe, settings.steps)
        prompt, seed = job.prompts[0], job.seeds_of(0)[0]
        if settings.steps is not None:
            generate(pipe, prompt, replace(settings, steps=min(WARM_UP_STEPS, settings.steps)), seed)
        elif any(variant.method == FEWER_STEPS for variant in job.variants):
            raise GalaxyDiTError("steps is missing: expected a whole number from 1; set steps in the job file")
        counts = any(variant.method not in (BASELINE, *OWN) for variant in job.variants)
        self.workload = Workload(pipe, settings, measure_parts(pipe, prompt, settings, seed) if counts else ())

    def _check(self, variant: Variant, pipe: DiffusionPipeline, steps: int | None) -> None:
        """Attach a variant once, so that a setting that does not suit the model is refused before anything counts."""
        if variant.method == PLUGIN:
            galaxydit.accelerate(pipe, **variant.options).remove()
        elif variant.method not in (BASELINE, FEWER_STEPS):
            method, given = compared_methods()[variant.method], variant.options
            count = "of" if "of" in given else "steps"  # the number of steps that a setting refers to
            if given.get(count, steps) != steps:
                raise refusal(count, given[count], f"{steps}, the steps of the job", f"pass {count} = {steps}")
            if method.calibrate is None:
                with method.attach(pipe, given, None):
                    pass

    def make(self, unit: Unit) -> Output:
        """The video of a unit, or what a method measures beforehand."""
        if "calibrates" in unit.data:
            calibrate = compared_methods()[unit.data["calibrates"]].calibrate
            assert calibrate is not None  # it is not asked for
            return Output(calibrate(self.workload.pipe, self.job.calibration, self.workload.settings, CALIBRATION_SEED))
        baseline = None if unit.data["variant"]["name"] == BASELINE else self._baseline_of(unit)
        made = self._generate(unit)
        if baseline is None:
            self._baseline = unit.id, made
        compute_fraction, video = made.compute_fraction, made.video
        if compute_fraction is None and baseline is not None and baseline.flops:
            compute_fraction = made.flops / baseline.flops
        metrics = [METRICS[name] for name in self.job.metrics or METRICS]
        reference = None if baseline is None else baseline.video.frames
        values, skipped = measure(video.frames, reference, unit.data["prompt"], metrics)
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
            energy_note="" if video.energy is None else video.energy.shared,
            report=made.report,
            metrics=values,
            skipped=skipped,
            versions=package_versions(),
            device=device_name(self.workload.pipe),
        )
        content = encode_video(video.frames, self.workload.settings.fps, lossless=self.job.video == "lossless")
        return Output(to_plain(result), {VIDEO: content})

    def _generate(self, unit: Unit) -> Generated:
        variant, case = Variant(**unit.data["variant"]), Case(unit.data["prompt"], unit.data["seed"])
        pipe, settings = self.workload.pipe, self.workload.settings
        if variant.method == PLUGIN:
            with galaxydit.accelerate(pipe, **variant.options) as acceleration:
                video = generate(pipe, case.prompt, settings, case.seed)
            return Generated(video, acceleration.report.compute_fraction, report=acceleration.report.to_dict())
        if variant.method == BASELINE:
            video, counter = self.workload.run_plain(case)
            return Generated(video, 1.0, counter.flops)
        calibration = self.store.read_sound(self.job.calibration_unit(variant.method).id)
        method = compared_methods()[variant.method]
        video, counter = self.workload.run(case, method, variant.options, calibration and calibration.result)
        share = variant.options["steps"] / settings.steps if variant.method == FEWER_STEPS and settings.steps else None
        return Generated(video, share, counter.flops)

    def _baseline_of(self, unit: Unit) -> Generated:
        """The baseline of a variant: in memory, or generated again if another process made it."""
        baseline = self.job.baseline_of(unit)
        record = self.store.read_sound(baseline.id)
        if record is not None and not record.is_done:
            raise HopelessUnitError(f"{baseline.id} failed, so there is nothing to compare with")
        if self._baseline is None or self._baseline[0] != baseline.id:
            again = self._generate(baseline)
            if record is not None and hash_frames(again.video.frames) != record.result["frames_sha256"]:
                logger.warning("%s differed the second time: this device does not compute reproducibly", baseline.id)
            self._baseline = baseline.id, again
        return self._baseline[1]
