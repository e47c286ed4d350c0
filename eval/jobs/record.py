"""The video of one unit as its record tells it."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, TypeAdapter, ValidationError

from galaxydit.errors import GalaxyDiTError
from galaxydit.pipelines.runs import Record
from galaxydit.pipelines.runs.record import first_error

BASELINE = "baseline"
VARIANT_NAME = re.compile(r"[a-z0-9][a-z0-9._+-]{0,39}")
VIDEO = "video.mp4"  # name of the file among those of a record


@dataclass(frozen=True)
class MetricValue:
    """One metric of one video, in its own unit: over the whole video, and frame by frame (empty where a metric has no
    value for single frames). Infinite where a metric is, such as the PSNR of equal frames; nan where it is undefined.
    """

    video: float
    frames: tuple[float, ...] = ()


@dataclass(frozen=True)
class VideoResult:
    """What making a video gives.

    Attributes:
        frames_sha256: of the decoded float frames, as `hash_frames` takes it.
        shape: (frames, height, width, 3) of the video.
        settings: the `GenerationSettings` in force, as a mapping.
        denoise_seconds, end_to_end_seconds: as `galaxydit.pipelines.generate` measures them.
        compute_fraction: block evaluations done / those of the baseline, counted.
        report: `Report.to_dict()` of the plugin, None for every other method.
        metrics: by name.
        skipped: why metrics have no value here, by name, such as those that compare on the baseline itself.
        versions: of the libraries.
        device: such as "NVIDIA H200" or "cpu x86_64".
    """

    __pydantic_config__ = ConfigDict(ser_json_inf_nan="strings")  # JSON has no infinities

    frames_sha256: str | None = None
    shape: tuple[int, ...] | None = None
    settings: Mapping[str, Any] | None = None
    denoise_seconds: float | None = None
    end_to_end_seconds: float | None = None
    compute_fraction: float | None = None
    report: Mapping[str, Any] | None = None
    metrics: Mapping[str, MetricValue] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    device: str = ""


@dataclass(frozen=True)
class VideoRecord(VideoResult):
    """What became of one unit. The fields of the result are empty where it failed.

    Attributes:
        unit: the unit's id.
        sample: which of the prompt's seeds, from 0.
        options: the variant's method and its options.
        status: "done" or "failed".
        attempts: how often it was begun by the process that finished it, from 1.
        traceback: of the last attempt, of a failed unit only.
        video: path of the mp4 below the run's folder, None where there is none or it is damaged.
        damage: what is wrong with the video's file, else empty.
        video_sha256: of that file.
        worker: host and process, such as "node7:4711".
        finished_at: UTC, ISO 8601.
    """

    unit: str = ""
    prompt: str = ""
    prompt_index: int = 0
    seed: int = 0
    sample: int = 0
    variant: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    status: str = ""
    attempts: int = 0
    traceback: str | None = None
    video: str | None = None
    damage: str = ""
    video_sha256: str | None = None
    worker: str = ""
    finished_at: str = ""

    @property
    def is_done(self) -> bool:
        """Whether there is a result."""
        return self.status == "done"

    @property
    def pair(self) -> tuple[int, int]:
        """What a variant shares with its baseline: prompt index and seed."""
        return self.prompt_index, self.seed


_RESULT = TypeAdapter(VideoResult)


def to_plain(result: VideoResult) -> Any:
    """The result ready for JSON."""
    return json.loads(_RESULT.dump_json(result))


def video_record(record: Record, damage: str = "") -> VideoRecord:
    """What a record tells of its video. Raises GalaxyDiTError if a field of the result is missing or wrong."""
    try:
        result = _RESULT.validate_python(record.result or {})
    except ValidationError as error:
        wrong = first_error(error, "result")
        raise GalaxyDiTError(f"the record of {record.unit} is damaged: {wrong}; remove it, and run again") from error
    data, file = record.data, record.files.get(VIDEO)
    return VideoRecord(
        **{name: getattr(result, name) for name in VideoResult.__dataclass_fields__},
        unit=record.unit,
        **{name: data[name] for name in ("prompt", "prompt_index", "seed", "sample")},
        variant=data["variant"]["name"],
        options={"method": data["variant"]["method"], **data["variant"]["options"]},
        status=record.status,
        attempts=record.attempts,
        traceback=record.traceback,
        video=None if file is None or damage else file.path,
        damage=damage,
        video_sha256=None if file is None else file.sha256,
        worker=record.worker,
        finished_at=record.finished_at,
    )


def hash_frames(frames: NDArray[np.float32]) -> str:
    """SHA-256 of decoded frames `(frames, height, width, 3)`: of their shape and their float32 values, bit for bit."""
    digest = hashlib.sha256(repr(tuple(frames.shape)).encode())
    digest.update(np.ascontiguousarray(frames, dtype="<f4").data)
    return digest.hexdigest()
