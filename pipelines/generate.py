"""Generate one video and time it, in the same way with and without acceleration."""

import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from diffusers import DiffusionPipeline
from numpy.typing import NDArray

from galaxydit.clock import synchronize
from galaxydit.context_parallel import token_group
from galaxydit.energy import Energy, Reading, energy_between, meter_of, read
from galaxydit.errors import GalaxyDiTError, refusal
from galaxydit.families import transformers_of
from galaxydit.pipelines.disturbance import load_per_core
from galaxydit.pipelines.inputs import check_inputs, read_inputs
from galaxydit.pipelines.published_models import own_settings
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.sizes import fit_size, resize_videos
from galaxydit.pipelines.sound import sound_of
from galaxydit.pipelines.video import Sound

FRAME_COUNTS = ("num_frames", "frames", "video_length")  # names that pipelines have for the number of frames
NO_ARGUMENTS = ("steps", "flow_shift", "fps")  # settings that the call of a pipeline does not take


@dataclass(frozen=True, eq=False)
class GeneratedVideo:
    """One generated video, with its time and energy. `settings` are those in force, with the size of the video.

    frames: `(frames, height, width, 3)` float32 in [0, 1]; shape `(0, 0, 0, 3)` where nothing was decoded.
    latents: the denoised latents before the decoder, on the CPU, `(1, channels, frames, height, width)` for Wan.
    end_to_end_seconds: of the whole pipeline call: text encoder, denoising, decoder.
    denoise_seconds: from the first transformer call to the end of the last scheduler step.
    energy: joules of denoising and of the whole call, over all ranks that share the video; None without an energy
        counter.
    sound: of the video; None if the pipeline makes none.
    load: `load_per_core` at the end of the call.
    """

    prompt: str
    seed: int
    settings: GenerationSettings
    frames: NDArray[np.float32]
    latents: torch.Tensor
    end_to_end_seconds: float
    denoise_seconds: float
    energy: Energy | None = None
    sound: Sound | None = None
    load: float | None = None

    @property
    def shared(self) -> bool:
        """Whether another process is known to have used the device."""
        return self.energy is not None and self.energy.is_shared

    @property
    def denoise_joules(self) -> float | None:
        """Joules of denoising; None without an energy counter."""
        return None if self.energy is None else self.energy.denoise

    @property
    def joules(self) -> float | None:
        """Joules of the whole pipeline call; None without an energy counter."""
        return None if self.energy is None else self.energy.end_to_end

    @property
    def watts(self) -> float | None:
        """Mean power of the whole pipeline call in watts; None without an energy counter."""
        return None if self.joules is None else self.joules / self.end_to_end_seconds


def generate(
    pipe: DiffusionPipeline,
    prompt: str,
    settings: GenerationSettings,
    seed: int,
    *,
    decode: bool = True,
    on_step: Callable[[int, int], None] | None = None,
    cpu_counter: bool = False,
) -> GeneratedVideo:
    """The video of one call of the pipeline, timed. Equal seeds start from equal noise on every device.

    Args:
        prompt: a text, or a JSON object with the text and the paths of images and videos by argument of the pipeline,
            such as '{"prompt": "a cat walks", "image": "cat.png"}' (`galaxydit.pipelines.inputs`).
        decode: False returns the latents without frames and saves the time of the decoder.
        on_step: called after each step with the number of finished steps and the number of all steps.
        cpu_counter: read the CPU's energy counter if the pipeline runs on the CPU (`galaxydit.energy.meter_of`); the
            counter of a GPU is always read.

    Raises GalaxyDiTError for a seed outside [0, 2^64), for a setting that the pipeline does not take, for inputs that
    cannot be read, and if the device runs out of memory; ValueError if the pipeline needs other inputs, returns no
    video or does not report its steps.
    """
    inputs = read_inputs(prompt)
    check_inputs(pipe, inputs)
    settings = fit_size(pipe, inputs, settings, own_settings(pipe))
    inputs = resize_videos(pipe, inputs, settings)
    if type(seed) is not int or not 0 <= seed < 2**64:
        raise refusal("seed", seed, "a whole number from 0 to 2**64 - 1", "pass for example 0")
    clock = _DenoiseClock(pipe._execution_device, on_step, cpu_counter)
    meter_of(clock.device, cpu=cpu_counter)  # opened now, because that takes seconds
    with _memory_error(pipe, settings), _flow_shift(pipe, settings.flow_shift), clock.watching_first_call(pipe):
        start, before = clock.now(), clock.read()
        output = pipe(
            **inputs,
            # A CPU generator draws the same noise whatever device the model is on.
            generator=torch.Generator("cpu").manual_seed(seed),
            output_type="np" if decode else "latent",
            callback_on_step_end=clock.on_step_end,
            **_arguments(pipe, settings),
        )
        end, after = clock.now(), clock.read()
    if clock.first_call is None or clock.last_step is None or clock.latents is None:
        raise ValueError(f"{type(pipe).__name__} reported no denoising steps: run it with at least one step")
    if decode and not hasattr(output, "frames"):
        raise ValueError(
            f"{type(pipe).__name__} returned {type(output).__name__}, which holds no video: pass a video pipeline"
        )
    ranks = token_group(next(iter(transformers_of(pipe).values())))
    return GeneratedVideo(
        prompt=prompt,
        seed=seed,
        settings=settings,
        frames=np.asarray(output.frames[0], dtype=np.float32) if decode else np.zeros((0, 0, 0, 3), np.float32),
        latents=clock.latents.detach().float().cpu(),
        end_to_end_seconds=end - start,
        denoise_seconds=clock.last_step - clock.first_call,
        load=load_per_core(),
        energy=energy_between(before, clock.first_reading, clock.last_reading, after, clock.device, ranks),
        sound=sound_of(pipe, output) if decode else None,
    )


def generate_batch(
    pipe: DiffusionPipeline, prompts: Sequence[str], seeds: Sequence[int], settings: GenerationSettings, **call: Any
) -> NDArray[np.float32]:
    """Videos `(batch, frames, height, width, 3)` in [0, 1], one for each prompt, from one call of the pipeline.

    `prompts` are texts, no JSON objects. Each has the noise of its own seed, whatever else is in the batch. `call` are
    further arguments of the pipeline's call.
    """
    given = _arguments(pipe, settings)
    if "negative_prompt" in given:
        given["negative_prompt"] = [settings.negative_prompt] * len(prompts)
    with _memory_error(pipe, settings), _flow_shift(pipe, settings.flow_shift):
        output = pipe(
            list(prompts),
            generator=[torch.Generator("cpu").manual_seed(seed) for seed in seeds],
            output_type="np",
            **given,
            **call,
        )
    return np.asarray(output.frames, dtype=np.float32)


def _arguments(pipe: DiffusionPipeline, settings: GenerationSettings) -> dict[str, Any]:
    """The settings as arguments of the pipeline's call; settings that are None are left to the pipeline.

    Video-to-video pipelines take no number of frames, because the input video determines it. Raises GalaxyDiTError for
    another setting that the pipeline does not take.
    """
    named = {"num_inference_steps": settings.steps, **asdict(settings)}
    given = {name: value for name, value in named.items() if name not in NO_ARGUMENTS and value is not None}
    taken = inspect.signature(type(pipe).__call__).parameters
    frames = given.pop("num_frames", None)
    if frames is not None:
        given |= {name: frames for name in FRAME_COUNTS if name in taken}
    for name in given.keys() - taken.keys():
        raise refusal(name, given[name], f"None, because {type(pipe).__name__} does not take it", "leave it out")
    return given


@dataclass
class _DenoiseClock:
    """Stores clock and energy readings of the first transformer call and of the end of the last step, and the latents.

    `generate` registers `watching_first_call` and `on_step_end` with the pipeline. Each clock reading (seconds) waits
    until the device has finished its queued work. After each step the clock calls `on_step`, if given, with the number
    of finished steps and the number of all steps. A GPU's energy counter is always read, a CPU's with `cpu_counter`.
    Results are None until they are known; `latents` are those of the newest step.
    """

    device: torch.device
    on_step: Callable[[int, int], None] | None
    cpu_counter: bool
    first_call: float | None = None
    last_step: float | None = None
    latents: torch.Tensor | None = None
    first_reading: Reading | None = None
    last_reading: Reading | None = None

    def read(self) -> Reading | None:
        return read(self.device, cpu=self.cpu_counter)

    def now(self) -> float:
        synchronize(self.device)
        return time.perf_counter()

    @contextmanager
    def watching_first_call(self, pipe: DiffusionPipeline) -> Iterator[None]:
        def stamp(module: torch.nn.Module, inputs: Any) -> None:
            if self.first_call is None:
                self.first_call, self.first_reading = self.now(), self.read()

        with ExitStack() as stack:
            for name in transformers_of(pipe):
                stack.callback(getattr(pipe, name).register_forward_pre_hook(stamp).remove)
            yield

    def on_step_end(self, pipe: DiffusionPipeline, step: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        self.last_step, self.last_reading = self.now(), self.read()
        self.latents = tensors["latents"]
        if self.on_step is not None:
            self.on_step(step + 1, len(pipe.scheduler.timesteps))
        return tensors


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory ran out. On a CPU, PyTorch raises a plain RuntimeError."""
    words = ("out of memory", "not enough memory", "can't allocate memory", "Storage size calculation overflowed")
    return isinstance(error, MemoryError) or any(text in str(error) for text in words)


@contextmanager
def _memory_error(pipe: DiffusionPipeline, settings: GenerationSettings) -> Iterator[None]:
    """Context manager that turns an out-of-memory error into a GalaxyDiTError with the video's size and the cure.

    After any error, an offloaded model leaves the device, where it would stay beside the models of the next call.
    """
    try:
        yield
    except Exception as error:
        pipe.maybe_free_model_hooks()
        if not is_out_of_memory(error):
            raise
        size = f"{settings.width}x{settings.height} pixels, {settings.num_frames} frames"
        cause = str(error).splitlines()[0][:160]
        raise GalaxyDiTError(
            f"{size} do not fit into the memory of {pipe._execution_device} ({cause}); take a smaller "
            "--height, --width or --frames, or --offload model or sequential (load_pipeline(offload=...) in Python)"
        ) from error


@contextmanager
def _flow_shift(pipe: DiffusionPipeline, shift: float | None) -> Iterator[None]:
    """Context manager within which the pipeline's scheduler has this flow shift; None keeps the scheduler's own.

    Raises GalaxyDiTError for a scheduler without a flow shift, unless `shift` is None.
    """
    original = pipe.scheduler
    if shift is not None and "flow_shift" not in original.config:
        expected = f"None, because {type(original).__name__} has none"
        raise refusal("flow_shift", shift, expected, "leave it out, or set another scheduler")
    try:
        if shift is not None and original.config.flow_shift != shift:
            pipe.scheduler = type(original).from_config(original.config, flow_shift=shift)
        yield
    finally:
        pipe.scheduler = original
