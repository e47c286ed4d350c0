"""Latency of Wan2.1 shapes with random weights: milliseconds of full and reused steps of each method, and speedups.

Latency does not depend on weights. Full steps are forced, because thresholds mean nothing on random weights
(eval/README.md).
"""

import logging
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
from galaxydit.eval.cost.architecture import architecture_of
from galaxydit.eval.cost.hardware import gpu_named, kernel_of
from galaxydit.eval.cost.predict import Platform, Workload, fitted, predict
from galaxydit.eval.latency.latency_rows import FORMAT, KIND, LatencySamples, rows_from
from galaxydit.eval.latency.latency_settings import (
    INSTALLED,
    PRESETS,
    LatencySettings,
    VideoSize,
    evenly_forced,
    parse_size,
)
from galaxydit.eval.latency.latency_table import label
from galaxydit.eval.latency.random_models import Inputs, build_inputs, build_transformer
from galaxydit.eval.latency.timed_trajectory import THREAD_TIME, TimedTrajectory, clock_name
from galaxydit.files import write_json
from galaxydit.pipelines.additions import set_attention
from galaxydit.pipelines.conditions import product_name
from galaxydit.pipelines.disturbance import load_per_core

logger = logging.getLogger(__name__)
PREDICTED = {"1.3B": "wan2.1-t2v-1.3b", "14B": "wan2.1-t2v-14b"}  # name in eval/cost, by preset
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
        self.inputs, self.counted_inputs = (
            build_inputs(self.preset, size, self.device, self.dtype) for size in (self.size, COUNTED_SIZE)
        )
        turns = self.samples * self.settings.repeats
        for done, sample in enumerate(turns, 1):
            if sample.note is None:
                try:
                    self._run(sample)
                except Exception as error:
                    logger.exception("%s failed", label(sample.method, sample.compiled))
                    sample.note = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            self._write(out, finished=False)
            on_turn(done, len(turns))
        return self._write(out, finished=True)

    def _run(self, sample: LatencySamples) -> None:
        trajectory = self._trajectory(sample.method, sample.compiled)
        full = trajectory.forced.full
        if not sample.blocks:
            # Steps up to the first full step after a reused step; all steps of the plain method are alike.
            every_path = 1 if len(full) == self.forced.steps else full[2] + 1
            counted = self._build(sample.method, False, self.counted_inputs)
            blocks_full, blocks_reused = counted.count_blocks(every_path)
            sample.blocks = len(full) * blocks_full + (self.forced.steps - len(full)) * blocks_reused
            trajectory.run(every_path)
            # Compiled blocks would be compiled again for another size.
            sample.syncs_per_step = (trajectory if sample.compiled else counted).count_syncs(every_path)
        timing = trajectory.run(self.forced.steps)
        for step, milliseconds in enumerate(timing.milliseconds):
            (sample.full_ms if step in full else sample.reused_ms).append(milliseconds)
        sample.whole_seconds.append(sum(timing.milliseconds) / 1000)
        sample.joules += [] if timing.joules is None or math.isnan(timing.joules) else [timing.joules]
        if clock_name(self.device) != THREAD_TIME:
            sample.load = load_per_core()
        sample.peak_bytes, sample.bytes_held = timing.peak_bytes, timing.bytes_held

    def _build(self, method: str, compiled: bool, inputs: Inputs | None = None) -> TimedTrajectory:
        forced = evenly_forced(self.forced.steps, 1.0) if method == "plain" else self.forced
        return TimedTrajectory(method, forced, self.transformer, inputs or self.inputs, compiled)

    def _rows(self) -> list[dict[str, Any]]:
        """`rows_from` what was measured so far, with predictions of eval/cost where it knows GPU and model."""
        rows = rows_from([sample for sample in self.samples if sample.full_ms or sample.note])
        gpu, model = gpu_named(product_name(self.device)), PREDICTED.get(self.settings.model)
        if gpu is None or model is None:
            return rows
        size = self.size
        work = Workload(architecture_of(model), size.height, size.width, size.frames, self.forced.steps)
        for row in rows:
            if row["compute_fraction"] is not None:
                platform = Platform(gpu, kernel_of("native", gpu), row["compiled"])
                made = predict(work, platform, fitted()[0], row["compute_fraction"])
                row |= {"predicted_denoise_s": made.denoising, "predicted_joules": made.denoising_joules}
        return rows

    def _write(self, out: Path, finished: bool) -> dict[str, Any]:
        packages = ("torch", "diffusers", "transformers", *(["cache-dit"] if "cache-dit" in INSTALLED else []))
        data: dict[str, Any] = {
            "kind": KIND,
            "format": FORMAT,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "device": {
                "name": product_name(self.device),
                "type": self.device.type,
                "threads": torch.get_num_threads(),
                "clock": clock_name(self.device),
            },
            "versions": {"galaxydit": __version__} | {name: version(name) for name in packages},
            "settings": asdict(self.settings),
            "model": asdict(self.preset)
            | {"tokens": self.size.tokens, "dtype": str(self.dtype).removeprefix("torch.")},
            "schedule": {"steps": self.forced.steps, "full": list(self.forced.full)},
            "rows": self._rows(),
            "finished": finished,
        }
        write_json(out, data)
        return data
