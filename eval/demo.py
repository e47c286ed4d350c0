"""The demo: each prompt is generated three times from the same noise.

The plain video is made without the plugin, the accelerated video with it, and a third one without it in half the steps.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any

from diffusers import DiffusionPipeline

import galaxydit
from galaxydit.errors import refusal
from galaxydit.eval.metrics import PSNR, SSIM
from galaxydit.files import write_json
from galaxydit.pipelines.disturbance import PLAIN, Timed, disturbance
from galaxydit.pipelines.generate import GeneratedVideo, generate
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.video import display_scale, save_video, side_by_side

WARM_UP_STEPS = 3
FILES = ("side-by-side.mp4", "baseline.mp4", "accelerated.mp4", "decisions.png", "report.json")


@dataclass(frozen=True)
class DemoSample:
    """One measured generation; `psnr` (dB) and `ssim` are against the plain video, and None for that video.

    compute_fraction: calls of transformer blocks / those of the plain generation; for the variant in half the
        steps, its steps / those of the plain generation.
    energy_per_video_joules: of the whole pipeline call; None without an energy counter.
    load, shared: see `GeneratedVideo`.
    """

    prompt: str
    seed: int
    denoise_seconds: float
    end_to_end_seconds: float
    compute_fraction: float
    psnr: float | None = None
    ssim: float | None = None
    energy_per_video_joules: float | None = None
    load: float | None = None
    shared: bool = False


@dataclass(frozen=True)
class DemoVariant:
    """One of the three ways to generate, with the measurements of one generation (`DemoSample`) for each prompt."""

    name: str
    samples: tuple[DemoSample, ...]

    def mean(self, field: str) -> float | None:
        """Mean of a field of `DemoSample` over the samples; None if one of them has no value."""
        values = [getattr(sample, field) for sample in self.samples]
        return None if None in values else fmean(values)

    def speedup(self, plain: "DemoVariant", field: str) -> float:
        """Seconds of `plain` / seconds of this variant, each summed over the samples.

        `field` is "denoise_seconds" or "end_to_end_seconds".
        """
        return sum(getattr(s, field) for s in plain.samples) / sum(getattr(s, field) for s in self.samples)


@dataclass(frozen=True)
class DemoResult:
    """Result of the demo: its measurements, and the files that it wrote.

    variants: plain, accelerated and half the steps, in this order.
    reports: of the accelerated generations, one for each prompt.
    files: paths of side-by-side.mp4, baseline.mp4, accelerated.mp4, decisions.png and report.json, in this order.
    """

    settings: GenerationSettings
    variants: tuple[DemoVariant, ...]
    reports: tuple[galaxydit.Report, ...]
    files: tuple[Path, ...]

    @property
    def plain(self) -> DemoVariant:
        """The variant without the plugin, with which the others are compared."""
        return self.variants[0]

    @property
    def disturbance(self) -> str:
        """Why the seconds must not be compared (`galaxydit.pipelines.disturbance`); empty if nothing shows that."""
        plain, accelerated, fewer = self.variants
        return disturbance(
            [
                Timed(way, sample.denoise_seconds, sample.compute_fraction, sample.load, sample.shared)
                for way, variant in ((PLAIN, plain), (accelerated.name, accelerated), (PLAIN, fewer))
                for sample in variant.samples
            ]
        )


def run_demo(
    pipe: DiffusionPipeline,
    prompts: Sequence[str],
    settings: GenerationSettings,
    seed: int,
    out: Path,
    *,
    acceleration: Mapping[str, Any],
    on_progress: Callable[[str], None],
    cpu_counter: bool = False,
) -> DemoResult:
    """Generate every prompt in three ways, prompt i from the noise of seed + i, and write the files to `out`.

    The files are baseline.mp4, accelerated.mp4, side-by-side.mp4 and decisions.png of the first prompt, and report.json
    of all prompts. A short generation comes first, so that one-time costs are not timed.

    Args:
        acceleration: arguments of `galaxydit.accelerate` by name, such as {"speedup": 2.0}.
        on_progress: receives a text on each stage, such as "warming up".
        cpu_counter: whether to read the CPU's energy counter, too.

    Raises GalaxyDiTError without prompts, and for fewer than 2 steps.
    """
    if not prompts:
        raise refusal("prompts", prompts, "at least one prompt", "pass a prompt")
    if settings.steps is None or settings.steps < 2:
        expected = "an integer from 2, because the demo also runs half of them"
        raise refusal("steps", settings.steps, expected, "pass for example 50")
    half_steps = settings.steps // 2
    names = ("plain", "accelerated", f"{half_steps} plain steps")
    samples: list[list[DemoSample]] = []  # by prompt, then by name
    reports: list[galaxydit.Report] = []
    videos: list[GeneratedVideo] = []

    galaxydit.accelerate(pipe, **acceleration).remove()  # refuses what it would refuse after the plain generation
    on_progress("warming up")
    generate(pipe, prompts[0], replace(settings, steps=min(WARM_UP_STEPS, settings.steps)), seed)
    for index, prompt in enumerate(prompts):
        place = f"prompt {index + 1} of {len(prompts)}"
        on_progress(f"{place}: {names[0]}")
        plain = generate(pipe, prompt, settings, seed + index, cpu_counter=cpu_counter)
        on_progress(f"{place}: {names[1]}")
        with galaxydit.accelerate(pipe, **acceleration) as handle:
            accelerated = generate(pipe, prompt, settings, seed + index, cpu_counter=cpu_counter)
            reports.append(replace(handle.report, plain_seconds=plain.denoise_seconds))
        on_progress(f"{place}: {names[2]}")
        fewer = generate(pipe, prompt, replace(settings, steps=half_steps), seed + index, cpu_counter=cpu_counter)
        fractions = (1.0, reports[-1].compute_fraction, half_steps / settings.steps)
        made = [plain, accelerated, fewer]
        samples.append([_measure(*each, plain) for each in zip(made, fractions, strict=True)])
        videos = videos or made

    variants = tuple(map(DemoVariant, names, zip(*samples, strict=True)))
    result = DemoResult(settings, variants, tuple(reports), tuple(out / name for name in FILES))
    on_progress("writing files")
    _write_files(result, videos, pipe)
    return result


def _measure(generation: GeneratedVideo, compute_fraction: float, plain: GeneratedVideo) -> DemoSample:
    same = generation is plain
    return DemoSample(
        prompt=generation.prompt,
        seed=generation.seed,
        denoise_seconds=generation.denoise_seconds,
        end_to_end_seconds=generation.end_to_end_seconds,
        compute_fraction=compute_fraction,
        psnr=None if same else PSNR(generation.frames, plain.frames),
        ssim=None if same else SSIM(generation.frames, plain.frames),
        energy_per_video_joules=generation.joules,
        load=generation.load,
        shared=generation.shared,
    )


def _write_files(result: DemoResult, videos: Sequence[GeneratedVideo], pipe: DiffusionPipeline) -> None:
    row, baseline, accelerated, decisions, report = result.files
    frames = [video.frames for video in videos]
    scale = display_scale(frames[0])
    fps = result.settings.fps
    labels = [_label(variant, result) for variant in result.variants]
    save_video(side_by_side(frames, labels, scale=scale), row, fps)
    save_video(frames[0], baseline, fps, scale=scale)
    save_video(frames[1], accelerated, fps, scale=scale)
    result.reports[0].plot(decisions)
    data = {
        "pipeline": type(pipe).__name__,
        "device": str(pipe.device),
        "settings": asdict(result.settings),
        "versions": {name: version(name) for name in ("galaxydit", "torch", "diffusers", "transformers")},
        "variants": [
            {
                "name": variant.name,
                "denoise_speedup": variant.speedup(result.plain, "denoise_seconds"),
                "end_to_end_speedup": variant.speedup(result.plain, "end_to_end_seconds"),
                "samples": [asdict(sample) for sample in variant.samples],
            }
            for variant in result.variants
        ],
        "disturbance": result.disturbance,
        "reports": [report.to_dict() for report in result.reports],
    }
    write_json(report, data)


def _label(variant: DemoVariant, result: DemoResult) -> str:
    """Name, seconds or speedup, and PSNR; the compute fraction instead of seconds that must not be compared."""
    first = variant.samples[0]
    speedup = f"{result.plain.samples[0].denoise_seconds / first.denoise_seconds:.2f}x"
    if result.disturbance:
        speedup = f"{first.compute_fraction:.0%} compute"
    elif first.psnr is None:
        speedup = f"{first.denoise_seconds:.1f} s"
    return f"{variant.name}, {speedup}" + ("" if first.psnr is None else f", {first.psnr:.1f} dB")
