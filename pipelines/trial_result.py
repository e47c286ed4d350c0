"""The result of a trial (`trial.py`) as plain data; this file needs no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import ConfigDict

from galaxydit.pipelines.disturbance import Timed


@dataclass(frozen=True)
class TrialResult:
    """The measurements of one video; defaults if its trial failed."""

    __pydantic_config__ = ConfigDict(ser_json_inf_nan="strings")  # JSON has no infinities

    frames_sha256: str | None = None  # of the decoded float frames, by `hash_frames`
    shape: tuple[int, int, int, int] | None = None  # (frames, height, width, 3)
    sound_shape: tuple[int, int] | None = None  # (channels, samples); None without sound
    sound_rate: int | None = None  # Hz
    settings: Mapping[str, Any] | None = None  # fields of the `GenerationSettings` in force
    denoise_seconds: float | None = None  # see `GeneratedVideo`
    end_to_end_seconds: float | None = None
    compute_fraction: float | None = None  # compute / compute of the plain video; None without one
    # evaluated blocks of the plugin's report, floating-point operations of the blocks, or steps
    compute_unit: Literal["", "blocks", "operations", "steps"] = ""
    denoise_joules: float | None = None  # over all devices; None without an energy counter
    energy_per_video_joules: float | None = None
    avg_power_watts: float | None = None  # of the whole call
    energy_note: str = ""  # other work whose joules count too, or a failed reading
    load: float | None = None  # see `GeneratedVideo`
    shared: bool = False  # other work on the device
    report: Mapping[str, Any] | None = None  # of the plugin, with its decisions
    metrics: Mapping[str, float] = field(default_factory=dict)  # may be infinite, and nan where undefined
    skipped: Mapping[str, str] = field(default_factory=dict)  # reason by unsuitable metric
    failures: Mapping[str, str] = field(default_factory=dict)  # error by metric, file or other by-product
    versions: Mapping[str, str] = field(default_factory=dict)  # of packages
    code: str = ""  # `code_identity` of this project; empty if unknown
    device: str = ""
    block_operations: float | None = None  # None if they were not counted
    bytes_held: int | None = None  # most bytes kept between calls; None if unknown
    plain_denoise_seconds: float | None = None  # of the plain video, if this process timed it
    plain_end_to_end_seconds: float | None = None

    def timed(self, way: str, place: str = "") -> Timed:
        """The timing for `disturbance`."""
        return Timed(way, self.denoise_seconds or 0.0, self.compute_fraction, self.load, self.shared, place)
