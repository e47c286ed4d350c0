"""Makes the animation of the README: `python -m galaxydit.eval.readme_animation`.

It makes one video of wan-tiny plain and at each of `SPEEDUPS`, and puts them side by side, with seconds and PSNR under
each. The caption is the one whose PSNRs are nearest to the means of the committed comparison, so that the animation
shows the usual case and not the best one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from textwrap import wrap
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.compare.plan import SCORING_SEED
from galaxydit.eval.compared import RESULTS, ResultsFile
from galaxydit.eval.protocol_data import FLOAT32, protocol_data, runs_of
from galaxydit.files import replacing, write_json
from galaxydit.pipelines.conditions import conditions_of, device_name, package_versions
from galaxydit.pipelines.disturbance import PLAIN, disturbance
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.trial import accelerated, generate_with, plain, result_of
from galaxydit.pipelines.trial_result import TrialResult
from galaxydit.pipelines.video import enlarge, side_by_side, to_uint8

MODEL = "wan-tiny"
SPEEDUPS = (2.0, 3.0)
NAME, DATA = "demo.webp", "demo.json"
SCALE = 4  # the size on a page, so that browsers do not blur the pixels
LAST_FRAME = 3  # times as long as the others
LINE_HEIGHT, FONT_SIZE, MARGIN = 22, 15, 6  # pixels
WARM_UP_STEPS = 2


@dataclass(frozen=True)
class UsualCase:
    """A scored video of the committed comparison, and the mean PSNR of all captions by speedup, in dB."""

    run: ResultsFile
    caption: str
    seed: int  # of its noise
    psnrs: Mapping[float, float]
    means: Mapping[float, float]
    captions: int


def usual_case(results: Path = RESULTS) -> UsualCase:
    """The caption whose PSNRs at `SPEEDUPS` are together nearest to the means, from protocol 2.

    Raises GalaxyDiTError without data.
    """
    data = protocol_data(results, FLOAT32)
    at = {speedup: data.at(speedup).psnrs for speedup in SPEEDUPS}
    means = {speedup: fmean(psnrs.values()) for speedup, psnrs in at.items()}

    def distance(caption: str) -> float:
        return sum(abs(at[speedup][caption] - means[speedup]) for speedup in SPEEDUPS)

    caption = min(data.captions, key=distance)
    run = next(run for run in runs_of(results, FLOAT32) if caption in run.captions)
    noise = SCORING_SEED + int(run.seeds) + run.captions.index(caption)
    psnrs = {speedup: at[speedup][caption] for speedup in SPEEDUPS}
    return UsualCase(run, caption, noise, psnrs, means, len(data.captions))


def make_animation(results: Path = RESULTS) -> Path:
    """Generate the videos and write `NAME` and its data `DATA` to the folder of results; returns the animation's path.

    Raises GalaxyDiTError if the committed comparison was made with other weights than those of wan-tiny.
    """
    case = usual_case(results)
    conditions = case.run.data["conditions"]
    settings = GenerationSettings(**conditions["settings"])
    pipe = load_pipeline(MODEL, dtype=getattr(torch, conditions["dtype"]))
    weights = conditions_of(pipe, settings)["weights"]
    if weights != conditions["weights"]:
        raise GalaxyDiTError(
            f"{case.run.path} holds results of other weights than those of {MODEL}, so another caption may be the "
            f"usual one now; repeat the comparison first: {case.run.command()}"
        )
    generate_with(pipe, case.caption, replace(settings, steps=WARM_UP_STEPS), case.seed)  # one-time costs
    ways = {"plain": plain} | {f"speedup={at:g}": partial(accelerated, speedup=at) for at in SPEEDUPS}
    videos = {name: generate_with(pipe, case.caption, settings, case.seed, attach) for name, attach in ways.items()}
    reference = videos["plain"]
    trials = {
        name: result_of(pipe, video, None if video is reference else reference, 1.0 if video is reference else None)
        for name, video in videos.items()
    }
    names = {name: PLAIN if name == "plain" else name for name in ways}
    disturbed = disturbance([trial.timed(names[name]) for name, trial in trials.items()])
    parameters = sum(weight.numel() for weight in pipe.transformer.parameters())
    frames = animation_frames(
        [to_uint8(video.frames) for video in videos.values()],
        list(ways),
        [measured_text(trial, disturbed) for trial in trials.values()],
        caption_text(case, settings, parameters, f"{conditions['dtype']} on {device_name(pipe)}", disturbed),
    )
    save_animation(frames, settings.fps, results / NAME)
    write_json(results / DATA, _data_of(case, trials, disturbed, device_name(pipe), weights))
    return results / NAME


def measured_text(trial: TrialResult, disturbed: str) -> str:
    """Seconds of denoising and PSNR; the share of the compute where other work disturbed the seconds."""
    seconds = f"{trial.denoise_seconds:.1f} s"
    if disturbed:
        seconds = f"{trial.compute_fraction:.0%} of the compute"
    psnr = trial.metrics.get("psnr")
    return seconds if psnr is None else f"{seconds}, {psnr:.1f} dB"


def caption_text(case: UsualCase, settings: GenerationSettings, parameters: int, where: str, disturbed: str) -> str:
    size = f"{settings.num_frames} frames of {settings.width}x{settings.height} pixels"
    means = " and ".join(f"{mean:.1f} dB at {speedup:g}x" for speedup, mean in case.means.items())
    text = (
        f'"{case.caption}": {MODEL}, a model of {parameters / 1e6:.0f} million parameters that is part of this '
        f"repository, {size}, so each pixel shows. {settings.steps} steps in {where}; PSNR against the plain video. "
        f"Of {case.captions} captions, this one is nearest to the mean: {means}."
    )
    return f"{text} Other work disturbed the seconds, so they are not shown." if disturbed else text


def animation_frames(
    videos: Sequence[NDArray[np.uint8]], labels: Sequence[str], below: Sequence[str], caption: str
) -> NDArray[np.uint8]:
    """The videos in a row, every pixel `SCALE` times as large, with texts under each and a caption under all."""
    row = side_by_side([enlarge(video, SCALE) for video in videos], labels, below=below)
    width = row.shape[2]
    strip = _draw_caption(caption, width)
    return np.concatenate([row, np.broadcast_to(strip, (len(row), *strip.shape))], axis=1)


def _draw_caption(text: str, width: int) -> NDArray[np.uint8]:
    """Lines of text, light on black, `(height, width, 3)`."""
    font = ImageFont.load_default(FONT_SIZE)
    characters = len(text)
    lines = wrap(text, characters)
    while any(font.getlength(line) > width - 2 * MARGIN for line in lines):
        characters -= 1
        lines = wrap(text, characters)
    image = Image.new("RGB", (width, LINE_HEIGHT * len(lines) + 2 * MARGIN))
    draw = ImageDraw.Draw(image)
    for place, line in enumerate(lines):
        draw.text((MARGIN, MARGIN + place * LINE_HEIGHT), line, font=font, fill="#d5dae1")
    return np.asarray(image)


def save_animation(frames: NDArray[np.uint8], fps: float, path: Path) -> None:
    """Write an animated WebP without loss that repeats; the last frame stays for longer."""
    images = [Image.fromarray(frame) for frame in frames]
    duration = round(1000 / fps)
    durations = [duration] * (len(images) - 1) + [LAST_FRAME * duration]
    with replacing(path) as partial:
        images[0].save(
            partial,
            format="WEBP",
            save_all=True,
            append_images=images[1:],
            duration=durations,
            loop=0,
            lossless=True,
            method=6,
        )


def _data_of(
    case: UsualCase, trials: Mapping[str, TrialResult], disturbed: str, device: str, weights: Mapping[str, str]
) -> dict[str, Any]:
    fields = ("denoise_seconds", "end_to_end_seconds", "compute_fraction", "metrics", "frames_sha256")
    return {
        "caption": case.caption,
        "seed": case.seed,
        "committed_psnr": {f"{speedup:g}": psnr for speedup, psnr in case.psnrs.items()},
        "committed_means": {f"{speedup:g}": mean for speedup, mean in case.means.items()},
        "captions": case.captions,
        "device": device,
        "versions": package_versions(),
        "weights": dict(weights),
        "disturbance": disturbed,
        "videos": {name: {field: getattr(trial, field) for field in fields} for name, trial in trials.items()},
    }


if __name__ == "__main__":
    make_animation()
