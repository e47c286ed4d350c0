"""The videos that a job has yet to make, and the seconds that they take.

A variant is a way to generate; a plain video is one of the variant without acceleration. A unit is the video of one
prompt, seed and variant (see job.py).
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from galaxydit.eval.cost.estimate import BYTES_PER_PIXEL
from galaxydit.eval.jobs.job import FEWER_STEPS, PLUGIN, Job, Variant
from galaxydit.eval.jobs.record import BASELINE, VIDEO, VideoRecord
from galaxydit.pipelines.runs import Record, Store, Unit
from galaxydit.request import Request


@dataclass(frozen=True)
class Cost:
    """Seconds of a plain video: `denoise` for all its `steps` (None: unknown), `rest` for everything else.

    `rest` covers text encoder and decoding, and, if the cost is a mean over records, also metrics and encoding. `watts`
    are the mean over the video, None without an energy counter, and `size` are bytes of its file.
    """

    denoise: float
    rest: float
    steps: int | None = None
    watts: float | None = None
    size: float = 0.0


@dataclass(frozen=True)
class Estimate:
    """Number of videos of a variant that are to be made, and seconds, joules (None: unknown) and bytes of one of them.

    is_measured: True if `seconds` is the mean over finished videos of this variant. False if it follows from the cost
    of a plain video and from the speedup or the steps in the variant's options.
    """

    variant: str
    videos: int
    seconds: float
    is_measured: bool
    joules: float | None = None
    size: float = 0.0


def units_left(
    units: Sequence[Unit], store: Store, *, retry_failed: bool = False, verify: bool = False
) -> tuple[list[Unit], list[Record]]:
    """The units that a run (`galaxydit.pipelines.runs.run`) would make, and the records of the units that are done.

    A run makes the units without a record and those with a damaged record or file; with `retry_failed`, also the failed
    units. With `verify`, a file is also damaged if its SHA-256 differs. Records with damage are left out.
    """
    kept, done = set(), []
    for unit_id, record, damage in store.survey([unit.id for unit in units], wholly=verify):
        if record is None or damage:
            continue
        if record.is_done:
            done.append(record)
        if record.is_done or not retry_failed:
            kept.add(unit_id)
    return [unit for unit in units if unit.id not in kept], done


def plain_cost(records: Sequence[VideoRecord]) -> Cost | None:
    """The seconds of one plain video, for denoising and for all else: means over the plain videos among the records.

    None without plain videos.
    """
    plain = [record for record in records if record.variant == BASELINE]
    denoise = [record.denoise_seconds for record in plain if record.denoise_seconds is not None]
    if not denoise:
        return None
    settings = plain[0].settings or {}
    rest = fmean(record.seconds for record in plain) - fmean(denoise)
    watts = _mean([record.avg_power_watts for record in plain])
    size = fmean(record.files[VIDEO].bytes if VIDEO in record.files else 0 for record in plain)
    return Cost(fmean(denoise), rest, settings.get("steps"), watts, size)


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean of the known values; None without any."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def time_plain(job: Job) -> Cost:
    """The cost of a plain video of the job. Loads the model and makes two plain videos of at most 3 steps.

    The cost is extrapolated from the second video, because the first includes one-time costs.
    """
    from galaxydit.eval.jobs.maker import WARM_UP_STEPS, load
    from galaxydit.pipelines.generate import generate

    pipe, settings = load(job)
    steps = settings.steps or WARM_UP_STEPS
    timed = min(WARM_UP_STEPS, steps)
    short = replace(settings, steps=timed)
    for _ in range(2):  # the first one takes the one-time costs
        video = generate(pipe, job.prompts[0], short, job.seeds_of(0)[0])
    rest = video.end_to_end_seconds - video.denoise_seconds
    watts = None if video.joules is None else video.joules / video.end_to_end_seconds
    size = BYTES_PER_PIXEL[job.video] * video.frames.size / 3
    return Cost(video.denoise_seconds * steps / timed, rest, steps, watts, size)


def estimate(job: Job, left: Sequence[Unit], records: Sequence[VideoRecord], plain: Cost | None) -> Iterator[Estimate]:
    """The estimate of each variant that has videos to be made, in the job's order.

    `left` are the units of the videos to be made, `records` those of the videos that are done (`units_left` returns
    both), `plain` is the cost of a plain video. If `plain` is None, a variant without a record is left out.
    """
    counts = Counter(unit.data["variant"]["name"] for unit in left)
    made = defaultdict(list)
    for record in records:
        made[record.variant].append(record)
    for variant in job.variants:
        if not counts[variant.name]:
            continue
        if measured := made[variant.name]:
            seconds = fmean(record.seconds for record in measured)
            joules = _mean([record.energy_per_video_joules for record in measured])
            size = fmean(sum(file.bytes for file in record.files.values()) for record in measured)
            yield Estimate(variant.name, counts[variant.name], seconds, True, joules, size)
        elif plain is not None:
            seconds = plain.denoise * denoise_share(variant, plain.steps) + plain.rest
            joules = plain.watts and plain.watts * seconds
            yield Estimate(variant.name, counts[variant.name], seconds, False, joules, plain.size)


def denoise_share(variant: Variant, steps: int | None) -> float:
    """Expected denoising seconds of a video of the variant / those of a plain video of `steps` steps (None: unknown).

    If these steps and the variant's options do not determine this quotient, it is 1, an upper bound.
    """
    options = variant.options
    if variant.method == PLUGIN:  # a limit of errors may cost any of the speed
        planned = None if "max_error" in options else Request(**options).planned_speedup
        return 1 / (planned or 1.0)
    if "speedup" in options:
        return 1 / float(options["speedup"])
    computed = options["steps"] if variant.method == FEWER_STEPS else len(options.get("full", ()))
    return float(computed / steps) if computed and steps else 1.0
