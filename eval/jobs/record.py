"""The folder of a run and the record of one unit, as they lie on disk.

    runs/x/
      job.toml                        copy of the job file
      job.json                        the job as understood, with its hash
      model.json                      which weights, settings and dtype the first process loaded
      units/<unit id>.json            one record each; a unit is done exactly when this file is there
      videos/<variant>/<unit id>.mp4
      frames/<unit id>.npz            decoded float frames of a baseline, as long as variants need them
      calibrations/<method>.json      what methods of the arena measured beforehand
      claims/<unit id>.<generation>   who works on what; each take-over of a lost unit is one more generation
      scratch/                        what is half-written; nothing in it counts

A unit is one prompt, one seed, one variant.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from galaxydit.errors import GalaxyDiTError
from galaxydit.validation import parse

VERSION = 1
BASELINE = "baseline"
DONE, FAILED = "done", "failed"
VARIANT_NAME = re.compile(r"[a-z0-9][a-z0-9._+-]{0,39}")
CURE = "remove the file, and `galaxydit eval run` makes the unit again"


@dataclass(frozen=True)
class Unit:
    """One video to make: `sample` counts the seeds of a prompt from 0."""

    prompt_index: int
    prompt: str
    seed: int
    sample: int
    variant: str

    @property
    def id(self) -> str:
        """Safe as a file name, whatever the prompt is; in the order of prompts when sorted."""
        digest = hashlib.sha256(self.prompt.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        return f"{self.prompt_index:05d}-{digest}-s{self.seed}-{self.variant}"

    @property
    def pair(self) -> tuple[int, int]:
        """What a variant shares with its baseline: prompt index and seed."""
        return self.prompt_index, self.seed


@dataclass(frozen=True)
class MetricValue:
    """One metric of one video, in its own unit: over the whole video, and frame by frame (empty where a metric has no
    value for single frames). Infinite where a metric is, such as the PSNR of equal frames; nan where it is undefined.
    """

    video: float
    frames: tuple[float, ...] = ()


@dataclass(frozen=True)
class Record:
    """What became of one unit. The fields that are None belong to a failed unit.

    Attributes:
        version: of this format.
        unit: the unit's id, also the file's name.
        sample: which of the prompt's seeds, from 0.
        status: "done" or "failed".
        attempts: how often it was begun by the process that finished it, from 1.
        traceback: of the last attempt, of a failed unit only.
        video: path of the mp4, relative to the run's folder.
        video_sha256: of that file.
        frames_sha256: of the decoded float frames, as `hash_frames` takes it.
        shape: (frames, height, width, 3) of the video.
        settings: the `GenerationSettings` in force, as a mapping.
        options: the variant's method and its options.
        denoise_seconds, end_to_end_seconds: as `galaxydit.pipelines.generate` measures them.
        compute_fraction: block evaluations done / those of the baseline, counted.
        report: `Report.to_dict()` of the plugin, None for every other method.
        metrics: by name.
        skipped: why metrics have no value here, by name, such as those that compare on the baseline itself.
        versions: of the libraries.
        device: such as "NVIDIA H200" or "cpu x86_64".
        rank: of the process in its group, from 0.
        worker: host and process, such as "node7:4711".
        finished_at: UTC, ISO 8601.
    """

    version: int
    unit: str
    prompt: str
    prompt_index: int
    seed: int
    sample: int
    variant: str
    status: str
    attempts: int
    traceback: str | None
    video: str | None
    video_sha256: str | None
    frames_sha256: str | None
    shape: tuple[int, ...] | None
    settings: Mapping[str, Any] | None
    options: Mapping[str, Any]
    denoise_seconds: float | None
    end_to_end_seconds: float | None
    compute_fraction: float | None
    report: Mapping[str, Any] | None
    metrics: Mapping[str, MetricValue]
    skipped: Mapping[str, str]
    versions: Mapping[str, str]
    device: str
    rank: int
    worker: str
    finished_at: str

    def __post_init__(self) -> None:
        if self.status not in (DONE, FAILED):
            raise GalaxyDiTError(f"status={self.status!r}, allowed are {DONE!r} and {FAILED!r}; {CURE}")
        needed = NEEDED if self.status == DONE else ("traceback",)
        missing = [name for name in needed if getattr(self, name) is None]
        if missing:
            raise GalaxyDiTError(f"status={self.status!r} and {', '.join(missing)} null; {CURE}")

    @classmethod
    def of(cls, unit: Unit, **fields: Any) -> "Record":
        """The record of a unit: `fields` are those that the unit itself does not tell; what a failed unit lacks may be
        left out.
        """
        empty: dict[str, Any] = dict.fromkeys(("traceback", "report", *NEEDED))
        return cls(
            version=VERSION,
            unit=unit.id,
            prompt=unit.prompt,
            prompt_index=unit.prompt_index,
            seed=unit.seed,
            sample=unit.sample,
            variant=unit.variant,
            **(empty | {"metrics": {}, "skipped": {}} | fields),
        )

    @property
    def is_done(self) -> bool:
        """Whether there is a video."""
        return self.status == DONE

    @property
    def pair(self) -> tuple[int, int]:
        """What a variant shares with its baseline: prompt index and seed."""
        return self.prompt_index, self.seed


NEEDED = (
    "video",
    "video_sha256",
    "frames_sha256",
    "shape",
    "settings",
    "denoise_seconds",
    "end_to_end_seconds",
    "compute_fraction",
)


class RunFolder:
    """Where everything of one run lies."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self.job_copy = self.root / "job.toml"
        self.job = self.root / "job.json"
        self.model = self.root / "model.json"
        self.units = self.root / "units"
        self.videos = self.root / "videos"
        self.frames = self.root / "frames"
        self.calibrations = self.root / "calibrations"
        self.claims = self.root / "claims"
        self.scratch = self.root / "scratch"

    def record(self, unit_id: str) -> Path:
        """The file that says what became of a unit."""
        return self.units / f"{unit_id}.json"

    def video(self, unit: Unit) -> Path:
        """The unit's mp4."""
        return self.videos / unit.variant / f"{unit.id}.mp4"

    def baseline_frames(self, unit_id: str) -> Path:
        """The decoded frames of a baseline unit."""
        return self.frames / f"{unit_id}.npz"

    def finished(self) -> set[str]:
        """The ids of all units that have a record."""
        if not self.units.is_dir():
            return set()
        return {path.stem for path in self.units.iterdir() if path.suffix == ".json"}

    def check(self) -> None:
        """Raise GalaxyDiTError if no run was ever begun here."""
        if not self.job.is_file():
            raise GalaxyDiTError(
                f"{self.root} holds no job.json, so it is no run; pass the --out of a `galaxydit eval run`"
            )

    def records(self) -> list[Record]:
        """All records, in the order of prompts. Raises GalaxyDiTError for a folder without a run and for a damaged
        record.
        """
        self.check()
        return [read_record(self.record(unit_id)) for unit_id in sorted(self.finished())]


def read_record(path: Path) -> Record:
    """One record. Raises GalaxyDiTError if the file is damaged, of another version, or not under its own name."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise GalaxyDiTError(f"{path} is damaged ({error}); {CURE}") from error
    if not isinstance(data, dict):
        raise GalaxyDiTError(f"{path} holds {type(data).__name__}, allowed is an object; {CURE}")
    if data.get("version") != VERSION:
        raise GalaxyDiTError(
            f"{path}: version={data.get('version')!r}, allowed is {VERSION}; read it with the galaxydit that wrote it"
        )
    try:
        data["metrics"] = {name: _decode_metric(value) for name, value in data["metrics"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise GalaxyDiTError(f"{path}: metrics={str(data.get('metrics'))[:80]} cannot be read; {CURE}") from error
    metrics = data.pop("metrics")
    record: Record = parse(Record, data | {"metrics": {}}, str(path), CURE)
    object.__setattr__(record, "metrics", metrics)
    if record.unit != path.stem:
        raise GalaxyDiTError(f"{path}: unit={record.unit!r}, allowed is the file's own name; {CURE}")
    return record


def to_json(record: Record) -> str:
    """The text that `read_record` reads. JSON has no infinity, so a metric that has one is written as text."""
    data = asdict(record)
    data["metrics"] = {
        name: {"video": _encode_number(value.video), "frames": [_encode_number(number) for number in value.frames]}
        for name, value in record.metrics.items()
    }
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def hash_frames(frames: NDArray[np.float32]) -> str:
    """SHA-256 of decoded frames `(frames, height, width, 3)`: of their shape and their float32 values, bit for bit."""
    digest = hashlib.sha256(repr(tuple(frames.shape)).encode())
    digest.update(np.ascontiguousarray(frames, dtype="<f4").data)
    return digest.hexdigest()


def _encode_number(value: float) -> float | str:
    return float(value) if math.isfinite(value) else str(float(value))


def _decode_metric(value: Mapping[str, Any]) -> MetricValue:
    frames: Sequence[float | str] = value["frames"]
    if isinstance(frames, str):
        raise TypeError("frames is text")
    return MetricValue(float(value["video"]), tuple(float(number) for number in frames))
