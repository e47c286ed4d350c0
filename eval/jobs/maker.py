"""One unit: generated, measured on the decoded arrays, written to scratch files; and put in its place at the end."""

import hashlib
import logging
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from diffusers import DiffusionPipeline
from numpy.typing import NDArray

from galaxydit.eval.jobs.durable import move_durably, write_durably
from galaxydit.eval.jobs.job import Job, Variant, baseline_of
from galaxydit.eval.jobs.methods import PlainCompute, make
from galaxydit.eval.jobs.record import (
    BASELINE,
    DONE,
    FAILED,
    MetricValue,
    Record,
    RunFolder,
    Unit,
    hash_frames,
    read_record,
    to_json,
)
from galaxydit.eval.metrics import METRICS, Metric, Score, measure
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.video import save_video

logger = logging.getLogger(__name__)

PACKAGES = ("galaxydit", "torch", "diffusers", "transformers", "numpy", "scipy", "av")


class BaselineFailedError(Exception):
    """A variant cannot be compared, because the baseline of its prompt and seed failed."""


@dataclass(frozen=True)
class Station:
    """Where work is done: device, rank in the group, host and process."""

    device: str
    rank: int
    worker: str


class Workshop:
    """A loaded model with a job, on one process."""

    def __init__(
        self,
        folder: RunFolder,
        job: Job,
        pipe: DiffusionPipeline,
        settings: GenerationSettings,
        station: Station,
        *,
        calibrations: Mapping[str, Any],
        plain: PlainCompute | None,
    ) -> None:
        self.folder = folder
        self.job = job
        self.pipe = pipe
        self.settings = settings
        self.station = station
        self._calibrations = calibrations
        self._plain = plain
        names = job.metrics if job.metrics is not None else tuple(METRICS)
        self._metrics: Sequence[Metric] = tuple(METRICS[name] for name in names)
        self._versions = {name: version(name) for name in PACKAGES}
        self._variants = {variant.name: variant for variant in job.variants}

    def make(self, unit: Unit, scratch: Path, attempts: int) -> Record:
        """The unit's video and frames in `scratch`, and its record, which is not written yet.

        Raises BaselineFailedError, and whatever a pipeline, a metric or a disk may raise.
        """
        scratch.mkdir(parents=True, exist_ok=True)
        reference = None if unit.variant == BASELINE else self._reference(unit, scratch)
        made = self._generate(unit, self._variants[unit.variant])
        frames = made.generation.frames
        measurement = measure(frames, reference, unit.prompt, self._metrics)
        video = scratch / "video.mp4"
        save_video(frames, video, self.settings.fps, lossless=self.job.lossless)
        if unit.variant == BASELINE and len(self.job.variants) > 1:
            np.savez(scratch / "frames.npz", frames=frames)
        return self._record(
            unit,
            status=DONE,
            attempts=attempts,
            video=self.folder.video(unit).relative_to(self.folder.root).as_posix(),
            video_sha256=hashlib.sha256(video.read_bytes()).hexdigest(),
            frames_sha256=hash_frames(frames),
            shape=tuple(frames.shape),
            settings=asdict(made.generation.settings),
            denoise_seconds=made.generation.denoise_seconds,
            end_to_end_seconds=made.generation.end_to_end_seconds,
            compute_fraction=made.compute_fraction,
            report=made.report,
            metrics={name: _to_value(score) for name, score in measurement.scores.items()},
            skipped=dict(measurement.skipped),
        )

    def failure(self, unit: Unit, attempts: int, traceback: str) -> Record:
        """The record of a unit that could not be made."""
        return self._record(unit, status=FAILED, attempts=attempts, traceback=traceback)

    def commit(self, unit: Unit, scratch: Path, record: Record) -> None:
        """Put video and frames in their places, then, last, the record."""
        scratch.mkdir(parents=True, exist_ok=True)
        if record.is_done:
            move_durably(scratch / "video.mp4", self.folder.video(unit))
            if (frames := scratch / "frames.npz").is_file():
                move_durably(frames, self.folder.baseline_frames(unit.id))
        write_durably(to_json(record), scratch / "record.json", self.folder.record(unit.id))
        shutil.rmtree(scratch, ignore_errors=True)

    def _generate(self, unit: Unit, variant: Variant) -> Any:
        calibration = self._calibrations.get(variant.method)
        return make(
            self.pipe, variant, unit.prompt, self.settings, unit.seed, calibration=calibration, plain=self._plain
        )

    def _reference(self, unit: Unit, scratch: Path) -> NDArray[np.float32]:
        """The baseline's decoded frames: from the file, or made again where it is gone or damaged."""
        baseline = baseline_of(unit)
        record = read_record(self.folder.record(baseline.id))
        if not record.is_done:
            raise BaselineFailedError(f"{baseline.id} failed, so there is nothing to compare with")
        path = self.folder.baseline_frames(baseline.id)
        frames = load_frames(path)
        if frames is not None and hash_frames(frames) == record.frames_sha256:
            return frames
        frames = self._generate(baseline, self._variants[BASELINE]).generation.frames
        if hash_frames(frames) != record.frames_sha256:
            logger.warning("%s came out differently the second time: this device does not repeat itself", baseline.id)
        np.savez(scratch / "baseline.npz", frames=frames)
        move_durably(scratch / "baseline.npz", path)
        return frames

    def _record(self, unit: Unit, **fields: Any) -> Record:
        variant = self._variants[unit.variant]
        return Record.of(
            unit,
            options={"method": variant.method, **variant.options},
            versions=self._versions,
            device=self.station.device,
            rank=self.station.rank,
            worker=self.station.worker,
            finished_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            **fields,
        )


def load_frames(path: Path) -> NDArray[np.float32] | None:
    """The frames in an npz file, None if it is not there or damaged."""
    try:
        with np.load(path) as file:
            return np.asarray(file["frames"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def _to_value(score: Score) -> MetricValue:
    frames = () if score.per_frame is None else tuple(float(value) for value in score.per_frame)
    return MetricValue(float(score.value), frames)
