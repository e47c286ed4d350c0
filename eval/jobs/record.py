"""The video of one unit as its record tells it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from galaxydit.pipelines.runs import Record
from galaxydit.validation import parse

BASELINE = "baseline"
VIDEO = "video.mp4"  # name of the file among those of a record


@dataclass(frozen=True)
class VideoResult:
    """The measurements of one video; every field keeps its default for a failed unit.

    Attributes:
        frames_sha256: of the decoded float frames, by `hash_frames`.
        shape: (frames, height, width, 3).
        settings: the `GenerationSettings` in force, as a mapping.
        denoise_seconds, end_to_end_seconds: as `galaxydit.pipelines.generate` measures them.
        compute_fraction: block evaluations done / those of the baseline, counted.
        denoise_joules, energy_per_video_joules: of denoising and of the whole call, over all devices.
        avg_power_watts: of the whole call, over all devices.
        energy_note: what else ran on the device and counts too; empty if nothing is known.
        report: `Report.to_dict()` of the plugin, None for every other method.
        metrics: values by name, each in its own unit: infinite where a metric is, nan where it is undefined.
        skipped: why metrics have no value here, by name.
    """

    __pydantic_config__ = ConfigDict(ser_json_inf_nan="strings")  # JSON has no infinities

    frames_sha256: str | None = None
    shape: tuple[int, ...] | None = None
    settings: Mapping[str, Any] | None = None
    denoise_seconds: float | None = None
    end_to_end_seconds: float | None = None
    compute_fraction: float | None = None
    denoise_joules: float | None = None
    energy_per_video_joules: float | None = None
    avg_power_watts: float | None = None
    energy_note: str = ""
    report: Mapping[str, Any] | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    device: str = ""


@dataclass(frozen=True)
class VideoRecord(VideoResult, Record):
    """A record with its result and with what tells its unit from others.

    Attributes:
        sample: which of the prompt's seeds, from 0.
        video: path of the mp4 below the run's folder, None where there is none or it is damaged.
        damage: what is wrong with the video's file, else empty.
    """

    prompt: str = ""
    prompt_index: int = 0
    seed: int = 0
    sample: int = 0
    variant: str = ""
    video: str | None = None
    video_sha256: str | None = None
    damage: str = ""

    @property
    def pair(self) -> tuple[int, int]:
        """What a variant shares with its baseline: prompt index and seed."""
        return self.prompt_index, self.seed


def to_plain(result: VideoResult) -> Any:
    """The result ready for JSON."""
    return json.loads(TypeAdapter(VideoResult).dump_json(result))


def video_record(record: Record, damage: str = "") -> VideoRecord:
    """What a record tells of its video. Raises GalaxyDiTError if a field of the result is missing or wrong."""
    place = f"the record of {record.unit} is damaged: result"
    result = parse(VideoResult, record.result or {}, place, "remove it, and run again")
    file = record.files.get(VIDEO)
    return VideoRecord(
        **vars(record) | {"result": None} | vars(result),
        **{name: record.data[name] for name in ("prompt", "prompt_index", "seed", "sample")},
        variant=record.data["variant"]["name"],
        video=None if file is None or damage else file.path,
        video_sha256=None if file is None else file.sha256,
        damage=damage,
    )
