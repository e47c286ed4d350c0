"""Scores from measured videos: means of each setting, PSNR at equal compute, and intervals over prompts.

Speedups are by operations, except where seconds are named.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from statistics import fmean
from typing import Any

from galaxydit.calibration.bootstrap import interval
from galaxydit.eval.compare.tune import pareto_front
from galaxydit.eval.jobs.record import VideoRecord
from galaxydit.eval.methods.method_registry import ABLATION, OWN, source_of
from galaxydit.pipelines.disturbance import PLAIN, Timed, disturbance
from galaxydit.pipelines.psnr import HIGHEST_PSNR

SAME_SPEEDUP = 1e-4  # relative; counts of operations are rounded


@dataclass(frozen=True)
class ScoredSetting:
    """Means of one method at one setting over all scored prompts and seeds.

    The speedups are seconds of the plain videos / seconds of the method, both summed. PSNRs are in dB; `psnr_min` is
    that of the worst video, `psnr_of_prompt` the mean over seeds. `bytes_held` is the largest of all videos. Means of
    sound are None unless each video has a value.
    `disturbance` says why the seconds must not be compared; `video` is the path of the first one in the folder.
    """

    method: str
    setting: Mapping[str, Any]
    compute_fraction: float
    denoise_seconds: float
    end_to_end_seconds: float
    denoise_speedup: float
    end_to_end_speedup: float
    psnr_mean: float
    psnr_min: float
    ssim_mean: float
    bytes_held: int | None
    n: int
    psnr_of_prompt: tuple[float, ...]
    energy_per_video_joules: float | None = None
    disturbance: str = ""
    source: str = ""
    video: str = ""
    si_sdr_mean: float | None = None
    log_mel_mean: float | None = None
    rms_ratio_mean: float | None = None

    @property
    def compute_speedup(self) -> float:
        return 1 / self.compute_fraction

    @property
    def changes_every_video(self) -> bool:
        """Whether no video equals the plain one, whose PSNR stands for infinity."""
        return max(self.psnr_of_prompt) < HIGHEST_PSNR


@dataclass(frozen=True)
class AtSpeedup:
    """A method's scores at a wanted speedup, None if its settings are all slower or all faster.

    settings: the two settings between which the scores are interpolated, or the one that is used as it is; the nearest
        if the speedup is out of reach. speedups: those of `settings`.
    psnr, psnr_worst: mean over prompts and worst prompt, dB. denoise_speedup: by seconds.
    si_sdr: mean over prompts, dB; None without sound.
    ahead: PSNR less that of `best_other`, mean over prompts, with its 95 % interval (None for fewer than two prompts).
    best_other: the other method with the highest PSNR. Two versions of this project's plugin, or two of its ablations,
        are compared only if no other method reaches the speedup.
    """

    method: str
    speedup: float
    settings: tuple[Mapping[str, Any], ...]
    speedups: tuple[float, ...]
    psnr: float | None = None
    psnr_worst: float | None = None
    ssim: float | None = None
    si_sdr: float | None = None
    denoise_speedup: float | None = None
    psnr_of_prompt: tuple[float, ...] = ()
    ahead: float | None = None
    ahead_low: float | None = None
    ahead_high: float | None = None
    best_other: str | None = None
    disturbance: str = ""

    @property
    def is_interpolated(self) -> bool:
        """Whether the scores lie between those of two settings, of which no video was made at this speedup."""
        return len(self.settings) > 1


def score(
    method: str,
    setting: Mapping[str, Any],
    records: Sequence[VideoRecord],
    baselines: Sequence[VideoRecord],
    seeds: int = 1,
) -> ScoredSetting:
    """The means of one method at one setting; `seeds` consecutive records belong to one prompt.

    `baselines` have the seconds of plain videos that the method's process has not timed itself.
    """
    plain = {record.pair: record for record in baselines}
    psnrs = [record.metrics["psnr"] for record in records]
    held = [record.bytes_held for record in records if record.bytes_held is not None]
    joules = [each.energy_per_video_joules for each in records if each.energy_per_video_joules is not None]

    def seconds(kind: str) -> tuple[float, float]:
        own = sum(getattr(record, kind) for record in records)
        return own, sum(getattr(each, f"plain_{kind}") or getattr(plain[each.pair], kind) for each in records)

    (denoise, plain_denoise), (end_to_end, plain_end) = seconds("denoise_seconds"), seconds("end_to_end_seconds")
    timed = [Timed(PLAIN, each.plain_denoise_seconds or plain[each.pair].denoise_seconds or 0, 1.0) for each in records]
    timed += [record.timed(method) for record in records]
    return ScoredSetting(
        method=method,
        setting=dict(setting),
        compute_fraction=fmean(record.compute_fraction or 1.0 for record in records),
        denoise_seconds=denoise / len(records),
        end_to_end_seconds=end_to_end / len(records),
        denoise_speedup=plain_denoise / denoise,
        end_to_end_speedup=plain_end / end_to_end,
        psnr_mean=fmean(psnrs),
        psnr_min=min(psnrs),
        ssim_mean=fmean(record.metrics["ssim"] for record in records),
        bytes_held=max(held, default=None),
        n=len(records),
        psnr_of_prompt=tuple(fmean(psnrs[first : first + seeds]) for first in range(0, len(psnrs), seeds)),
        energy_per_video_joules=fmean(joules) if len(joules) == len(records) else None,
        disturbance=disturbance(timed),
        source=source_of(method),
        video=records[0].video or "",
        si_sdr_mean=_mean(records, "si_sdr"),
        log_mel_mean=_mean(records, "log_mel"),
        rms_ratio_mean=_mean(records, "rms_ratio"),
    )


def _mean(records: Sequence[VideoRecord], metric: str) -> float | None:
    """The mean of a metric, None unless each record has it."""
    values = [record.metrics[metric] for record in records if metric in record.metrics]
    return fmean(values) if len(values) == len(records) else None


def at_speedup(rows: Sequence[ScoredSetting], speedup: float) -> AtSpeedup:
    """One method's scores at a speedup, interpolated prompt by prompt, linearly in log(speedup).

    A setting with this measured speedup is used as it is. Settings off the Pareto front of speedup and PSNR are
    ignored, except one that has this speedup as its parameter, because users who request the speedup get it. If all
    slower settings are ignored, the slowest of the front is used as it is: it is faster and better. Settings that left
    a video unchanged are ignored unless all did, because their PSNR of 120 dB stands for infinity. Without a slower or
    without a faster setting, the result has no scores.
    """
    changing = [row for row in rows if row.changes_every_video] or rows
    best = pareto_front(changing, attrgetter("compute_speedup", "psnr_mean"))
    asking = [row for row in changing if row.setting.get("speedup") == speedup]
    same = [row for row in (*asking, *best) if math.isclose(row.compute_speedup, speedup, rel_tol=SAME_SPEEDUP)]
    slower = [row for row in best if row.compute_speedup < speedup]
    faster = [row for row in best if row.compute_speedup > speedup]
    used = same[:1] or [*slower[-1:], *faster[:1]]
    settings, speedups = tuple(row.setting for row in used), tuple(row.compute_speedup for row in used)
    left, right = used[0], used[-1]
    result = AtSpeedup(left.method, speedup, settings, speedups)
    if not same and left is right and not min(row.compute_speedup for row in changing) < speedup < speedups[0]:
        return result
    share = 0.0 if left is right else math.log(speedup / speedups[0]) / math.log(speedups[1] / speedups[0])

    def between(a: float, b: float) -> float:
        return a + share * (b - a)

    si_sdr = None
    if left.si_sdr_mean is not None and right.si_sdr_mean is not None:
        si_sdr = between(left.si_sdr_mean, right.si_sdr_mean)
    prompts = tuple(between(a, b) for a, b in zip(left.psnr_of_prompt, right.psnr_of_prompt, strict=True))
    return replace(
        result,
        psnr=fmean(prompts),
        psnr_worst=min(prompts),
        ssim=between(left.ssim_mean, right.ssim_mean),
        si_sdr=si_sdr,
        denoise_speedup=between(left.denoise_speedup, right.denoise_speedup),
        psnr_of_prompt=prompts,
        disturbance=left.disturbance or right.disturbance,
    )


def compare_at(rows: Sequence[ScoredSetting], speedup: float) -> list[AtSpeedup]:
    """The scores of each method, highest PSNR first; methods that do not reach the speedup come last."""
    names = list(dict.fromkeys(row.method for row in rows))
    results = [at_speedup([row for row in rows if row.method == name], speedup) for name in names]
    reached = sorted((each for each in results if each.psnr is not None), key=lambda each: -(each.psnr or 0.0))
    compared = []
    for result in reached:
        others = [other for other in reached if other is not result]
        best = min(others, key=lambda other: _are_variants(result.method, other.method), default=None)
        if best is not None:
            pairs = zip(result.psnr_of_prompt, best.psnr_of_prompt, strict=True)
            differences = [own - other for own, other in pairs]
            low, high = interval(differences)
            result = replace(result, ahead=fmean(differences), ahead_low=low, ahead_high=high, best_other=best.method)
        compared.append(result)
    return compared + [result for result in results if result.psnr is None]


def _are_variants(method: str, other: str) -> bool:
    return source_of(method) in (OWN, ABLATION) and source_of(method) == source_of(other)
