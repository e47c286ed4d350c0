"""Latency of Wan2.1 shapes: what a full and a reused step take with each method, and what remains of the speedup.

Weights are random (latency does not depend on them) and decisions are forced (no threshold means anything on random
weights); everything else is the real thing. See eval/README.md for how it is measured.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from galaxydit import __version__
from galaxydit.eval import latency_result
from galaxydit.eval.latency_around import host_microseconds, text_encoder_seconds, vae_decode_seconds
from galaxydit.eval.latency_clock import clock_name, device_name
from galaxydit.eval.latency_methods import METHODS
from galaxydit.eval.latency_models import PRESETS, build_inputs, build_transformer, parse_size
from galaxydit.eval.latency_plan import Plan, plan_for, plan_from_report, sampling_plan
from galaxydit.eval.latency_result import Samples, denoise_seconds, rows_from
from galaxydit.eval.latency_variant import Timing, Variant

logger = logging.getLogger(__name__)
WARM_UP_STEPS = 3  # full, full, reused: every path once
COUNTED_STEPS = 4  # and full again
PACKAGES = ("torch", "diffusers", "transformers", "cache-dit", "triton")
# Every variant compiles the same block code again; beyond its default limit dynamo would silently run eagerly.
RECOMPILE_LIMIT = 64

Pair = tuple[str, bool]  # method, compiled


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
        if not COUNTED_STEPS <= self.sampled_steps <= self.steps:
            raise ValueError(
                f"sampled_steps is {self.sampled_steps}, allowed are integers from {COUNTED_STEPS} to steps="
                f"{self.steps}: pass for example 12 of 50"
            )
        if self.repeats < 1:
            raise ValueError(f"repeats is {self.repeats}, allowed are integers from 1")
        if not self.modes:
            raise ValueError("modes is empty, pass (False,) for eager, (True,) for compiled, or both")

    def chosen(self) -> list[Pair]:
        """Methods and modes in the order they are measured: the essential ones first."""
        names = [name for name in (self.methods or METHODS) if METHODS[name].is_available]
        missing = [name for name in self.methods or () if not METHODS[name].is_available]
        if missing:
            raise ValueError(f"methods has {', '.join(missing)}, not installed: pip install 'galaxydit[bench]'")
        pairs = [(name, mode) for mode in self.modes for name in names]
        return sorted(pairs, key=lambda pair: not METHODS[pair[0]].essential)


Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Turn:
    """A part of a run: what to show, the kind under which its time is foreseen, what to call, and the row it fills."""

    text: str
    kind: str
    action: Callable[..., None]
    pair: Pair | None = None


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
        if settings.sampled_steps > self.plan.steps:
            raise ValueError(f"sampled_steps is {settings.sampled_steps}, allowed are at most {self.plan.steps}")
        self.samples = {pair: Samples(*pair) for pair in settings.chosen()}
        self.once: dict[str, float | None] = {"text_encoder_seconds": None, "vae_decode_seconds": None}
        self.host: dict[str, float] | None = None
        self.finished = False
        self._blocks: dict[str, tuple[float, float]] = {}
        self._started = time.monotonic()
        self._longest: dict[str, float] = {}
        self._variants: dict[tuple[str, bool, bool], Variant] = {}

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
        """What to do, in order; methods alternate within each repeat."""
        repeats = range(self.settings.repeats)
        turns = [
            Turn(f"{_label(pair)}, single steps", "first sample" if repeat == 0 else "sample", self._sample, pair)
            for repeat in repeats
            for pair in self.samples
        ]
        if self.settings.text_encoder:
            turns.append(Turn("text encoder", "text encoder", self._time_text_encoder))
        if self.settings.vae:
            turns.append(Turn("decoder", "decoder", self._time_vae))
        if self.settings.host:
            turns.append(Turn("host", "host", self._time_host))
        if self.settings.whole:
            turns += [
                Turn(f"{_label(pair)}, whole", "whole", self._run_whole, pair) for _ in repeats for pair in self.samples
            ]
        return turns

    def _take(self, turn: Turn) -> None:
        """Do it. A method that fails gets a note in its row and no further turn; the others get theirs."""
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
        """Whether it ends in time: a whole trajectory by what its steps took, else the longest of its kind so far."""
        if self.settings.minutes is None:
            return True
        needed = self._longest.get(turn.kind, 0.0)
        if turn.kind == "whole" and turn.pair is not None:
            needed = 1.2 * (denoise_seconds(self.samples[turn.pair], self.plan) or 0.0)
        return time.monotonic() - self._started + needed <= 60 * self.settings.minutes

    def _variant(self, pair: Pair, whole: bool) -> Variant:
        """A method at work, warmed up; built once for single steps, and once for whole trajectories."""
        if (*pair, whole) not in self._variants:
            variant = self._build(*pair, self.plan if whole else sampling_plan(self.plan.steps))
            variant.run(WARM_UP_STEPS)
            self._variants[(*pair, whole)] = variant
        return self._variants[(*pair, whole)]

    def _sample(self, pair: Pair) -> None:
        variant = self._variant(pair, False)
        if not self.samples[pair].full_ms:
            self._count(pair, variant)
        self._book_sample(pair, variant.run(self.settings.sampled_steps))

    def _run_whole(self, pair: Pair) -> None:
        timing = self._variant(pair, True).run(self.plan.steps)
        self.samples[pair].whole_seconds.append(sum(timing.milliseconds) / 1000)

    def _build(self, method: str, compiled: bool, plan: Plan) -> Variant:
        backend = self.settings.backend if compiled else None
        return Variant(method, plan, self.transformer, self.inputs, proxy=self.settings.proxy, backend=backend)

    def _count(self, pair: Pair, variant: Variant) -> None:
        """Blocks and host synchronisations. Blocks are counted once, eagerly: counting would disturb compiled ones."""
        method, _ = pair
        if method not in self._blocks:
            counted = self._build(method, False, sampling_plan(self.plan.steps))
            self._blocks[method] = counted.count_blocks(COUNTED_STEPS)
        sample = self.samples[pair]
        sample.blocks_full, sample.blocks_reused = self._blocks[method]
        sample.syncs_per_step = variant.count_syncs(WARM_UP_STEPS)

    def _book_sample(self, pair: Pair, timing: Timing) -> None:
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

    def save(self, finished: bool) -> dict[str, Any]:
        """Write what is known by now."""
        without_proxy = {name: method.without_proxy for name, method in METHODS.items() if method.without_proxy}
        measured = [sample for sample in self.samples.values() if sample.full_ms or sample.note]
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
            "versions": {"galaxydit": __version__} | {name: _version(name) for name in PACKAGES},
            "settings": settings
            | {"methods": list(self.settings.methods or METHODS), "modes": list(self.settings.modes)},
            "model": asdict(self.preset) | {"tokens": self.size.tokens, "dtype": self.settings.dtype},
            "schedule": {"steps": self.plan.steps, "full": list(self.plan.full)},
            "rows": [latency_result.row_to(row) for row in rows_from(measured, self.plan, without_proxy)],
            "once": self.once,
            "host_microseconds_per_call": self.host,
            "finished": finished,
        }
        latency_result.save(self.out, data)
        return data


def _label(pair: Pair) -> str:
    return f"{pair[0]} ({'compiled' if pair[1] else 'eager'})"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
