"""Makes the videos of a job: generated, measured on the decoded arrays, and encoded."""

import logging
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import DiffusionPipeline
from numpy.typing import NDArray

from galaxydit.calibration.provenance import device_name
from galaxydit.eval.compare.compute_counter import Part, measure_parts
from galaxydit.eval.jobs.folder import bind_model
from galaxydit.eval.jobs.job import Job
from galaxydit.eval.jobs.methods import Generated, calibrate, check_on, generate_variant, is_compared
from galaxydit.eval.jobs.record import BASELINE, VIDEO, MetricValue, VideoResult, hash_frames, to_plain
from galaxydit.eval.metrics import METRICS, Metric, Score, measure
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.runs import HopelessUnitError, Maker, Output, Rank, Store, Unit
from galaxydit.pipelines.settings import GenerationSettings, recommended_settings
from galaxydit.pipelines.sharing import share_video
from galaxydit.pipelines.video import save_video

logger = logging.getLogger(__name__)

PACKAGES = ("galaxydit", "torch", "diffusers", "transformers", "numpy", "scipy", "av")
WARM_UP_STEPS = 3
CALIBRATION_SEED = 1_000_000


class VideoMaker(Maker):
    """A job with its model, on one worker. It keeps the frames of the last baseline for the variants of its group."""

    pipe: DiffusionPipeline
    settings: GenerationSettings
    device: str

    def __init__(self, job: Job, store: Store) -> None:
        self.job = job
        self.store = store
        self._variants = {variant.name: variant for variant in job.variants}
        self._baseline: tuple[str, Generated] | None = None
        self._calibrations: dict[str, Any] = {}
        self._parts: tuple[Part, ...] = ()

    def prepare(self, rank: Rank) -> None:
        """Load the model and check that it is the one that the store is bound to and that all variants suit it.

        Then make a video of a few steps, so that one-time costs, and sizes that the pipeline refuses, come before
        anything counts.
        """
        job = self.job
        dtype = None if job.dtype is None else getattr(torch, job.dtype)
        self.pipe = load_pipeline(job.model, dtype=dtype, revision=job.revision)
        self.pipe.set_progress_bar_config(disable=True)
        share_video(self.pipe, rank)
        self.device = device_name(self.pipe)
        self.settings = replace(recommended_settings(self.pipe), **job.settings)
        bind_model(self.store, self.pipe, self.settings)
        for variant in job.variants:
            check_on(self.pipe, variant)
        prompt, seed = job.prompts[0], job.seeds_of(0)[0]
        if self.settings.steps is not None:
            generate(self.pipe, prompt, replace(self.settings, steps=min(WARM_UP_STEPS, self.settings.steps)), seed)
        if any(is_compared(variant.method) for variant in job.variants):
            self._parts = measure_parts(self.pipe, prompt, self.settings, seed)

    def make(self, unit: Unit) -> Output:
        """The video of a unit, or what a method measures beforehand."""
        if "calibrates" in unit.data:
            method = unit.data["calibrates"]
            return Output(calibrate(self.pipe, method, self.job.calibration, self.settings, CALIBRATION_SEED))
        is_baseline = unit.data["variant"]["name"] == BASELINE
        baseline = None if is_baseline else self._baseline_of(unit)
        made = self._generate(unit)
        if is_baseline:
            self._baseline = unit.id, made
        frames, compute_fraction = made.generation.frames, made.compute_fraction
        if compute_fraction is None and made.flops is not None and baseline is not None and baseline.flops:
            compute_fraction = made.flops / baseline.flops
        names = self.job.metrics if self.job.metrics is not None else tuple(METRICS)
        metrics: Sequence[Metric] = tuple(METRICS[name] for name in names)
        reference = None if baseline is None else baseline.generation.frames
        measurement = measure(frames, reference, unit.data["prompt"], metrics)
        result = VideoResult(
            frames_sha256=hash_frames(frames),
            shape=tuple(frames.shape),
            settings=asdict(made.generation.settings),
            denoise_seconds=made.generation.denoise_seconds,
            end_to_end_seconds=made.generation.end_to_end_seconds,
            compute_fraction=compute_fraction,
            report=made.report,
            metrics={name: _to_value(score) for name, score in measurement.scores.items()},
            skipped=dict(measurement.skipped),
            versions={name: version(name) for name in PACKAGES},
            device=self.device,
        )
        return Output(to_plain(result), {VIDEO: self._encode(frames)})

    def _generate(self, unit: Unit) -> Generated:
        variant = self._variants[unit.data["variant"]["name"]]
        calibration = self._calibration(variant.method)
        prompt, seed = unit.data["prompt"], unit.data["seed"]
        parts = self._parts
        return generate_variant(self.pipe, variant, prompt, self.settings, seed, calibration=calibration, parts=parts)

    def _baseline_of(self, unit: Unit) -> Generated:
        """The baseline of a variant: in memory, or generated again if another process made it."""
        baseline = self.job.baseline_of(unit)
        record = self.store.read_sound(baseline.id)
        if record is not None and not record.is_done:
            raise HopelessUnitError(f"{baseline.id} failed, so there is nothing to compare with")
        if self._baseline is None or self._baseline[0] != baseline.id:
            again = self._generate(baseline)
            if record is not None and hash_frames(again.generation.frames) != record.result["frames_sha256"]:
                logger.warning("%s differed the second time: this device does not compute reproducibly", baseline.id)
            self._baseline = baseline.id, again
        return self._baseline[1]

    def _calibration(self, method: str) -> Mapping[str, Any] | None:
        """What `calibrate` measured for a method, read from the store; None for the others."""
        if method not in self._calibrations:
            record = self.store.read_sound(self.job.calibration_unit(method).id)
            self._calibrations[method] = None if record is None else record.result
        calibration: Mapping[str, Any] | None = self._calibrations[method]
        return calibration

    def _encode(self, frames: NDArray[np.float32]) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, VIDEO)
            save_video(frames, path, self.settings.fps, lossless=self.job.lossless)
            return path.read_bytes()


def _to_value(score: Score) -> MetricValue:
    frames = () if score.per_frame is None else tuple(float(value) for value in score.per_frame)
    return MetricValue(float(score.value), frames)
