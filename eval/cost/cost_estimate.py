"""Predicted cost of videos of a published model on a GPU, without weights and without a GPU."""

import re
from dataclasses import asdict, dataclass
from typing import Any

from galaxydit.errors import check_choice, check_count, check_number, proposing, refusal
from galaxydit.eval.cost.architecture import BYTES, Architecture, architecture_of, repository_name
from galaxydit.eval.cost.hardware import gpu_of, kernel_of
from galaxydit.eval.cost.operations import MASKED
from galaxydit.eval.cost.predict import Platform, Workload, fitted, predict, splits
from galaxydit.pipelines.published_models import CHECKPOINTS
from galaxydit.policies.policy import FEW_STEPS, GENERAL_FEW_STEPS
from galaxydit.request import Request

FIT = "constants fitted to published measurements and to those of this project (eval/cost/measurements.json)"
RANGE = "90 % of the measurements of models that the fit did not see lie in such intervals"
MEMORY_RANGE = (0.6, 1.6)  # eager kernels, allocator and VAE differ; no published measurement narrows it
LIVE_WIDTHS = 20  # values per token that a block of diffusers holds at its peak, in widths, without feed-forward
BYTES_PER_PIXEL = {"h264": 0.031, "lossless": 0.46}  # of an mp4 file of a natural clip; it varies with the content
LARGEST_PRICE = 1e12  # of a GPU hour; the price of all videos stays finite, because JSON has no infinity
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
    """Predicted cost of one video; `price` alone is that of all videos."""

    batch_latency_s: Interval  # from the prompt to the decoded video
    denoise_s: Interval  # with the plugin's share
    text_encoder_s: Interval
    decoder_s: Interval  # with the conversion of frames on the host
    plugin_s: Interval  # share of `denoise_s` of the block that reused steps run for the proxy
    energy_per_video_joules: Interval  # over all GPUs
    avg_power_watts: Interval  # over all GPUs
    peak_memory_bytes: Interval  # of one GPU
    plugin_bytes: int  # of one GPU, kept between transformer calls
    price: Interval | None  # None without the price of a GPU hour


@dataclass(frozen=True)
class Estimate:
    """The predicted cost of a model's videos, with the settings that it is predicted for."""

    model: str
    gpu: str
    gpus: int
    attention: str  # kernel, such as "cuDNN"
    compiled: bool
    split: str  # such as "Ulysses 4, ring 2"; "" for one GPU
    height: int  # pixels
    width: int
    frames: int
    steps: int
    videos: int  # that `Cost.price` is for
    speedup: float | None  # by compute; None for plain videos alone
    plain: Cost
    accelerated: Cost | None
    fits: bool  # whether the peak memory is below the GPU's
    sources: tuple[str, ...]  # of shapes, constants and intervals
    notes: tuple[str, ...] = ()  # what the speedup needs

    @property
    def saved_joules(self) -> float | None:
        """Joules that the plugin saves per video; None without a speedup."""
        if self.accelerated is None:
            return None
        return self.plain.energy_per_video_joules.value - self.accelerated.energy_per_video_joules.value

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, with `saved_joules`; some names are those of the ML.ENERGY leaderboard."""
        lists = {"sources": list(self.sources), "notes": list(self.notes)}
        return asdict(self) | lists | {"saved_joules": self.saved_joules}


@proposing
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
    reuse: str = "output",
    attention: str = "native",
    compiled: bool = False,
) -> Estimate:
    """The predicted seconds, joules, memory and price of a model's videos, plain and accelerated.

    Args:
        model: a name in `CHECKPOINTS`, or a hub id in architectures.json.
        gpu: a name in `hardware.GPUS`.
        speedup: by compute, from 1 to steps / 2 (2 for fewer than 4 steps); None predicts plain alone.
        size: such as "1280x720" pixels; size, frames and steps are by default the authors'.
        gpus: number of GPUs that share one video.
        ring: degree of ring attention, by default the fastest.
        videos: number of videos that the price is for.
        price: of one GPU hour, in any currency.
        reuse: what reused steps predict, as in `GalaxyDiTConfig`.
        attention: backend of diffusers' `set_attention_backend`; "native" is the installed PyTorch's choice.
        compiled: whether the transformer's blocks are compiled.

    Raises GalaxyDiTError for models, GPUs and backends without data, and values out of range.
    """
    shape, device = architecture_of(model), gpu_of(gpu)
    speedup = Request(speedup=speedup).speedup  # raises below 1
    gpus = check_count("gpus", gpus, 1)
    videos = check_count("videos", videos, 1)
    check_choice("reuse", reuse, ("output", "residual"))
    if price is not None:
        price = check_number("price", price, 0.0, LARGEST_PRICE)
    work = _workload(model, shape, size, frames, steps)
    if speedup is not None and speedup > (largest := max(2.0, work.steps / 2)):
        expected = f"at most {largest:g}, because at least 2 of {work.steps} steps are computed"
        raise refusal("speedup", speedup, expected, "pass for example 2")
    constants, _ = fitted()
    kernel = kernel_of(attention, device, masked=shape.family in MASKED)
    platforms = [Platform(device, kernel, compiled, *degrees) for degrees in splits(shape, gpus)]
    if ring is not None:
        allowed = [str(each.ring) for each in platforms]
        platforms = [each for each in platforms if each.ring == ring]
        if not platforms:
            because = f"because the Ulysses degree has to divide {shape.heads} heads"
            expected = f"one of {', '.join(allowed)} at {gpus} GPUs, {because}"
            raise refusal("ring", ring, expected, "choose one of these")
    platform = min(platforms, key=lambda each: predict(work, each, constants).seconds)
    plain = _cost(work, platform, 1.0, reuse, videos, price)
    accelerated = None
    if speedup is not None:
        accelerated = _cost(work, platform, 1 / speedup, reuse, videos, price)
    peak = (accelerated or plain).peak_memory_bytes.value
    shown = (work.height, work.width, work.frames, work.steps)
    return Estimate(
        model, device.name, gpus, kernel, compiled, platform.split, *shown, videos, speedup, plain, accelerated,
        peak < device.memory, _sources(shape, platform), _few_steps(work, speedup),
    )  # fmt: skip


def _few_steps(work: Workload, speedup: float | None) -> tuple[str, ...]:
    """A note that a speedup needs a profile, for so few steps that all are computed without one."""
    calls = work.steps - work.shape.uncalled_steps
    if speedup in (None, 1.0) or calls > GENERAL_FEW_STEPS:
        return ()
    if calls <= FEW_STEPS:
        return (f"{calls} steps are too few to reuse any, so all are computed and nothing is saved",)
    cure = "until `galaxydit calibrate` has made one, nothing is saved"
    return (f"{calls} steps are too few to reuse any without a profile, so {cure}",)


def _workload(model: str, shape: Architecture, size: str | None, frames: int | None, steps: int | None) -> Workload:
    """One video at the given or recommended settings. Raises GalaxyDiTError if they are not allowed, or unknown."""
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
    numbers = None
    if isinstance(size, str):
        numbers = re.fullmatch(r"(\d{1,5})x(\d{1,5})", size)
    unit = shape.vae.spatial
    if not numbers or any(int(side) < unit for side in numbers.groups()):
        raise refusal("size", size, f"WIDTHxHEIGHT with sides of at least {unit}", "pass for example 1280x720")
    frames = check_count("frames", frames, 1)
    steps = check_count("steps", steps, 1)
    return Workload(shape, int(numbers[2]), int(numbers[1]), frames, steps)


def _around_one(factor: float) -> Interval:
    return Interval(1.0, 1 / factor, factor)


def _cost(work: Workload, platform: Platform, fraction: float, reuse: str, videos: int, price: float | None) -> Cost:
    constants, errors = fitted()
    made = predict(work, platform, constants, fraction)
    least = errors.extrapolated.get(platform.name, 1.0)
    seconds = _around_one(max(least, errors.seconds_factor))
    joules = _around_one(max(least, errors.joules_factor))
    held = 0
    if fraction < 1:
        held = _held_bytes(work, reuse)
    total = seconds * made.seconds
    return Cost(
        batch_latency_s=total,
        denoise_s=seconds * made.denoising,
        text_encoder_s=seconds * made.text_encoder,
        decoder_s=seconds * (made.decoder + made.conversion),
        plugin_s=seconds * (made.denoising / fraction * _proxy_fraction(work.shape, fraction)),
        energy_per_video_joules=joules * made.joules,
        avg_power_watts=joules * (made.joules / made.seconds),
        peak_memory_bytes=_peak_bytes(work, platform.gpus, held),
        plugin_bytes=held,
        price=None if price is None else total * (price * platform.gpus * videos / 3600),
    )


def _proxy_fraction(shape: Architecture, fraction: float) -> float:
    """Compute fraction of the one block of one branch that each reused step runs, of a whole compute `fraction`."""
    # With the share r of reused steps, the compute fraction is f = (1 - r) + r p, so r = (1 - f) / (1 - p).
    probe = 1 / (shape.branches * (shape.blocks + shape.single_blocks + shape.control_blocks))
    return (1 - fraction) / (1 - probe) * probe


def _held_bytes(work: Workload, reuse: str) -> int:
    """Bytes that the plugin keeps of two full steps for each branch."""
    shape = work.shape
    size = (work.height, work.width, work.frames)
    if reuse == "output":
        prediction = shape.latent_bytes(*size)
    else:
        prediction = BYTES * shape.tokens(*size) * shape.width
    return shape.branches * PREDICTIONS_KEPT * prediction


def _peak_bytes(work: Workload, gpus: int, held: int) -> Interval:
    """Peak bytes of one GPU without offloading: weights, and the larger of a denoising block with `held` and decoding.

    The width of the interval (MEMORY_RANGE) is assumed, not measured.
    """
    shape = work.shape
    weights = BYTES * (shape.text_encoder.parameters + shape.vae.parameters)
    weights += shape.transformers * work.operations.weight_bytes
    tokens = shape.tokens(work.height, work.width, work.frames) + shape.text_tokens
    batch = 2 if shape.concatenates else 1
    block = BYTES * batch * tokens * (LIVE_WIDTHS * shape.width + 2 * shape.ffn_dim) / gpus
    features = 4 * BYTES * shape.vae.decoder_values_per_pixel * work.height * work.width * min(work.frames, 16)
    peak = weights + max(block + held, features)
    low, high = MEMORY_RANGE
    return Interval(peak, weights + low * (peak - weights), weights + high * (peak - weights))


def _sources(shape: Architecture, platform: Platform) -> tuple[str, ...]:
    verified = "" if shape.verified else ", not verified"
    fit = FIT
    interval = RANGE
    if platform.name in fitted()[1].extrapolated:
        fit += f", extrapolated by data sheets to {platform.name}"
        interval = "at least as wide as the largest known error on this GPU"
    if shape.family in MASKED:
        kernel = f"as slow as {platform.kernel}, because of a mask"
    else:
        kernel = platform.kernel
    notes = [f"shape: {shape.source}{verified}", f"attention: {kernel}", f"seconds and joules: {fit}"]
    notes.append(f"intervals: {interval}")
    notes.append("memory: shapes of the tensors alone, held to no measurement")
    if platform.gpus > 1:
        notes.append("several GPUs: weights, text encoding and decoding are repeated on each")
    return tuple(notes)
