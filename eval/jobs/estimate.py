"""The videos that a job has yet to make, and the seconds that they take."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

from galaxydit.eval.cost import cost_estimate as cost
from galaxydit.eval.cost.cost_estimate import BYTES_PER_PIXEL
from galaxydit.eval.jobs.job import FEWER_STEPS, PLUGIN, Job, Variant
from galaxydit.eval.jobs.record import BASELINE, SOUND, VIDEO, VideoRecord
from galaxydit.pipelines.disturbance import PLAIN, Timed, disturbance
from galaxydit.pipelines.published_models import Checkpoint
from galaxydit.pipelines.runs import Unit
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.request import Request

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline

TIMED_VIDEOS, TIMED_SECONDS = 10, 10.0


@dataclass(frozen=True)
class PlainCost:
    """The cost of a plain video."""

    denoise: float  # seconds of `steps` steps
    rest: float  # seconds, with metrics if measured
    steps: int | None = None
    watts: float | None = None  # mean over the video
    size: float = 0.0  # bytes of its files
    disturbed: str = ""  # what slowed the timing
    source: str = "a plain video"


@dataclass(frozen=True)
class VariantEstimate:
    """Videos of a variant to be made, with seconds, joules (None: unknown) and bytes of all of them."""

    variant: str
    videos: int
    seconds: float
    joules: float | None
    size: float
    source: str  # what it is estimated from


def plain_cost(records: Sequence[VideoRecord]) -> PlainCost | None:
    """Means over the plain videos, None without any."""
    plain = [record for record in records if record.variant == BASELINE]
    if (denoise := _mean(record.denoise_seconds for record in plain)) is None:
        return None
    rest = fmean(record.seconds - record.denoise_seconds for record in plain if record.denoise_seconds is not None)
    watts = _mean(record.avg_power_watts for record in plain)
    sizes = [sum(file.bytes for name, file in record.files.items() if name in (VIDEO, SOUND)) for record in plain]
    return PlainCost(denoise, rest, (plain[0].settings or {}).get("steps"), watts, fmean(sizes))


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def time_plain(job: Job) -> PlainCost:
    """As `time_short_videos`, of the job's first prompt and seed."""
    from galaxydit.eval.jobs.maker import load

    pipe, settings = load(job)
    return time_short_videos(pipe, job.prompts[0], settings, job.seeds_of(0)[0], BYTES_PER_PIXEL[job.video])


def time_short_videos(
    pipe: "DiffusionPipeline",
    prompt: str,
    settings: GenerationSettings,
    seed: int,
    bytes_per_pixel: float = 0.0,
    *,
    cpu_counter: bool = False,
) -> PlainCost:
    """The cost of a plain video, from the fastest of 2 to 10 videos of at most 3 steps, because other work only slows.

    The first one, which has one-time costs, does not count; from 10 s on none is added.
    """
    from galaxydit.pipelines.flac import encode_flac
    from galaxydit.pipelines.generate import generate
    from galaxydit.pipelines.trial import WARM_UP_STEPS

    steps = settings.steps or WARM_UP_STEPS
    timed = min(WARM_UP_STEPS, steps)
    short, started = replace(settings, steps=timed), time.monotonic()
    videos = [generate(pipe, prompt, short, seed)]
    while len(videos) < 2 or (len(videos) < TIMED_VIDEOS and time.monotonic() - started < TIMED_SECONDS):
        videos.append(generate(pipe, prompt, short, seed, cpu_counter=cpu_counter))
    video = min(videos[1:], key=lambda video: video.denoise_seconds)
    rest = min(video.end_to_end_seconds - video.denoise_seconds for video in videos[1:])
    size = bytes_per_pixel * video.frames.size / 3
    if video.sound is not None:
        size += len(encode_flac(video.sound))
    slowed = disturbance([Timed(PLAIN, video.denoise_seconds, 1.0, video.load, video.energy.is_shared)])
    return PlainCost(video.denoise_seconds * steps / timed, rest, steps, video.watts, size, slowed)


def predict_plain(job: Job, checkpoint: Checkpoint) -> PlainCost:
    """The predicted cost of a plain video of a published model, on the GPU of this machine, else on an H100."""
    import torch

    from galaxydit.eval.cost.hardware import GPUS, gpu_named

    gpu = gpu_named(torch.cuda.get_device_name()) if torch.cuda.is_available() else None
    settings = replace(checkpoint.settings, **job.settings)
    size, frames = f"{settings.width}x{settings.height}", settings.num_frames
    made = cost.estimate(job.model, gpu=(gpu or GPUS["H100"]).name, size=size, frames=frames, steps=settings.steps)
    denoise, whole = made.plain.denoise_s.value, made.plain.batch_latency_s.value
    bytes_of_file = BYTES_PER_PIXEL[job.video] * made.width * made.height * made.frames
    watts, source = made.plain.avg_power_watts.value, f"a prediction for one {made.gpu}"
    return PlainCost(denoise, whole - denoise, made.steps, watts, bytes_of_file, source=source)


def estimate(
    job: Job, left: Sequence[Unit], records: Sequence[VideoRecord], plain: PlainCost | None
) -> Iterator[VariantEstimate]:
    """The estimate of each variant with units `left`; without a `plain` cost only of variants with records."""
    counts = Counter(unit.data["variant"]["name"] for unit in left)
    for variant in job.variants:
        count, made = counts[variant.name], [record for record in records if record.variant == variant.name]
        if not count or not (made or plain):
            continue
        if made:
            seconds = fmean(record.seconds for record in made)
            joules = _mean(record.energy_per_video_joules for record in made)
            size = fmean(sum(file.bytes for file in record.files.values()) for record in made)
            source = "videos of this run"
        elif plain is not None:
            seconds = plain.denoise * denoise_share(variant, plain.steps) + plain.rest
            joules = plain.watts and plain.watts * seconds
            size, source = plain.size, plain.source
        total = None if joules is None else count * joules
        yield VariantEstimate(variant.name, count, count * seconds, total, count * size, source)


def denoise_share(variant: Variant, steps: int | None) -> float:
    """Expected denoising seconds of a variant / of `steps` plain steps; 1, an upper bound, if unknown."""
    options = variant.options
    if variant.method == PLUGIN:  # a limit of errors may cost any of the speed
        planned = None if "max_error" in options else Request(**options).planned_speedup
        return 1 / (planned or 1.0)
    if "speedup" in options:
        return 1 / float(options["speedup"])
    computed = options["steps"] if variant.method == FEWER_STEPS else len(options.get("full", ()))
    return float(computed / steps) if computed and steps else 1.0
