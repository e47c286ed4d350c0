"""Latency of Wan2.1 shapes: seconds of a full and a reused step with each method, and the resulting speedup.

Weights are random, because latency does not depend on them, and decisions are forced, because thresholds mean nothing
on random weights. eval/README.md describes the measurement.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from galaxydit import __version__
from galaxydit.eval.latency.device_clock import clock_name, device_name
from galaxydit.eval.latency.forced_steps import ForcedSteps, alternating
from galaxydit.eval.latency.latency_rows import FORMAT, KIND, Samples, denoise_seconds, rows_from
from galaxydit.eval.latency.latency_settings import COUNTED_STEPS, PRESETS, LatencySettings, parse_size
from galaxydit.eval.latency.random_models import build_inputs, build_transformer
from galaxydit.eval.latency.stage_latency import host_microseconds, text_encoder_seconds, vae_decode_seconds
from galaxydit.eval.latency.timed_methods import METHODS
from galaxydit.eval.latency.timed_trajectory import TimedTrajectory
from galaxydit.files import write_json

logger = logging.getLogger(__name__)
WARM_UP_STEPS = 3  # full, full, reused: every path once
PACKAGES = ("torch", "diffusers", "transformers", "cache-dit", "triton")
# Every trajectory compiles the same block code again; beyond its default limit dynamo would silently run eagerly.
RECOMPILE_LIMIT = 64

Pair = tuple[str, bool]  # method, compiled


Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Turn:
    """One part of a run: the text to show, the kind that predicts its time, the function, and its row."""

    text: str
    kind: str
    action: Callable[..., None]
    pair: Pair | None = None


class LatencyRun:
    """One run: measures turn by turn, writes the file after each turn, and stops when its time is up."""

    def __init__(self, settings: LatencySettings, out: Path, on_progress: Progress = lambda text, done: None) -> None:
        self.settings = settings
        self.out = out
        self.on_progress = on_progress
        self.preset = PRESETS[settings.model]
        self.size = parse_size(settings.size)
        self.device = torch.device(settings.device)
        self.dtype = getattr(torch, settings.dtype)
        self.forced = settings.forced
        names = [name for name in settings.methods or METHODS if METHODS[name].method.is_available]
        pairs = [(name, mode) for mode in settings.modes for name in names]
        pairs.sort(key=lambda pair: not METHODS[pair[0]].essential)
        self.samples = {pair: Samples(*pair) for pair in pairs}
        self.once: dict[str, float | None] = {"text_encoder_seconds": None, "vae_decode_seconds": None}
        self.host: dict[str, float] | None = None
        self.finished = False
        self._blocks: dict[str, tuple[float, float]] = {}
        self._started = time.monotonic()
        self._longest: dict[str, float] = {}
        self._trajectories: dict[tuple[str, bool, bool], TimedTrajectory] = {}

    def measure(self) -> dict[str, Any]:
        """Everything, in the order of its worth; returns what was written."""
        torch._dynamo.config.recompile_limit = max(RECOMPILE_LIMIT, torch._dynamo.config.recompile_limit)
        self.on_progress("building the model", 0.0)
        torch.manual_seed(0)
        self.transformer = build_transformer(self.preset, self.device, self.dtype)
        self.inputs = build_inputs(self.preset, self.size, self.device, self.dtype)
        turns = self._turns()
        self.finished = True
        for index, turn in enumerate(turns):
            if not self._has_time(turn):
                self.finished = False
                continue
            self.on_progress(turn.text, index / len(turns))
            started = time.monotonic()
            self._take(turn)
            self._longest[turn.kind] = max(self._longest.get(turn.kind, 0.0), time.monotonic() - started)
            self.save(finished=False)
        self.on_progress("done", 1.0)
        return self.save(self.finished)

    def _turns(self) -> list[Turn]:
        """All turns in order; methods alternate within each repeat."""
        repeats = range(self.settings.repeats)
        turns = [
            Turn(f"{_label(pair)}, single steps", "first sample" if repeat == 0 else "sample", self._sample, pair)
            for repeat in repeats
            for pair in self.samples
        ]
        others = {"text encoder": self.settings.text_encoder, "decoder": self.settings.vae, "host": self.settings.host}
        turns += [Turn(name, name, partial(self._time, name)) for name, wanted in others.items() if wanted]
        if self.settings.whole:
            turns += [
                Turn(f"{_label(pair)}, whole", "whole", self._run_whole, pair) for _ in repeats for pair in self.samples
            ]
        return turns

    def _take(self, turn: Turn) -> None:
        """Take a turn. A method that fails gets a note in its row and no further turns."""
        if turn.pair is None:
            turn.action()
            return
        sample = self.samples[turn.pair]
        if sample.note is not None:
            return
        try:
            turn.action(turn.pair)
        except Exception as error:
            logger.exception("%s failed", turn.text)
            sample.note = " ".join(f"{type(error).__name__}: {error}".split())[:300]

    def _has_time(self, turn: Turn) -> bool:
        """Whether a turn ends in time, by the steps' times for whole trajectories, else by the longest of its kind."""
        if self.settings.minutes is None:
            return True
        needed = self._longest.get(turn.kind, 0.0)
        if turn.kind == "whole" and turn.pair is not None:
            needed = 1.2 * (denoise_seconds(self.samples[turn.pair], self.forced) or 0.0)
        return time.monotonic() - self._started + needed <= 60 * self.settings.minutes

    def _trajectory(self, pair: Pair, whole: bool) -> TimedTrajectory:
        """A warmed-up trajectory, built once for single steps and once for whole trajectories."""
        if (*pair, whole) not in self._trajectories:
            trajectory = self._build(*pair, self.forced if whole else alternating(self.forced.steps))
            trajectory.run(WARM_UP_STEPS)
            self._trajectories[(*pair, whole)] = trajectory
        return self._trajectories[(*pair, whole)]

    def _sample(self, pair: Pair) -> None:
        trajectory = self._trajectory(pair, False)
        if not self.samples[pair].full_ms:
            self._count(pair, trajectory)
        sample, timing = self.samples[pair], trajectory.run(self.settings.sampled_steps)
        for is_full, milliseconds in zip(timing.kinds, timing.milliseconds, strict=True):
            (sample.full_ms if is_full or pair[0] == "plain" else sample.reused_ms).append(milliseconds)
        sample.peak_bytes, sample.bytes_held = timing.peak_bytes, timing.bytes_held

    def _run_whole(self, pair: Pair) -> None:
        timing = self._trajectory(pair, True).run(self.forced.steps)
        self.samples[pair].whole_seconds.append(sum(timing.milliseconds) / 1000)

    def _build(self, method: str, compiled: bool, forced: ForcedSteps) -> TimedTrajectory:
        backend, proxy = self.settings.backend if compiled else None, self.settings.proxy
        return TimedTrajectory(method, forced, self.transformer, self.inputs, proxy=proxy, backend=backend)

    def _count(self, pair: Pair, trajectory: TimedTrajectory) -> None:
        """Count blocks, once and eagerly because counting would disturb compiled ones, and host synchronizations."""
        method, _ = pair
        if method not in self._blocks:
            counted = self._build(method, False, alternating(self.forced.steps))
            self._blocks[method] = counted.count_blocks(COUNTED_STEPS)
        sample = self.samples[pair]
        sample.blocks_full, sample.blocks_reused = self._blocks[method]
        sample.syncs_per_step = trajectory.count_syncs(WARM_UP_STEPS)

    def _time(self, stage: str) -> None:
        if stage == "text encoder":
            self.once["text_encoder_seconds"] = text_encoder_seconds(self.preset, self.device, self.dtype)
        elif stage == "decoder":
            self.once["vae_decode_seconds"] = vae_decode_seconds(self.preset, self.size, self.device)
        else:
            self.host = host_microseconds(self.settings.proxy)

    def save(self, finished: bool) -> dict[str, Any]:
        """Write all results so far."""
        without_proxy = {name: method.without_proxy for name, method in METHODS.items() if method.without_proxy}
        measured = [sample for sample in self.samples.values() if sample.full_ms or sample.note]
        settings: dict[str, Any] = asdict(self.settings) | {
            "replay": self.settings.replay and str(self.settings.replay)
        }
        settings |= {"methods": list(self.settings.methods or METHODS), "modes": list(self.settings.modes)}
        data: dict[str, Any] = {
            "kind": KIND,
            "format": FORMAT,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "device": {
                "name": device_name(self.device),
                "type": self.device.type,
                "threads": torch.get_num_threads(),
                "clock": clock_name(self.device),
            },
            "versions": {"galaxydit": __version__} | {name: _version(name) for name in PACKAGES},
            "settings": settings,
            "model": asdict(self.preset) | {"tokens": self.size.tokens, "dtype": self.settings.dtype},
            "schedule": {"steps": self.forced.steps, "full": list(self.forced.full)},
            "rows": [asdict(row) for row in rows_from(measured, self.forced, without_proxy)],
            "once": self.once,
            "host_microseconds_per_call": self.host,
            "finished": finished,
        }
        write_json(self.out, data)
        return data


def _label(pair: Pair) -> str:
    return f"{pair[0]} ({'compiled' if pair[1] else 'eager'})"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
