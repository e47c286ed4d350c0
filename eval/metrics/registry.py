"""All metrics by name. To add a metric, write a file in this folder and add its `Metric` to `METRICS`."""

from collections.abc import Sequence

from galaxydit.errors import did_you_mean, noted, refusal
from galaxydit.eval.metrics.caption import CAPTION_COLOURS, CAPTION_MOTIONS
from galaxydit.eval.metrics.flicker import TEMPORAL_FLICKERING
from galaxydit.eval.metrics.metric import Metric, Video
from galaxydit.eval.metrics.perceptual import LPIPS
from galaxydit.eval.metrics.signal_to_noise import PSNR
from galaxydit.eval.metrics.structural import MS_SSIM, SSIM
from galaxydit.eval.metrics.vmaf import VMAF
from galaxydit.pipelines.video import check_frames

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (PSNR, SSIM, MS_SSIM, VMAF, LPIPS, TEMPORAL_FLICKERING, CAPTION_COLOURS, CAPTION_MOTIONS)
}


def select(names: Sequence[str]) -> tuple[Metric, ...]:
    """The metrics of these names. Raises GalaxyDiTError for an unknown one, and for missing packages or weights."""
    for name in names:
        if name not in METRICS:
            cure = f"check the spelling{did_you_mean(name, METRICS)}"
            raise refusal("metrics", name, f"one of {', '.join(METRICS)}", cure)
        if reason := METRICS[name].missing():
            raise refusal("metrics", name, "one that can be measured here", f"{reason}; or leave it out")
    return tuple(METRICS[name] for name in names)


def measure(
    video: Video, reference: Video | None, prompt: str, metrics: Sequence[Metric] = tuple(METRICS.values())
) -> tuple[dict[str, float], dict[str, str], dict[str, str]]:
    """Values, reasons why other metrics do not suit the video, and errors of those that raised, each by name.

    `reference` is the plain video, None if `video` is it. Raises ValueError for values out of range.
    """
    check_frames(video, "video")
    values: dict[str, float] = {}
    skipped: dict[str, str] = {}
    failures: dict[str, str] = {}
    for metric in metrics:
        with noted(failures, metric.name):
            reason = metric.missing() or metric.refusal(video.shape, prompt)
            if metric.needs_reference and reference is None:
                reason = "it compares with the baseline, which this video is"
            if reason:
                skipped[metric.name] = reason
            else:
                values[metric.name] = metric.function(video, reference, prompt)
    return values, skipped, failures
