"""Latency of Wan2.1 shapes: what a full and a reused step take with each method, and what remains of the speedup.

Weights are random (latency does not depend on them) and decisions are forced (no threshold means anything on random
weights); everything else is the real thing. See eval/README.md for how it is measured.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from galaxydit.eval import latency_result
from galaxydit.eval.latency_around import host_microseconds, text_encoder_seconds, vae_decode_seconds
from galaxydit.eval.latency_clock import clock_name, device_name
from galaxydit.eval.latency_methods import METHODS
from galaxydit.eval.latency_models import PRESETS, build_inputs, build_transformer, parse_size
from galaxydit.eval.latency_plan import Plan, plan_for, plan_from_report, sampling_plan
from galaxydit.eval.latency_result import Samples, rows_from
from galaxydit.eval.latency_variant import Timing, Variant

WARM_UP_STEPS = 4  # full, full, reused, full: every path once
PACKAGES = ("galaxydit", "torch", "diffusers", "transformers", "cache-dit", "triton")
# Every variant compiles the same block code again; beyond its default limit dynamo would silently run eagerly.
RECOMPILE_LIMIT = 64


@dataclass(frozen=True)
class LatencySettings:
    """What to measure.

    Attributes:
        model: one of PRESETS. size: of `latency_models.SIZES`, or WIDTHxHEIGHTxFRAMES.
        steps: of the trajectory. sampled_steps: how many of them are run to time single steps, from 4.
        fraction: share of full steps, warm-up and last step included. replay: a report whose decisions replace it.
        repeats: stretches for each method, in turn. whole: whether whole trajectories are run after that.
        minutes: after which nothing new is begun; None for no limit.
        methods: names from METHODS; None for all that are installed. modes: compiled or not, each a row.
        backend: of torch.compile.
    """

    model: str = "tiny"
    size: str = "tiny"
    steps: int = 50
    sampled_steps: int = 12
    fraction: float = 0.5
    replay: Path | None = None
    repeats: int = 3
    whole: bool = True
    minutes: float | None = None
    methods: Sequence[str] | None = None
    modes: Sequence[bool] = (False,)
    backend: str = "inductor"
    proxy: str = "block_residual"
    device: str = "cpu"
    dtype: str = "float32"
    text_encoder: bool = False
    vae: bool = False
    host: bool = True

    def __post_init__(self) -> None:
        if self.model not in PRESETS:
            raise ValueError(f"model is {self.model!r}, allowed are {', '.join(PRESETS)}")
        if unknown := [name for name in self.methods or () if name not in METHODS]:
            raise ValueError(f"methods has {', '.join(unknown)}, allowed are {', '.join(METHODS)}")
        if not WARM_UP_STEPS <= self.sampled_steps <= self.steps:
            raise ValueError(
                f"sampled_steps is {self.sampled_steps}, allowed are integers from {WARM_UP_STEPS} to steps="
                f"{self.steps}: pass for example 12 of 50"
            )
        if self.repeats < 1:
            raise ValueError(f"repeats is {self.repeats}, allowed are integers from 1")
        if not self.modes:
            raise ValueError("modes is empty, pass (False,) for eager, (True,) for compiled, or both")

    def chosen(self) -> list[tuple[str, bool]]:
        """Methods and modes in the order they are measured: the essential ones first."""
        names = [name for name in (self.methods or METHODS) if METHODS[name].is_available]
        missing = [name for name in self.methods or () if not METHODS[name].is_available]
        if missing:
            raise ValueError(f"methods has {', '.join(missing)}, which is not installed: pip install the bench extra")
        pairs = [(name, mode) for mode in self.modes for name in names]
        return sorted(pairs, key=lambda pair: not METHODS[pair[0]].essential)


Progress = Callable[[str, float], None]


class LatencyRun:
    """One run: measures in turns, writes the file after each, stops when its time is up."""

    def __init__(self, settings: LatencySettings, out: Path, on_progress: Progress = lambda text, done: None) -> None:
        self.settings = settings
        self.out = out
        self.on_progress = on_progress
        self.preset = PRESETS[settings.model]
        self.size = parse_size(settings.size)
        self.device = torch.device(settings.device)
        self.dtype = getattr(torch, settings.dtype)
        self.plan: Plan = (
            plan_from_report(settings.replay) if settings.replay else plan_for(settings.steps, settings.fraction)
        )
        self.samples = {pair: Samples(*pair) for pair in settings.chosen()}
        self.once: dict[str, float | None] = {"text_encoder_seconds": None, "vae_decode_seconds": None}
        self.host: dict[str, float] | None = None
        self.finished = False
        self._blocks: dict[str, tuple[float, float]] = {}
        self._started = time.monotonic()
        self._longest: dict[str, float] = {}

    def measure(self) -> dict[str, Any]:
        """Everything, in the order of its worth; returns what was written."""
        torch._dynamo.config.recompile_limit = max(RECOMPILE_LIMIT, torch._dynamo.config.recompile_limit)
        self.on_progress("building the model", 0.0)
        torch.manual_seed(0)
        self.transformer = build_transformer(self.preset, self.device, self.dtype)
        self.inputs = build_inputs(self.preset, self.size, self.device, self.dtype)
        turns = self._turns()
        complete = True
        for index, (phase, action) in enumerate(turns):
            if not self._has_time(phase):
                complete = False
                continue
            self.on_progress(phase, index / len(turns))
            started = time.monotonic()
            action()
            self._longest[phase] = max(self._longest.get(phase, 0.0), time.monotonic() - started)
            self.save()
        self.finished = complete
        self.on_progress("done", 1.0)
        return self.save()

    def _turns(self) -> list[tuple[str, Callable[[], None]]]:
        """What to do, each with the name under which its time is foreseen; methods alternate within each repeat."""
        turns: list[tuple[str, Callable[[], None]]] = []
        variants: dict[tuple[str, bool, bool], Variant] = {}

        def variant(pair: tuple[str, bool], whole: bool) -> Variant:
            key = (*pair, whole)
            if key not in variants:
                plan = self.plan if whole else sampling_plan(self.plan.steps)
                variants[key] = self._build(*pair, plan)
                variants[key].run(WARM_UP_STEPS)
            return variants[key]

        def sample(pair: tuple[str, bool], first: bool) -> None:
            if first:
                self._count(pair, variant(pair, False))
            self._book_sample(pair, variant(pair, False).run(self.settings.sampled_steps))

        def whole(pair: tuple[str, bool]) -> None:
            timing = variant(pair, True).run(self.plan.steps)
            self.samples[pair].whole_seconds.append(sum(timing.milliseconds) / 1000)

        for repeat in range(self.settings.repeats):
            turns += [
                (f"{_label(pair)}, single steps", partial(sample, pair, first=repeat == 0)) for pair in self.samples
            ]
        if self.settings.text_encoder:
            turns.append(("text encoder", self._time_text_encoder))
        if self.settings.vae:
            turns.append(("decoder", self._time_vae))
        if self.settings.host:
            turns.append(("host", self._time_host))
        if self.settings.whole:
            for _ in range(self.settings.repeats):
                turns += [(f"{_label(pair)}, whole", partial(whole, pair)) for pair in self.samples]
        return turns

    def _build(self, method: str, compiled: bool, plan: Plan) -> Variant:
        backend = self.settings.backend if compiled else None
        return Variant(method, plan, self.transformer, self.inputs, proxy=self.settings.proxy, backend=backend)

    def _count(self, pair: tuple[str, bool], variant: Variant) -> None:
        """Blocks and host synchronisations. Blocks are counted once, eagerly: counting would disturb compiled ones."""
        method, _ = pair
        if method not in self._blocks:
            counted = self._build(method, False, sampling_plan(self.plan.steps))
            self._blocks[method] = counted.count_blocks(WARM_UP_STEPS)
        sample = self.samples[pair]
        sample.blocks_full, sample.blocks_reused = self._blocks[method]
        sample.syncs_per_step = variant.count_syncs(WARM_UP_STEPS)

    def _book_sample(self, pair: tuple[str, bool], timing: Timing) -> None:
        sample = self.samples[pair]
        for is_full, milliseconds in zip(timing.kinds, timing.milliseconds, strict=True):
            (sample.full_ms if is_full or pair[0] == "plain" else sample.reused_ms).append(milliseconds)
        sample.peak_bytes, sample.bytes_held = timing.peak_bytes, timing.bytes_held

    def _time_text_encoder(self) -> None:
        self.once["text_encoder_seconds"] = text_encoder_seconds(self.preset, self.device, self.dtype)

    def _time_vae(self) -> None:
        self.once["vae_decode_seconds"] = vae_decode_seconds(self.preset, self.size, self.device)

    def _time_host(self) -> None:
        self.host = host_microseconds(self.settings.proxy)

    def _has_time(self, phase: str) -> bool:
        """Whether the next turn, if it takes as long as the longest of its kind so far, ends in time."""
        if self.settings.minutes is None:
            return True
        kind = phase.rsplit(", ", 1)[-1]
        known = [seconds for name, seconds in self._longest.items() if name == phase or name.endswith(f", {kind}")]
        needed = self._longest.get(phase, max(known, default=0.0))
        return time.monotonic() - self._started + needed <= 60 * self.settings.minutes

    def save(self) -> dict[str, Any]:
        """Write what is known by now."""
        without_proxy = {name: method.without_proxy for name, method in METHODS.items() if method.without_proxy}
        measured = [sample for sample in self.samples.values() if sample.full_ms]
        settings = asdict(self.settings) | {"replay": str(self.settings.replay) if self.settings.replay else None}
        data: dict[str, Any] = {
            "kind": latency_result.KIND,
            "format": latency_result.FORMAT,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "device": {
                "name": device_name(self.device),
                "type": self.device.type,
                "threads": torch.get_num_threads(),
                "clock": clock_name(self.device),
            },
            "versions": {name: _version(name) for name in PACKAGES},
            "settings": settings
            | {"methods": list(self.settings.methods or METHODS), "modes": list(self.settings.modes)},
            "model": asdict(self.preset) | {"tokens": self.size.tokens, "dtype": self.settings.dtype},
            "schedule": {"steps": self.plan.steps, "full": list(self.plan.full)},
            "rows": [latency_result.row_to(row) for row in rows_from(measured, self.plan, without_proxy)],
            "once": self.once,
            "host_microseconds_per_call": self.host,
            "finished": self.finished,
        }
        latency_result.save(self.out, data)
        return data


def _label(pair: tuple[str, bool]) -> str:
    return f"{pair[0]} ({'compiled' if pair[1] else 'eager'})"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
