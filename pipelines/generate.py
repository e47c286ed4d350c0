"""Generate one video and time it, in the same way with and without acceleration."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from diffusers import DiffusionPipeline
from numpy.typing import NDArray

from galaxydit.context_parallel import token_group
from galaxydit.energy import Energy, meter_of
from galaxydit.errors import plain_number, refusal
from galaxydit.pipelines.disturbance import load_per_core
from galaxydit.pipelines.memory import memory_error
from galaxydit.pipelines.modular import call, parameters_of
from galaxydit.pipelines.published_models import own_settings
from galaxydit.pipelines.settings import FRAME_COUNTS, GenerationSettings
from galaxydit.pipelines.sizes import prepare_inputs
from galaxydit.pipelines.sound import sound_of
from galaxydit.pipelines.video import Sound
from galaxydit.report import Report
from galaxydit.runtime.hooks import timed_by
from galaxydit.runtime.loop_watch import next_latent
from galaxydit.runtime.observed_scheduler import Watcher, observe, stop_observing
from galaxydit.runtime.recognition import transformers_of
from galaxydit.stopwatch import BEGIN, END, FIRST, LAST, Stopwatch

NO_COUNTER = Energy(None, None, {})
NO_ARGUMENTS = ("steps", "flow_shift", "fps")  # settings that the call of a pipeline does not take


@dataclass(frozen=True, eq=False)
class GeneratedVideo:
    prompt: str
    seed: int
    settings: GenerationSettings  # in force, with the size of the video
    frames: NDArray[np.float32]  # `(frames, height, width, 3)` in [0, 1]; `(0, 0, 0, 3)` where nothing was decoded
    latents: torch.Tensor  # denoised, before the decoder, on the CPU; for Wan `(1, channels, frames, height, width)`
    end_to_end_seconds: float  # of the whole pipeline call: text encoder, denoising, decoder
    denoise_seconds: float  # from the first transformer call to the end of the last scheduler step
    energy: Energy = NO_COUNTER  # over all ranks that share the video
    sound: Sound | None = None
    load: float | None = None  # `load_per_core` at the end of the call
    operations: float = 0.0  # of all blocks, if `trial.generate_with` counted them
    bytes_held: int | None = None  # most that what was attached kept between calls; None if unknown
    report: Report | None = None  # of the plugin, if it was attached by `trial.generate_with`

    @property
    def watts(self) -> float | None:
        if self.energy.end_to_end is None:
            return None
        return self.energy.end_to_end / self.end_to_end_seconds


def generate(
    pipe: DiffusionPipeline,
    prompt: str | Mapping[str, Any],
    settings: GenerationSettings,
    seed: int,
    *,
    decode: bool = True,
    on_step: Callable[[int, int], None] | None = None,
    cpu_counter: bool = False,
) -> GeneratedVideo:
    """The video of one call of the pipeline, timed. Equal seeds start from equal noise on every device.

    Args:
        prompt: a text, or a JSON object that also names images and videos (`galaxydit.pipelines.inputs`); a mapping
            holds such inputs already read, as by `read_inputs`, and no file is opened.
        decode: False returns the latents without frames and saves the time of the decoder.
        on_step: called after each step with the number of finished steps and the number of all steps.
        cpu_counter: read the energy counter also of a CPU (`meter_of`).

    Raises GalaxyDiTError for a seed or setting that is not allowed, unreadable inputs and lack of memory; ValueError if
    the pipeline needs other inputs, returns no video or does not report its steps.
    """
    inputs, settings = prepare_inputs(pipe, prompt, settings, own_settings)
    seed = plain_number(seed)
    if type(seed) is not int or not 0 <= seed < 2**64:
        raise refusal("seed", seed, "a whole number from 0 to 2**64 - 1", "pass for example 0")
    device = pipe._execution_device
    meter_of(device, cpu=cpu_counter)  # opened now, because that takes seconds
    watch = Stopwatch(device, object(), cpu_counter)
    loop = _DenoisingLoop(watch, on_step)
    with memory_error(pipe, settings), _flow_shift(pipe, settings.flow_shift), loop.watching(pipe):
        watch.mark(BEGIN)
        # A CPU generator draws the same noise whatever device the model is on.
        arguments = inputs | {"generator": torch.Generator("cpu").manual_seed(seed)} | call_arguments(pipe, settings)
        with loop.told(pipe) as told:
            output = call(pipe, arguments | told, decode=decode)
        watch.mark(END)
    seconds = watch.seconds(BEGIN, END)
    denoise_seconds = watch.seconds(FIRST, LAST)
    latents = getattr(output, "latents", None)  # of a modular pipeline, in the shape for the decoder
    if latents is None:
        latents = loop.latents
    if seconds is None or denoise_seconds is None or latents is None:
        raise ValueError(f"{type(pipe).__name__} reported no denoising steps: run it with at least one step")
    if decode and getattr(output, "frames", None) is None:
        raise ValueError(
            f"{type(pipe).__name__} returned {type(output).__name__}, which holds no video: pass a video pipeline"
        )
    watch.share(token_group(next(iter(transformers_of(pipe).values()))))
    frames = np.zeros((0, 0, 0, 3), np.float32)
    sound = None
    if decode:
        frames = np.asarray(output.frames[0], dtype=np.float32)
        sound = sound_of(pipe, output)
    return GeneratedVideo(
        prompt=prompt if isinstance(prompt, str) else str(inputs.get("prompt", "")),
        seed=seed,
        settings=settings,
        frames=frames,
        latents=latents.detach().float().cpu(),
        end_to_end_seconds=seconds,
        denoise_seconds=denoise_seconds,
        load=load_per_core(),
        energy=watch.energy() or NO_COUNTER,
        sound=sound,
    )


def call_arguments(pipe: DiffusionPipeline, settings: GenerationSettings) -> dict[str, Any]:
    """The settings as arguments of the pipeline's call; None is left to the pipeline, the flow shift to its scheduler.

    Raises GalaxyDiTError for a setting that the pipeline does not take.
    """
    named = {"num_inference_steps": settings.steps, **asdict(settings)}
    given = {}
    for name, value in named.items():
        if name not in NO_ARGUMENTS and value is not None:
            given[name] = value
    taken = parameters_of(pipe)
    frames = given.pop("num_frames", None)
    if frames is not None:  # video-to-video pipelines take none, because the input video determines it
        given |= {name: frames for name in FRAME_COUNTS if name in taken}
    for name in given.keys() - taken.keys():
        raise refusal(name, given[name], f"None, because {type(pipe).__name__} does not take it", "leave it out")
    return given


@dataclass
class _DenoisingLoop:
    """Marks the first transformer call and the end of the last step, and keeps the newest latents.

    Only these two wait for the device's queue. An accelerated pipeline takes the `watch` for its report.
    """

    watch: Stopwatch
    on_step: Callable[[int, int], None] | None
    latents: torch.Tensor | None = None

    @contextmanager
    def watching(self, pipe: DiffusionPipeline) -> Iterator[None]:
        def mark_first(module: torch.nn.Module, inputs: Any) -> None:
            if not self.watch.has(FIRST):
                self.watch.mark(FIRST)

        with ExitStack() as stack:
            for transformer in transformers_of(pipe).values():
                stack.callback(transformer.register_forward_pre_hook(mark_first).remove)
                stack.enter_context(timed_by(transformer, self.watch))
            yield

    @contextmanager
    def told(self, pipe: DiffusionPipeline) -> Iterator[dict[str, Any]]:
        """The argument of the pipeline's call by which it tells its steps; nothing where its scheduler tells them."""
        if "callback_on_step_end" in parameters_of(pipe):
            yield {"callback_on_step_end": self.on_step_end}
            return
        teller = _SchedulerSteps(pipe, self)
        observe(pipe.scheduler, teller)
        try:
            yield {}
        finally:
            stop_observing(teller.scheduler, teller)

    def on_step_end(self, pipe: DiffusionPipeline, step: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        steps = getattr(pipe, "num_timesteps", None) or len(pipe.scheduler.timesteps)
        is_last = step == steps - 1
        self.watch.mark(LAST, wait=is_last, read=is_last)
        self.latents = tensors["latents"]
        if self.on_step is not None:
            self.on_step(step + 1, steps)
        return tensors


class _SchedulerSteps(Watcher):
    """Tells a loop of the steps of its pipeline's scheduler, where the pipeline itself calls nobody."""

    def __init__(self, pipe: DiffusionPipeline, loop: _DenoisingLoop) -> None:
        self.pipe = pipe
        self.loop = loop
        self.scheduler = pipe.scheduler
        self.step = 0

    def before(self, method: str, scheduler: Any, arguments: Mapping[str, Any]) -> None: ...
    def failed(self, method: str, scheduler: Any) -> None: ...
    def copied(self, scheduler: Any, copy: Any) -> None: ...

    def after(self, method: str, scheduler: Any, arguments: Mapping[str, Any], result: Any) -> None:
        if method == "step" and scheduler is self.scheduler:
            self.loop.on_step_end(self.pipe, self.step, None, {"latents": next_latent(result)})
            self.step += 1


@contextmanager
def _flow_shift(pipe: DiffusionPipeline, shift: float | None) -> Iterator[None]:
    """Context within which the pipeline's scheduler has this flow shift; None keeps the scheduler's own."""
    original = pipe.scheduler
    config = getattr(pipe.scheduler, "config", {})
    names = [name for name in ("flow_shift", "shift") if name in config]
    if shift is not None and (not names or config.get("use_dynamic_shifting")):
        if names:
            why = "takes that of the video's size (use_dynamic_shifting)"
        else:
            why = "has none"
        expected = f"None, because {type(original).__name__} {why}"
        raise refusal("flow_shift", shift, expected, "leave it out, or set another scheduler")
    try:
        if shift is not None and config[names[0]] != shift:
            pipe.scheduler = type(original).from_config(config, **{names[0]: shift})
        yield
    finally:
        pipe.scheduler = original
