"""All metrics by name: the `Metric` and `SoundMetric` values of the files in this folder."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

from galaxydit.errors import did_you_mean, listed, noted, refusal
from galaxydit.eval.metrics.metric import Metric, SoundMetric, Video
from galaxydit.pipelines.video import Sound, check_frames

SHOWN_FIRST = ("psnr", "ssim", "ms_ssim", "vmaf", "lpips", "si_sdr", "log_mel", "rms_ratio")


def metrics_in(folder: Path, package: str) -> Mapping[str, Metric | SoundMetric]:
    """The metrics in the files of a folder, by name: those of `SHOWN_FIRST`, then others by name of the file."""
    found: dict[str, Metric | SoundMetric] = {}
    for path in sorted(folder.glob("*.py")):
        if path.stem in ("__init__", Path(__file__).stem):  # this file would import itself
            continue
        for value in vars(import_module(f"{package}.{path.stem}")).values():
            if isinstance(value, Metric | SoundMetric):
                found[value.name] = value
    # Names in this order once; those of SHOWN_FIRST may be missing.
    order = dict.fromkeys((*SHOWN_FIRST, *found))
    return {name: found[name] for name in order if name in found}


METRICS = metrics_in(Path(__file__).parent, __package__)


def select(names: Sequence[str]) -> tuple[Metric | SoundMetric, ...]:
    """The metrics of these names. Raises GalaxyDiTError for an unknown one, and for missing packages or weights."""
    names = listed("metrics", names)
    for name in names:
        if name not in METRICS:
            cure = f"check the spelling{did_you_mean(name, METRICS)}"
            raise refusal("metrics", name, f"one of {', '.join(METRICS)}", cure)
        if reason := METRICS[name].missing():
            raise refusal("metrics", name, "one that can be measured here", f"{reason}; or leave it out")
    return tuple(METRICS[name] for name in names)


def measure(
    video: Video,
    reference: Video | None,
    prompt: str,
    metrics: Sequence[Metric | SoundMetric] = tuple(METRICS.values()),
    *,
    sound: Sound | None = None,
    reference_sound: Sound | None = None,
) -> tuple[dict[str, float], dict[str, str], dict[str, str]]:
    """Values, reasons why other metrics do not suit the video, and errors of those that raised, each by name.

    `reference` and `reference_sound` are of the plain video, None if `video` is it; a video may have no sound. Raises
    ValueError for values out of range.
    """
    check_frames(video, "video")
    values: dict[str, float] = {}
    skipped: dict[str, str] = {}
    failures: dict[str, str] = {}
    for metric in metrics:
        with noted(failures, metric.name):
            if metric.needs_reference and reference is None:
                reason: str | None = "it compares with the baseline, which this video is"
            elif isinstance(metric, SoundMetric):
                reason = metric.missing() or metric.refusal(sound, reference_sound)
            else:
                reason = metric.missing() or metric.refusal(video.shape, prompt)
            if reason:
                skipped[metric.name] = reason
            elif isinstance(metric, SoundMetric):
                values[metric.name] = metric(sound, reference_sound)
            else:
                values[metric.name] = metric.function(video, reference, prompt)
    return values, skipped, failures
