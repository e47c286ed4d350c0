"""The record of a unit of a job: the measurements of the video of one prompt, seed and variant."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from galaxydit.errors import GalaxyDiTError, refusal
from galaxydit.pipelines.runs import Record
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.trial_result import TrialResult
from galaxydit.validation import parse

BASELINE = "baseline"
CURE = "remove it, and run again"
# Names of the files of a record.
VIDEO = "video.mp4"
THUMBNAIL = "thumbnail.jpg"
SOUND = "sound.flac"  # lossless; the sound in the video is AAC, for players
SPECTROGRAM = "spectrogram.png"
DECODER_INPUT = "decoder_input.safetensors"  # of a baseline, see decoder_input.py


@dataclass(frozen=True)
class VideoRecord(TrialResult, Record):
    """A record with the measurements as fields in place of `result`."""

    prompt: str = ""
    prompt_index: int = 0
    seed: int = 0
    sample: int = 0  # index of the seed, from 0
    variant: str = ""
    video: str | None = None  # path in the run's folder; None if failed or damaged
    thumbnail: str | None = None
    sound: str | None = None
    spectrogram: str | None = None
    video_sha256: str | None = None
    damage: str = ""  # of files, or empty

    @property
    def pair(self) -> tuple[int, int]:
        """Prompt index and seed, which a variant shares with its baseline."""
        return self.prompt_index, self.seed


def to_plain(result: TrialResult) -> Any:
    """JSON data; infinities and nan become "Infinity", "-Infinity" and "NaN"."""
    return json.loads(TypeAdapter(TrialResult).dump_json(result))


def video_record(record: Record, damage: str = "") -> VideoRecord:
    """The record with its result parsed; `damage` is of `Store.survey`. Raises GalaxyDiTError for a wrong field."""
    place = f"the record of {record.unit} is damaged: result"
    fields = dict(record.result or {})
    report = fields.pop("report", None)  # nine tenths of a record, so that parsing it would take most of the time
    if not isinstance(report, Mapping | None):
        raise refusal(f"{place}.report", report, "a valid dictionary", CURE)
    result = replace(parse(TrialResult, fields, place, CURE), report=report)
    if result.settings is not None:
        parse(GenerationSettings, dict(result.settings), f"{place}.settings", CURE)
    if report is not None:
        calls, names = report.get("calls"), {"step", "reused"}
        if not isinstance(calls, list) or not all(isinstance(call, dict) and names <= call.keys() for call in calls):
            raise GalaxyDiTError(f"{place}.report.calls is no list of calls with step and reused; {CURE}")
    file = record.files.get(VIDEO)
    paths = {} if damage else {name: each.path for name, each in record.files.items()}
    return VideoRecord(
        **vars(record) | {"result": None} | vars(result),
        **{name: record.data[name] for name in ("prompt", "prompt_index", "seed", "sample")},
        variant=record.data["variant"]["name"],
        video=paths.get(VIDEO),
        thumbnail=paths.get(THUMBNAIL),
        sound=paths.get(SOUND),
        spectrogram=paths.get(SPECTROGRAM),
        video_sha256=None if file is None else file.sha256,
        damage=damage,
    )
