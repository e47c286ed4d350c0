"""Predicted cost of videos of a published model on a GPU, without weights and without a GPU.

A plain video is generated without the plugin, an accelerated one with it. A block evaluation is one call of one
transformer block.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from galaxydit.errors import check_choice, check_count, check_number, refusal
from galaxydit.eval.cost.architecture import BYTES, Architecture, architecture_of, repository_name
from galaxydit.eval.cost.hardware import Gpu, gpu_of
from galaxydit.eval.cost.predict import Prediction, Split, Workload, fitted, predict, splits
from galaxydit.pipelines.published_models import CHECKPOINTS
from galaxydit.request import Request

FIT = "constants fitted to 206 published measurements (ML.ENERGY leaderboard v3, xDiT, bfloat16)"
RANGE = "90 % of the measurements of models that the fit did not see lie in such intervals"
MEMORY_RANGE = (0.6, 1.6)  # eager kernels, allocator and VAE differ; no published measurement narrows it
LIVE_WIDTHS = 20  # values per token that a block of diffusers holds at its peak, in widths, without feed-forward
PREDICTIONS_KEPT = 2  # outputs of each branch that the plugin keeps, one for each order of its extrapolation


@dataclass(frozen=True)
class Interval:
    """A predicted value, and the bounds between which the measured value is expected."""

    value: float
    low: float
    high: float

    def __mul__(self, factor: float) -> "Interval":
        return Interval(self.value * factor, self.low * factor, self.high * factor)


@dataclass(frozen=True)
class Cost:
    """Predicted cost of one video; `price` alone is that of all videos.

    Attributes:
        batch_latency_s: seconds from the prompt to the decoded video.
        denoise_s: seconds of the transformer, the plugin's share included.
        text_encoder_s, decoder_s: seconds outside the transformer, which no reuse shortens.
        plugin_s: the plugin's share of `denoise_s`: seconds of the block that each reused step still runs, so that the
            plugin can measure the change of its output; 0 without the plugin.
        energy_per_video_joules: sum over all GPUs.
        avg_power_watts: mean over the seconds, sum over all GPUs.
        peak_memory_bytes: of one GPU.
        plugin_bytes: bytes of one GPU that the plugin keeps between transformer calls; 0 without the plugin.
        price: of all videos, from the price of a GPU hour; None if that price was not given.
    """

    batch_latency_s: Interval
    denoise_s: Interval
    text_encoder_s: Interval
    decoder_s: Interval
    plugin_s: Interval
    energy_per_video_joules: Interval
    avg_power_watts: Interval
    peak_memory_bytes: Interval
    plugin_bytes: int
    price: Interval | None


@dataclass(frozen=True)
class Estimate:
    """The predicted cost of a model's videos, with the settings that it is predicted for.

    Attributes:
        split: how the GPUs share a video, such as "Ulysses 4, ring 2"; "" for one GPU.
        height, width: in pixels.
        videos: number of videos that `Cost.price` is for.
        speedup: block evaluations of a plain video / of an accelerated one; None if only plain videos were asked for.
        plain, accelerated: predicted cost without and with the plugin; `accelerated` is None without a speedup.
        fits: whether the expected peak memory, with the plugin if there is a speedup, is below the GPU's memory.
        sources: where the shapes, the constants and the intervals come from.
    """

    model: str
    gpu: str
    gpus: int
    split: str
    height: int
    width: int
    frames: int
    steps: int
    videos: int
    speedup: float | None
    plain: Cost
    accelerated: Cost | None
    fits: bool
    sources: tuple[str, ...]

    @property
    def saved_joules(self) -> float | None:
        """Joules that the plugin saves per video, plain - accelerated (`Interval.value`); None without a speedup."""
        if self.accelerated is None:
            return None
        return self.plain.energy_per_video_joules.value - self.accelerated.energy_per_video_joules.value

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: all fields and `saved_joules`, under their own names.

        "plain" and "accelerated" are dicts of the fields of `Cost`, each an `Interval` as a dict of "value", "low" and
        "high"; but "plugin_bytes" is a number, and "price" may be None. Of their keys, batch_latency_s,
        energy_per_video_joules and avg_power_watts are names of the ML.ENERGY leaderboard. "accelerated" and
        "saved_joules" are None without a speedup.
        """
        return asdict(self) | {"sources": list(self.sources), "saved_joules": self.saved_joules}


def estimate(
    model: str,
    *,
    gpu: str = "H100",
    speedup: float | None = None,
    size: str | None = None,
    frames: int | None = None,
    steps: int | None = None,
    gpus: int = 1,
    ring: int | None = None,
    videos: int = 1,
    price: float | None = None,
    reuse: str | None = None,
) -> Estimate:
    """The predicted seconds, joules, memory and price of a model's videos, plain and accelerated.

    Args:
        model: a name in `CHECKPOINTS`, or a hub id in architectures.json.
        gpu: "H100" or "B200", in capital or small letters.
        speedup: block evaluations of a plain video / of an accelerated one, from 1 to steps / 2 (2 for
            fewer than 4 steps); None predicts plain alone.
        size: width and height in pixels, such as "1280x720"; by default the size that the model's authors recommend.
        frames, steps: by default the values that the model's authors recommend.
        gpus: GPUs that share one video by context parallelism.
        ring: degree of ring attention, a divisor of `gpus`; by default the degree with the fewest predicted seconds.
        videos: number of videos that the price is for.
        price: of one GPU hour, in any currency; None predicts no price.
        reuse: what the plugin keeps of full steps, "output" (the transformer's output) or "residual" (what its block
            stack adds to its input); by default the value in the model's profile, or "output" if the model has none.

    Raises GalaxyDiTError for a model without a known shape, a GPU without measurements, and values out of range.
    """
    shape, device = architecture_of(model), gpu_of(gpu)
    Request(speedup=speedup)  # raises for a speedup below 1
    check_count("gpus", gpus, 1)
    check_count("videos", videos, 1)
    reuse = reuse or _default_reuse(shape)
    check_choice("reuse", reuse, ("output", "residual"))
    if price is not None:
        check_number("price", price, 0.0)
    work = _workload(model, shape, size, frames, steps)
    if speedup is not None and speedup > (largest := max(2.0, work.steps / 2)):
        expected = f"at most {largest:g}, because at least 2 of {work.steps} steps are computed"
        raise refusal("speedup", speedup, expected, "pass for example 2")
    constants, _ = fitted()
    candidates = _splits(shape, gpus, ring)
    split = min(candidates, key=lambda split: predict(work, device, constants, split).seconds)

    def cost(fraction: float) -> Cost:
        return _cost(work, device, split, fraction, reuse, videos, price)

    plain = cost(1.0)
    accelerated = None if speedup is None else cost(1 / speedup)
    peak = (accelerated or plain).peak_memory_bytes.value
    shown = (work.height, work.width, work.frames, work.steps)
    return Estimate(
        model, device.name, gpus, split.name, *shown, videos, speedup, plain, accelerated, peak < device.memory,
        _sources(shape, gpus),
    )  # fmt: skip


def _workload(model: str, shape: Architecture, size: str | None, frames: int | None, steps: int | None) -> Workload:
    """One video at the given settings; a setting that is None gets the value that the model's authors recommend.

    `size` is width and height in pixels, such as "1280x720". Raises GalaxyDiTError for a value that is not allowed, and
    for None if no value is known for the model.
    """
    by_name = {repository_name(checkpoint.hub_id): checkpoint for checkpoint in CHECKPOINTS.values()}
    known = CHECKPOINTS.get(model) or by_name.get(repository_name(model))
    settings = known.settings if known else None
    if settings is not None:
        frames = settings.num_frames if frames is None else frames
        steps = settings.steps if steps is None else steps
        size = f"{settings.width}x{settings.height}" if size is None else size
    if size is None or frames is None or steps is None:
        expected = "size, frames and steps, because this project knows no settings of the model"
        raise refusal("model", model, expected, "pass size, frames and steps")
    numbers = re.fullmatch(r"(\d{1,5})x(\d{1,5})", size) if isinstance(size, str) else None
    unit = shape.vae.spatial
    if not numbers or any(int(side) < unit for side in numbers.groups()):
        raise refusal("size", size, f"WIDTHxHEIGHT with sides of at least {unit}", "pass for example 1280x720")
    check_count("frames", frames, 1)
    check_count("steps", steps, 1)
    return Workload(shape, int(numbers[2]), int(numbers[1]), frames, steps)


def _splits(shape: Architecture, gpus: int, ring: int | None) -> Sequence[Split]:
    possible = splits(shape, gpus)
    if ring is None:
        return possible
    check_count("ring", ring, 1)
    chosen = [split for split in possible if split.ring == ring]
    if not chosen:
        allowed = ", ".join(str(split.ring) for split in possible)
        expected = f"one of {allowed} at {gpus} GPUs, because the Ulysses degree has to divide {shape.heads} heads"
        raise refusal("ring", ring, expected, "choose one of these")
    return chosen


def _cost(
    work: Workload, gpu: Gpu, split: Split, fraction: float, reuse: str, videos: int, price: float | None
) -> Cost:
    constants, errors = fitted()
    made = predict(work, gpu, constants, split, fraction)

    def seconds(value: float) -> Interval:
        return Interval(value, value / errors.seconds_factor, value * errors.seconds_factor)

    def joules(value: float) -> Interval:
        return Interval(value, value / errors.joules_factor, value * errors.joules_factor)

    held = 0 if fraction == 1 else _held_bytes(work, reuse)
    total = seconds(made.seconds)
    return Cost(
        batch_latency_s=total,
        denoise_s=seconds(made.denoising),
        text_encoder_s=seconds(made.text_encoder),
        decoder_s=seconds(made.decoder),
        plugin_s=seconds(_plugin_seconds(work, made, fraction)),
        energy_per_video_joules=joules(made.joules),
        avg_power_watts=joules(made.joules / made.seconds),
        peak_memory_bytes=_peak_bytes(work, split, held),
        plugin_bytes=held,
        price=None if price is None else total * (price * split.gpus * videos / 3600),
    )


def _plugin_seconds(work: Workload, made: Prediction, fraction: float) -> float:
    """Seconds per video that reused steps take to measure the change of a block's output; part of `made.denoising`.

    A reused step reuses earlier outputs and runs one block of one guidance branch, for this measurement alone.
    `made`: the prediction for a video whose block evaluations are `fraction` of those of a plain video.
    """
    blocks = work.shape.branches * (work.shape.blocks + work.shape.single_blocks + work.shape.control_blocks)
    probe = 1 / blocks  # compute fraction of a reused step
    reused = (1 - fraction) / (1 - probe)
    return made.denoising * reused * probe / fraction


def _default_reuse(shape: Architecture) -> str:
    """The `reuse` of `estimate`, "output" or "residual", in the shipped profile of this architecture; else "output"."""
    own = {"num_layers": shape.blocks, "num_attention_heads": shape.heads, "attention_head_dim": shape.head_dim}
    plain = (shape.transformers, shape.control_blocks, shape.single_blocks) == (1, 0, 0)
    for path in Path(str(files("galaxydit") / "profiles")).glob("*.json"):
        profile = json.loads(path.read_text(encoding="utf-8"))  # plain data, because `read_profile` imports torch
        models = (profile["model"], *profile["shared_with"])
        if plain and any(own.items() <= model["config"].items() for model in models):
            return str(profile["recipe"]["reuse"])
    return "output"


def _held_bytes(work: Workload, reuse: str) -> int:
    """Bytes that the plugin keeps: those of two full steps for each guidance branch.

    `reuse` says of what: "output" of the transformer's outputs, "residual" of what its block stack adds to its input.
    """
    shape, size = work.shape, (work.height, work.width, work.frames)
    prediction = shape.latent_bytes(*size) if reuse == "output" else BYTES * shape.tokens(*size) * shape.width
    return shape.branches * PREDICTIONS_KEPT * prediction


def _peak_bytes(work: Workload, split: Split, held: int) -> Interval:
    """Peak memory of one GPU without offloading, in bytes: the weights, plus what denoising or decoding needs.

    Denoising needs a block's tensors, which the GPUs of `split` share, and the `held` bytes of the plugin; decoding
    needs the VAE's features. The larger of the two needs counts. The interval reaches from 0.6 to 1.6 times this need
    (MEMORY_RANGE), weights added; its width is assumed, not measured.
    """
    shape = work.shape
    weights = shape.transformers * work.operations.weight_bytes
    weights += BYTES * (shape.text_encoder.parameters + shape.vae.parameters)
    tokens = shape.tokens(work.height, work.width, work.frames) + shape.text_tokens
    batch = shape.branches if shape.concatenates else 1
    block = BYTES * batch * tokens * (LIVE_WIDTHS * shape.width + 2 * shape.ffn_dim) / split.gpus
    features = 4 * BYTES * shape.vae.decoder_values_per_pixel * work.height * work.width * min(work.frames, 16)
    peak = weights + max(block + held, features)
    low, high = MEMORY_RANGE
    return Interval(peak, weights + low * (peak - weights), weights + high * (peak - weights))


def _sources(shape: Architecture, gpus: int) -> tuple[str, ...]:
    verified = "" if shape.verified else ", not verified"
    notes = [f"shape: {shape.source}{verified}", f"seconds and joules: {FIT}", f"intervals: {RANGE}"]
    notes.append("memory: shapes of the tensors alone, held to no measurement")
    if gpus > 1:
        notes.append("several GPUs: weights, text encoding and decoding are repeated on each")
    return tuple(notes)
