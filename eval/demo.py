"""The demo of any model: each prompt plain, accelerated, and plain in half the steps, from the same noise."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from statistics import fmean
from typing import Any

from diffusers import DiffusionPipeline
from PIL import Image

import galaxydit
from galaxydit.errors import listed, refusal
from galaxydit.eval.demo_frames import demo_frames, typical_frame
from galaxydit.eval.demo_sound import draw_sounds
from galaxydit.eval.jobs.estimate import time_short_videos
from galaxydit.eval.metrics import measure, select
from galaxydit.files import replacing
from galaxydit.pipelines.conditions import package_versions
from galaxydit.pipelines.disturbance import PLAIN, disturbance
from galaxydit.pipelines.flac import encode_flac
from galaxydit.pipelines.generate import GeneratedVideo
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.table import amounts
from galaxydit.pipelines.trial import Attach, accelerated, generate_with, plain, result_of
from galaxydit.pipelines.trial_result import TrialResult
from galaxydit.pipelines.video import display_scale, save_video
from galaxydit.pipelines.written_by import DEMO, png_mark, write_own_json

FILES = ("side-by-side.mp4", "side-by-side.png", "baseline.mp4", "accelerated.mp4", "decisions.png", "report.json")
SOUND_FILES = ("baseline.flac", "accelerated.flac", "sound.png")  # of a pipeline that makes sound
METRICS = ("psnr", "ssim", "si_sdr", "log_mel", "rms_ratio")
FIELDS = ("denoise_seconds", "end_to_end_seconds", "compute_fraction", "energy_per_video_joules", "load", "shared")


@dataclass(frozen=True)
class DemoResult:
    """The results of each prompt by way to generate (plain, accelerated and half the steps), and the written files.

    reports: of the accelerated generations. files: the paths of `FILES`, and with sound of `SOUND_FILES`.
    """

    settings: GenerationSettings
    cases: tuple[tuple[str, int], ...]
    ways: Mapping[str, tuple[TrialResult, ...]]
    reports: tuple[galaxydit.Report, ...]
    files: tuple[Path, ...]

    @property
    def plain(self) -> tuple[TrialResult, ...]:
        return next(iter(self.ways.values()))

    def mean(self, way: str, field: str) -> float | None:
        """Mean of a metric or of another field over the prompts; None if one of them has no value."""
        values: list[Any] = [
            each.metrics.get(field) if field in METRICS else getattr(each, field) for each in self.ways[way]
        ]
        return None if None in values else fmean(values)

    def reason(self, metric: str) -> str:
        """Why a metric has no value for some video beside the plain ones, "" if all have one."""
        for way in list(self.ways.values())[1:]:
            for each in way:
                if reason := each.skipped.get(metric) or each.failures.get(metric):
                    return reason
        return ""

    def speedup(self, way: str, field: str) -> float:
        """Seconds of the plain videos / seconds of a way, each summed over the prompts."""
        return sum(getattr(each, field) for each in self.plain) / sum(getattr(each, field) for each in self.ways[way])

    @property
    def disturbance(self) -> str:
        """Why the seconds must not be compared; empty if nothing shows that."""
        plain, second, third = self.ways
        names = {plain: PLAIN, second: second, third: PLAIN}
        return disturbance([each.timed(names[way]) for way, made in self.ways.items() for each in made])


def run_demo(
    pipe: DiffusionPipeline,
    prompts: Sequence[str],
    settings: GenerationSettings,
    seed: int,
    out: Path,
    *,
    acceleration: Mapping[str, Any],
    on_progress: Callable[[str], None],
) -> DemoResult:
    """Generate every prompt in three ways, prompt i from the noise of seed + i, and write the files to `out`.

    The videos, sounds and pictures are of the first prompt. Short generations come first, so that one-time costs are
    not timed. `acceleration` are arguments of `galaxydit.accelerate`; `on_progress` is told each stage and, beforehand,
    the expected seconds and joules. Raises GalaxyDiTError without prompts, and for fewer than 2 steps.
    """
    prompts = listed("prompts", prompts)
    if not prompts:
        raise refusal("prompts", prompts, "at least one prompt", "pass a prompt")
    if settings.steps is None or settings.steps < 2:
        expected = "an integer from 2, because the demo also runs half of them"
        raise refusal("steps", settings.steps, expected, "pass for example 50")
    half = settings.steps // 2
    ways: dict[str, tuple[GenerationSettings, Attach]] = {
        "plain": (settings, plain),
        "accelerated": (settings, partial(accelerated, **acceleration)),
        f"{half} plain steps": (replace(settings, steps=half), plain),
    }
    results: dict[str, list[TrialResult]] = {name: [] for name in ways}
    reports: list[galaxydit.Report] = []
    videos: list[GeneratedVideo] = []
    measured = partial(measure, metrics=select(METRICS))

    galaxydit.accelerate(pipe, **acceleration).remove()  # refuses what it would refuse after the plain generation
    on_progress("warming up")
    cost = time_short_videos(pipe, prompts[0], settings, seed, cpu_counter=True)
    seconds = len(prompts) * (2 * cost.denoise + 3 * cost.rest)  # the other two denoise about half as long
    joules = None if cost.watts is None else seconds * cost.watts
    on_progress(f"takes about {amounts(seconds, gpus=0, joules=joules)}")
    for index, prompt in enumerate(prompts):
        reference: GeneratedVideo | None = None
        for name, (chosen, attach) in ways.items():
            on_progress(f"prompt {index + 1} of {len(prompts)}: {name}")
            made = generate_with(pipe, prompt, chosen, seed + index, attach, cpu_counter=True)
            share = (chosen.steps or 0) / settings.steps if made.report is None else None
            results[name].append(result_of(pipe, made, reference, share, measure=measured))
            reference = reference or made
            if made.report is not None:
                reports.append(replace(made.report, plain_seconds=results["plain"][-1].denoise_seconds))
            if index == 0:
                videos.append(made)

    cases = tuple((prompt, seed + index) for index, prompt in enumerate(prompts))
    finished = {name: tuple(values) for name, values in results.items()}
    names = FILES + SOUND_FILES if all(video.sound is not None for video in videos) else FILES
    result = DemoResult(settings, cases, finished, tuple(reports), tuple(out / name for name in names))
    on_progress("writing files")
    _write_files(result, videos, pipe)
    return result


def _write_files(result: DemoResult, videos: Sequence[GeneratedVideo], pipe: DiffusionPipeline) -> None:
    row, picture, baseline, fast, decisions, report, *of_sound = result.files
    frames = [video.frames for video in videos]
    scale = display_scale(frames[0])
    fps = result.settings.fps
    measured = [measured_text(name, result) for name in result.ways]
    images = demo_frames(frames, list(result.ways), measured, result.reports[0])
    save_video(images, row, fps)
    with replacing(picture) as partly_written:
        typical = Image.fromarray(images[typical_frame(frames[-1], frames[0])])
        typical.save(partly_written, optimize=True, pnginfo=png_mark())
    save_video(frames[0], baseline, fps, scale=scale, sound=videos[0].sound)
    save_video(frames[1], fast, fps, scale=scale, sound=videos[1].sound)
    if of_sound:
        _write_sounds(dict(zip(result.ways, videos, strict=True)), *of_sound)
    plot = BytesIO()
    result.reports[0].plot(plot)
    with replacing(decisions) as partly_written, Image.open(plot) as image:
        image.save(partly_written, pnginfo=png_mark())
    data = {
        "pipeline": type(pipe).__name__,
        "device": str(pipe.device),
        "settings": asdict(result.settings),
        "versions": package_versions(),
        "variants": [_variant_data(result, name) for name in result.ways],
        "disturbance": result.disturbance,
        "reports": [report.to_dict() for report in result.reports],
    }
    write_own_json(report, DEMO, data)


def _variant_data(result: DemoResult, name: str) -> dict[str, Any]:
    samples = []
    for (prompt, seed), each in zip(result.cases, result.ways[name], strict=True):
        sample: dict[str, Any] = {"prompt": prompt, "seed": seed}
        sample |= {field: getattr(each, field) for field in FIELDS}
        sample |= {metric: each.metrics.get(metric) for metric in METRICS}
        samples.append(sample | {"skipped": dict(each.skipped)})
    return {
        "name": name,
        "denoise_speedup": result.speedup(name, "denoise_seconds"),
        "end_to_end_speedup": result.speedup(name, "end_to_end_seconds"),
        "samples": samples,
    }


def measured_text(name: str, result: DemoResult) -> str:
    """Seconds of denoising, speedup and PSNR of the first prompt; compute instead of seconds if these are disturbed."""
    plain, first = result.plain[0].denoise_seconds or 0.0, result.ways[name][0]
    parts = []
    if result.disturbance:
        parts.append(f"{first.compute_fraction:.0%} of the compute")
    else:
        parts.append(f"{first.denoise_seconds:.1f} s")
        if first is not result.plain[0]:
            parts.append(f"{plain / (first.denoise_seconds or 1.0):.2f}x")
    if (psnr := first.metrics.get("psnr")) is not None:
        parts.append(f"{psnr:.1f} dB")
    elif result.disturbance:
        parts.append("seconds disturbed")
    return ", ".join(parts)


def _write_sounds(videos: Mapping[str, GeneratedVideo], baseline: Path, fast: Path, picture: Path) -> None:
    sounds = {name: video.sound for name, video in videos.items() if video.sound is not None}
    for sound, path in zip(sounds.values(), (baseline, fast), strict=False):
        with replacing(path) as partly_written:
            partly_written.write_bytes(encode_flac(sound))
    draw_sounds(sounds, picture)
