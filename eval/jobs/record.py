"""The record of a unit of a job: the measurements of the video of one prompt, seed and variant.

A variant is a way to generate, the baseline the variant without acceleration (see job.py).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from galaxydit.errors import GalaxyDiTError, refusal
from galaxydit.pipelines.runs import Record
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.validation import parse

BASELINE = "baseline"
CURE = "remove it, and run again"
# Names of the files of a record.
VIDEO = "video.mp4"
THUMBNAIL = "thumbnail.jpg"
DECODER_INPUT = "decoder_input.safetensors"  # of a baseline, see decoder_input.py


@dataclass(frozen=True)
class VideoResult:
    """The measurements of one video. If its unit failed, every field has its default.

    Attributes:
        frames_sha256: SHA-256 of the decoded float frames, by `hash_frames`.
        shape: (frames, height, width, 3).
        settings: the `GenerationSettings` in force, as a mapping.
        denoise_seconds: from the first transformer call to the end of the last scheduler step.
        end_to_end_seconds: of the whole pipeline call: text encoder, denoising, decoder.
        compute_fraction: compute / compute of the baseline. Compute is the number of block evaluations for the
            plugin, `block_operations` for a method of `galaxydit compare`, and the number of steps for the method
            "fewer-steps". None for a method of `galaxydit compare` in a job without baseline.
        denoise_joules, energy_per_video_joules: of denoising and of the whole call, over all devices; None without an
            energy counter.
        avg_power_watts: of the whole call, over all devices; None without an energy counter.
        energy_note: other work on the device whose joules count too, or a failed reading; empty if none is known.
        load, shared: processes for each core and other work on the device, see `GeneratedVideo`.
        report: the plugin's report with its decision at each call, `Report.to_dict()`; None for every other method.
        metrics: values by name of the metric, in its unit; a value may be infinite, and nan where undefined.
        skipped: by name of a metric that does not suit the video, the reason.
        failures: by name of a metric, a file or another by-product that raised, the error.
        versions: versions of packages, by name.
        block_operations: floating-point operations of the transformer's blocks; None for the plugin, and in a job
            without methods of `galaxydit compare`.
    """

    __pydantic_config__ = ConfigDict(ser_json_inf_nan="strings")  # JSON has no infinities

    frames_sha256: str | None = None
    shape: tuple[int, int, int, int] | None = None
    settings: Mapping[str, Any] | None = None
    denoise_seconds: float | None = None
    end_to_end_seconds: float | None = None
    compute_fraction: float | None = None
    denoise_joules: float | None = None
    energy_per_video_joules: float | None = None
    avg_power_watts: float | None = None
    energy_note: str = ""
    load: float | None = None
    shared: bool = False
    report: Mapping[str, Any] | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    device: str = ""
    block_operations: float | None = None


@dataclass(frozen=True)
class VideoRecord(VideoResult, Record):
    """The record of a unit, with the measurements of its video as fields, and with its prompt, seed and variant.

    The field `result` is None.

    Attributes:
        sample: index of the seed among those of the prompt, from 0.
        video, thumbnail: paths of the mp4 and of a JPEG of its first frame, relative to the run's folder; None for a
            failed unit, and if `damage` is not empty.
        damage: text on the missing or damaged files of the record; empty if all are sound.
    """

    prompt: str = ""
    prompt_index: int = 0
    seed: int = 0
    sample: int = 0
    variant: str = ""
    video: str | None = None
    thumbnail: str | None = None
    video_sha256: str | None = None
    damage: str = ""

    @property
    def pair(self) -> tuple[int, int]:
        """Prompt index and seed, which a variant shares with its baseline."""
        return self.prompt_index, self.seed


def to_plain(result: VideoResult) -> Any:
    """The measurements by field, as JSON data; infinities and nan become "Infinity", "-Infinity" and "NaN"."""
    return json.loads(TypeAdapter(VideoResult).dump_json(result))


def _check_nested(result: VideoResult, place: str) -> None:
    """Raise GalaxyDiTError, with `place` in its text, if the settings or the report's calls have wrong fields."""
    if result.settings is not None:
        parse(GenerationSettings, dict(result.settings), f"{place}.settings", CURE)
    if result.report is not None:
        calls = result.report.get("calls")
        names = {"step", "reused"}
        if not isinstance(calls, list) or not all(isinstance(call, dict) and names <= call.keys() for call in calls):
            raise GalaxyDiTError(f"{place}.report.calls is no list of calls with step and reused; {CURE}")


def video_record(record: Record, damage: str = "") -> VideoRecord:
    """The record with its result parsed and checked.

    `damage` is a text on damaged files of the record, "" without damage (`Store.survey` yields it). It is kept in the
    field `damage`, and unless it is empty, the fields `video` and `thumbnail` are None; the status does not change.

    Raises GalaxyDiTError if a field of the result is wrong.
    """
    place = f"the record of {record.unit} is damaged: result"
    fields = dict(record.result or {})
    report = fields.pop("report", None)  # nine tenths of a record, so that parsing it would take most of the time
    if not isinstance(report, Mapping | None):
        raise refusal(f"{place}.report", report, "a valid dictionary", CURE)
    result = replace(parse(VideoResult, fields, place, CURE), report=report)
    _check_nested(result, place)
    file, thumbnail = record.files.get(VIDEO), record.files.get(THUMBNAIL)
    return VideoRecord(
        **vars(record) | {"result": None} | vars(result),
        **{name: record.data[name] for name in ("prompt", "prompt_index", "seed", "sample")},
        variant=record.data["variant"]["name"],
        video=None if file is None or damage else file.path,
        thumbnail=None if thumbnail is None or damage else thumbnail.path,
        video_sha256=None if file is None else file.sha256,
        damage=damage,
    )
