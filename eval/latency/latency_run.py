"""Latency of Wan2.1 shapes with random weights: milliseconds of full and reused steps of each method, and speedups.

Latency does not depend on weights. Full steps are forced, because thresholds mean nothing on random weights
(eval/README.md).
"""

import math
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from galaxydit import __version__
from galaxydit.errors import short_reason
from galaxydit.eval.latency.latency_rows import LatencySamples, rows_from
from galaxydit.eval.latency.latency_settings import INSTALLED, LatencySettings
from galaxydit.eval.latency.latency_table import label
from galaxydit.eval.latency.model_shapes import PRESETS, VideoSize, evenly_forced, parse_size
from galaxydit.eval.latency.random_models import Inputs, build_inputs, build_transformer
from galaxydit.eval.latency.timed_trajectory import THREAD_TIME, TimedTrajectory, clock_name
from galaxydit.foreign_text import logger_of
from galaxydit.pipelines.additions import set_attention
from galaxydit.pipelines.conditions import product_name
from galaxydit.pipelines.disturbance import load_per_core
from galaxydit.pipelines.written_by import LATENCY, write_own_json

logger = logger_of(__name__)
MODES = {"eager": (False,), "compiled": (True,), "both": (False, True)}
# Every trajectory compiles the same block code again; beyond its default limit dynamo would silently run eagerly.
RECOMPILE_LIMIT = 64
# Blocks and synchronizations of a step depend on no size, so they are counted where a step takes milliseconds.
COUNTED_SIZE = VideoSize(32, 32, 5)


class LatencyRun:
    """Measures the latency of methods in turns; in a turn, one method runs a trajectory, eager or compiled."""

    def __init__(self, settings: LatencySettings) -> None:
        self.settings = settings
        self.preset = PRESETS[settings.model]
        self.size = parse_size(settings.size)
        self.device = torch.device(settings.device or ("cuda" if torch.cuda.is_available() else "cpu"))
        on_gpu = self.device.type == "cuda"
        self.dtype = torch.bfloat16 if on_gpu else torch.float32
        self.forced = evenly_forced(settings.steps, settings.fraction)
        names = dict.fromkeys(settings.methods or INSTALLED)
        modes = MODES[settings.mode or ("both" if on_gpu else "eager")]
        self.samples = [LatencySamples(name, compiled) for name in names for compiled in modes]
        self._trajectory = cache(self._build)

    def measure(self, out: Path, on_turn: Callable[[int, int], None] = lambda done, turns: None) -> dict[str, Any]:
        """Write the results (`latency_rows.load`) to `out` after each turn, and return them.

        A method that fails gets its error as "note" and no further turns.
        """
        torch._dynamo.config.recompile_limit = max(RECOMPILE_LIMIT, torch._dynamo.config.recompile_limit)
        torch.manual_seed(0)
        self.transformer = build_transformer(self.preset, self.device, self.dtype)
        if self.settings.attention is not None:
            set_attention([self.transformer], self.settings.attention)
        self.inputs = build_inputs(self.preset, self.size, self.device, self.dtype)
        self.counted_inputs = build_inputs(self.preset, COUNTED_SIZE, self.device, self.dtype)
        # All methods take turns, so that a slow spell of the machine meets all of them.
        turns = self.samples * self.settings.repeats
        for done, sample in enumerate(turns, 1):
            if sample.note is None:
                try:
                    self._run(sample)
                except Exception as error:
                    logger.exception("%s failed", label(sample.method, sample.compiled))
                    sample.note = short_reason(error, 300)
            self._write(out, finished=False)
            on_turn(done, len(turns))
        return self._write(out, finished=True)

    def _run(self, sample: LatencySamples) -> None:
        """Time one trajectory; before the first of a method, count, which also warms it up."""
        trajectory = self._trajectory(sample.method, sample.compiled)
        if not sample.blocks:
            self._count(sample, trajectory)
        timing = trajectory.run(self.forced.steps)
        for step, milliseconds in enumerate(timing.milliseconds):
            if step in trajectory.forced.full:
                sample.full_ms.append(milliseconds)
            else:
                sample.reused_ms.append(milliseconds)
        sample.whole_seconds.append(sum(timing.milliseconds) / 1000)
        if timing.joules and not math.isnan(timing.joules):  # 0 if the counter was not refreshed in so short a time
            sample.joules.append(timing.joules)
        if clock_name(self.device) != THREAD_TIME:
            sample.load = load_per_core()
        sample.peak_bytes = timing.peak_bytes
        sample.bytes_held = timing.bytes_held

    def _count(self, sample: LatencySamples, trajectory: TimedTrajectory) -> None:
        """Count blocks and synchronizations up to the first full step after a reused step."""
        full = trajectory.forced.full
        reused = self.forced.steps - len(full)
        every_path = full[2] + 1 if reused else 1  # all steps of the plain method are alike
        counted = self._build(sample.method, False, self.counted_inputs)
        blocks_full, blocks_reused = counted.count_blocks(every_path)
        sample.blocks = len(full) * blocks_full + reused * blocks_reused
        trajectory.run(every_path)
        if sample.compiled:  # compiled blocks would be compiled again for another size
            counted = trajectory
        sample.syncs_per_step = counted.count_syncs(every_path)

    def _build(self, method: str, compiled: bool, inputs: Inputs | None = None) -> TimedTrajectory:
        if method == "plain":
            forced = evenly_forced(self.forced.steps, 1.0)
        else:
            forced = self.forced
        return TimedTrajectory(method, forced, self.transformer, inputs or self.inputs, compiled)

    def _write(self, out: Path, finished: bool) -> dict[str, Any]:
        packages = ["torch", "diffusers", "transformers"]
        if "cache-dit" in INSTALLED:
            packages.append("cache-dit")
        model = asdict(self.preset)
        model["tokens"] = self.size.tokens
        model["dtype"] = str(self.dtype).removeprefix("torch.")
        data: dict[str, Any] = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "device": {
                "name": product_name(self.device),
                "type": self.device.type,
                "threads": torch.get_num_threads(),
                "clock": clock_name(self.device),
            },
            "versions": {"galaxydit": __version__} | {name: version(name) for name in packages},
            "settings": asdict(self.settings),
            "model": model,
            "schedule": {"steps": self.forced.steps, "full": list(self.forced.full)},
            "rows": rows_from([sample for sample in self.samples if sample.full_ms or sample.note]),
            "finished": finished,
        }
        return write_own_json(out, LATENCY, data)
