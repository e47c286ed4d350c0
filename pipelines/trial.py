"""One trial: a video is generated with something attached to the pipeline, and measured against the plain video."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
from diffusers import DiffusionPipeline
from numpy.typing import NDArray

import galaxydit
from galaxydit.errors import noted
from galaxydit.pipelines.compute_counter import BlockPart, ComputeCounter
from galaxydit.pipelines.conditions import device_name, package_versions
from galaxydit.pipelines.generate import GeneratedVideo, generate
from galaxydit.pipelines.psnr import psnr
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.trial_result import TrialResult
from galaxydit.pipelines.video import Sound, hash_frames
from galaxydit.report import Report
from galaxydit.runtime.recognition import transformers_of

WARM_UP_STEPS = 3


@dataclass(frozen=True)
class Attached:
    """What is attached to a pipeline; the functions are called between transformer calls."""

    bytes_held: Callable[[], int | None]  # of the tensors that it keeps now; None if it does not expose them
    reset: Callable[[], None] | None = None  # drops its state; None: as every diffusers cache
    report: Callable[[], Report] | None = None  # the plugin's, of the last generation


Attach = Callable[[DiffusionPipeline], AbstractContextManager[Attached]]
Measured = tuple[dict[str, float], dict[str, str], dict[str, str]]


class Measure(Protocol):
    """Measures a video against the plain video, whose frames and sound are None for itself."""

    def __call__(
        self,
        video: NDArray[np.float32],
        reference: NDArray[np.float32] | None,
        prompt: str,
        *,
        sound: Sound | None,
        reference_sound: Sound | None,
    ) -> Measured:
        """Values of metrics, why others do not suit the video, and errors, each by name."""


@contextmanager
def plain(pipe: DiffusionPipeline) -> Iterator[Attached]:
    """Attach nothing."""
    yield Attached(lambda: 0)


@contextmanager
def accelerated(pipe: DiffusionPipeline, **arguments: Any) -> Iterator[Attached]:
    """Attach the plugin; `arguments` are those of `galaxydit.accelerate`. `bytes_held` is the peak so far."""
    with galaxydit.accelerate(pipe, **arguments) as acceleration:
        yield Attached(lambda: acceleration.report.bytes_held, report=lambda: acceleration.report)


@dataclass(frozen=True, eq=False)
class PlainVideo:
    """What a trial is compared with where this process did not time it, else a plain `GeneratedVideo`."""

    frames: NDArray[np.float32]
    operations: float = 0.0
    denoise_seconds: None = None
    end_to_end_seconds: None = None
    sound: Sound | None = None


def generate_with(
    pipe: DiffusionPipeline,
    prompt: str,
    settings: GenerationSettings,
    seed: int,
    attach: Attach = plain,
    parts: tuple[BlockPart, ...] = (),
    *,
    cpu_counter: bool = False,
) -> GeneratedVideo:
    """Generate with `attach`, and count the operations of `parts`, from `measure_parts`."""
    transformer = next(iter(transformers_of(pipe).values()))  # `measure_parts` refuses several
    with attach(pipe) as attached, ExitStack() as stack:
        counter = None
        if parts:
            counter = stack.enter_context(ComputeCounter(transformer, parts, attached.bytes_held))
        video = generate(pipe, prompt, settings, seed, cpu_counter=cpu_counter)
        report = None
        if attached.report:
            report = attached.report()
    if counter is not None:
        return replace(video, operations=counter.flops, bytes_held=counter.bytes_held, report=report)
    if report is not None:
        return replace(video, bytes_held=report.bytes_held, report=report)
    return video


def psnr_alone(
    video: NDArray[np.float32],
    reference: NDArray[np.float32] | None,
    prompt: str,
    *,
    sound: Sound | None = None,
    reference_sound: Sound | None = None,
) -> Measured:
    """The PSNR in dB; nothing without a plain video."""
    if reference is None:
        return {}, {}, {}
    return {"psnr": psnr(video, reference)}, {}, {}


def result_of(
    pipe: DiffusionPipeline,
    video: GeneratedVideo,
    reference: GeneratedVideo | PlainVideo | None = None,
    share_of_steps: float | None = None,
    *,
    counted: bool = False,
    measure: Measure = psnr_alone,
    code: str = "",
) -> TrialResult:
    """The result of a generated video against the plain video `reference`.

    The compute fraction is that of `counted` operations, else `share_of_steps` if given (1 for the plain video itself),
    else of the plugin's report, else of the operations.
    """
    failures = dict[str, str]()
    report: dict[str, Any] | None = None
    versions: dict[str, str] = {}
    device = ""
    if video.report is not None:
        with noted(failures, "report"):
            report = video.report.to_dict()
    with noted(failures, "versions"):
        versions = package_versions()
    with noted(failures, "device"):
        device = device_name(pipe)
    unit: Literal["blocks", "operations", "steps"] = "operations"
    fraction = None
    if reference is not None and reference.operations:
        fraction = video.operations / reference.operations
    if share_of_steps is not None and not counted:
        unit = "steps"
        fraction = share_of_steps
    elif report is not None and not counted:
        unit = "blocks"
        fraction = report.get("compute_fraction")
    plain_frames: NDArray[np.float32] | None = None
    plain_sound: Sound | None = None
    plain_denoise: float | None = None
    plain_end_to_end: float | None = None
    if reference is not None:
        plain_frames = reference.frames
        plain_sound = reference.sound
        plain_denoise = reference.denoise_seconds
        plain_end_to_end = reference.end_to_end_seconds
    values, skipped, raised = measure(
        video.frames, plain_frames, video.prompt, sound=video.sound, reference_sound=plain_sound
    )
    return TrialResult(
        frames_sha256=hash_frames(video.frames),
        shape=tuple(video.frames.shape),
        sound_shape=None if video.sound is None else video.sound.samples.shape,
        sound_rate=None if video.sound is None else video.sound.rate,
        settings=asdict(video.settings),
        denoise_seconds=video.denoise_seconds,
        end_to_end_seconds=video.end_to_end_seconds,
        plain_denoise_seconds=plain_denoise,
        plain_end_to_end_seconds=plain_end_to_end,
        compute_fraction=fraction,
        compute_unit=unit if fraction is not None else "",
        denoise_joules=video.energy.denoise,
        energy_per_video_joules=video.energy.end_to_end,
        avg_power_watts=video.watts,
        energy_note=video.energy.note,
        load=video.load,
        shared=video.energy.is_shared,
        report=report,
        metrics=values,
        skipped=skipped,
        failures=failures | raised,
        versions=versions,
        code=code,
        device=device,
        block_operations=video.operations or None,
        bytes_held=video.bytes_held,
    )
