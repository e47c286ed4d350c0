"""Latency of Wan2.1 shapes: seconds of a full and a reused step with each method, and the resulting speedup.

Weights are random, because latency does not depend on them, and decisions are forced, because thresholds mean nothing
on random weights. eval/README.md describes the measurement.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from galaxydit import __version__
from galaxydit.eval.compare.registry import is_installed
from galaxydit.eval.latency.device_clock import clock_name, device_name
from galaxydit.eval.latency.forced_steps import ForcedSteps, alternating, evenly_forced
from galaxydit.eval.latency.latency_rows import FORMAT, KIND, Samples, denoise_seconds, rows_from
from galaxydit.eval.latency.latency_settings import COUNTED_STEPS, METHODS, NEEDS, PRESETS, LatencySettings, parse_size
from galaxydit.eval.latency.latency_table import label
from galaxydit.eval.latency.random_models import build_inputs, build_transformer
from galaxydit.eval.latency.stage_latency import host_microseconds, text_encoder_seconds, vae_decode_seconds
from galaxydit.eval.latency.timed_trajectory import TimedTrajectory
from galaxydit.files import write_json

logger = logging.getLogger(__name__)
ESSENTIAL = ("plain", "galaxydit output", "galaxydit residual")  # measured before the others
WARM_UP_STEPS = 3  # full, full, reused: every path once
PACKAGES = ("torch", "diffusers", "transformers", "cache-dit", "triton")
# Every trajectory compiles the same block code again; beyond its default limit dynamo would silently run eagerly.
RECOMPILE_LIMIT = 64


@dataclass(frozen=True)
class Turn:
    """One part of a run: the text to show, the kind that predicts its time, the function, and what it measures."""

    text: str
    kind: str
    action: Callable[[], None]
    sample: Samples | None = None


class LatencyRun:
    """One run: measures turn by turn, writes the file after each turn, and stops when its time is up."""

    def __init__(
        self, settings: LatencySettings, out: Path, on_progress: Callable[[str, float], None] = lambda text, done: None
    ) -> None:
        self.settings = settings
        self.out = out
        self.on_progress = on_progress
        self.preset = PRESETS[settings.model]
        self.size = parse_size(settings.size)
        self.device = torch.device(settings.device)
        self.dtype = getattr(torch, settings.dtype)
        self.forced = evenly_forced(settings.steps, settings.fraction)
        names = [name for name in dict.fromkeys(settings.methods or METHODS) if is_installed(NEEDS.get(name))]
        self.samples = [Samples(name, compiled) for compiled in settings.modes for name in names]
        self.samples.sort(key=lambda sample: sample.method not in ESSENTIAL)
        self.once: dict[str, float | None] = {"text_encoder_seconds": None, "vae_decode_seconds": None}
        self.host: dict[str, float] | None = None
        self._started = time.monotonic()
        self._longest: defaultdict[str, float] = defaultdict(float)
        self._trajectory = cache(self._build_warm)
        self._blocks = cache(self._count_blocks)

    def measure(self) -> dict[str, Any]:
        """Everything, in the order of its worth; returns what was written."""
        torch._dynamo.config.recompile_limit = max(RECOMPILE_LIMIT, torch._dynamo.config.recompile_limit)
        self.on_progress("building the model", 0.0)
        torch.manual_seed(0)
        self.transformer = build_transformer(self.preset, self.device, self.dtype)
        self.inputs = build_inputs(self.preset, self.size, self.device, self.dtype)
        turns = self._turns()
        finished = True
        for index, turn in enumerate(turns):
            if not self._has_time(turn):
                finished = False
                continue
            self.on_progress(turn.text, index / len(turns))
            started = time.monotonic()
            self._take(turn)
            self._longest[turn.kind] = max(self._longest[turn.kind], time.monotonic() - started)
            self.save(finished=False)
        self.on_progress("done", 1.0)
        return self.save(finished)

    def _turns(self) -> list[Turn]:
        """All turns in order; methods alternate within each repeat."""
        turns = []
        for repeat in range(self.settings.repeats):
            kind = "first sample" if repeat == 0 else "sample"
            turns += [self._turn("single steps", kind, self._sample, sample) for sample in self.samples]
        stages = {"text encoder": self.settings.text_encoder, "decoder": self.settings.vae, "host": self.settings.host}
        turns += [Turn(name, name, partial(self._time, name)) for name, wanted in stages.items() if wanted]
        for _ in range(self.settings.repeats if self.settings.whole else 0):
            turns += [self._turn("whole", "whole", self._run_whole, sample) for sample in self.samples]
        return turns

    def _turn(self, text: str, kind: str, action: Callable[[Samples], None], sample: Samples) -> Turn:
        return Turn(f"{label(sample.method, sample.compiled)}, {text}", kind, partial(action, sample), sample)

    def _take(self, turn: Turn) -> None:
        """Take a turn. A method that fails gets a note in its row and no further turns."""
        if turn.sample is None:
            turn.action()
        elif turn.sample.note is None:
            try:
                turn.action()
            except Exception as error:
                logger.exception("%s failed", turn.text)
                turn.sample.note = " ".join(f"{type(error).__name__}: {error}".split())[:300]

    def _has_time(self, turn: Turn) -> bool:
        """Whether a turn ends in time, by the steps' times for whole trajectories, else by the longest of its kind."""
        if self.settings.minutes is None:
            return True
        needed = self._longest[turn.kind]
        if turn.kind == "whole" and turn.sample is not None:
            needed = 1.2 * (denoise_seconds(turn.sample, self.forced) or 0.0)
        return time.monotonic() - self._started + needed <= 60 * self.settings.minutes

    def _sample(self, sample: Samples) -> None:
        trajectory = self._trajectory(sample.method, sample.compiled, False)
        if not sample.full_ms:
            sample.blocks_full, sample.blocks_reused = self._blocks(sample.method)
            sample.syncs_per_step = trajectory.count_syncs(WARM_UP_STEPS)
        timing = trajectory.run(self.settings.sampled_steps)
        for step, milliseconds in enumerate(timing.milliseconds):
            is_full = sample.method == "plain" or step in trajectory.forced.full
            (sample.full_ms if is_full else sample.reused_ms).append(milliseconds)
        sample.peak_bytes, sample.bytes_held = timing.peak_bytes, timing.bytes_held

    def _run_whole(self, sample: Samples) -> None:
        timing = self._trajectory(sample.method, sample.compiled, True).run(self.forced.steps)
        sample.whole_seconds.append(sum(timing.milliseconds) / 1000)

    def _build_warm(self, method: str, compiled: bool, whole: bool) -> TimedTrajectory:
        """A trajectory that has run every path; whole trajectories and single steps have one each."""
        trajectory = self._build(method, compiled, self.forced if whole else alternating(self.forced.steps))
        trajectory.run(WARM_UP_STEPS)
        return trajectory

    def _count_blocks(self, method: str) -> tuple[int, int]:
        """Blocks of a full and of a reused step, counted eagerly because counting would disturb compiled ones."""
        return self._build(method, False, alternating(self.forced.steps)).count_blocks(COUNTED_STEPS)

    def _build(self, method: str, compiled: bool, forced: ForcedSteps) -> TimedTrajectory:
        backend, proxy = self.settings.backend if compiled else None, self.settings.proxy
        return TimedTrajectory(method, forced, self.transformer, self.inputs, proxy=proxy, backend=backend)

    def _time(self, stage: str) -> None:
        if stage == "text encoder":
            self.once["text_encoder_seconds"] = text_encoder_seconds(self.preset, self.device, self.dtype)
        elif stage == "decoder":
            self.once["vae_decode_seconds"] = vae_decode_seconds(self.preset, self.size, self.device)
        else:
            self.host = host_microseconds(self.settings.proxy)

    def save(self, finished: bool) -> dict[str, Any]:
        """Write all results so far."""
        measured = [sample for sample in self.samples if sample.full_ms or sample.note]
        lists = {"methods": list(self.settings.methods or METHODS), "modes": list(self.settings.modes)}
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
            "settings": asdict(self.settings) | lists,
            "model": asdict(self.preset) | {"tokens": self.size.tokens, "dtype": self.settings.dtype},
            "schedule": {"steps": self.forced.steps, "full": list(self.forced.full)},
            "rows": rows_from(measured, self.forced),
            "once": self.once,
            "host_microseconds_per_call": self.host,
            "finished": finished,
        }
        write_json(self.out, data)
        return data


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
