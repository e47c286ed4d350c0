"""Latency outside the trajectories: text encoder, video decoder, and the host's share of each method."""

from statistics import median

import torch

from galaxydit.eval.latency.device_clock import StepClock
from galaxydit.eval.latency.forced_steps import ForcedSteps
from galaxydit.eval.latency.latency_settings import Preset, VideoSize
from galaxydit.eval.latency.random_models import build_inputs, build_text_encoder, build_transformer, build_vae
from galaxydit.eval.latency.timed_trajectory import TimedTrajectory

HOST_PRESET = Preset(blocks=4, heads=1, head_dim=16, ffn_dim=16, text_dim=16, text_tokens=4)
HOST_SIZE = VideoSize(32, 32, 1)
HOST_METHODS = (
    "galaxydit output",
    "galaxydit output, no proxy",
    "galaxydit residual",
    "galaxydit residual, no proxy",
    "FirstBlockCache",
    "SeaCache",
)


@torch.no_grad()
def text_encoder_seconds(preset: Preset, device: torch.device, dtype: torch.dtype) -> float:
    """Seconds to encode both prompts, after one warm-up run; random weights."""
    encoder = build_text_encoder(preset, device, dtype)
    tokens = torch.ones(1, preset.text_tokens, dtype=torch.long, device=device)
    for _ in range(2):
        clock = StepClock(device)
        clock.mark()
        for _ in range(2):
            encoder(input_ids=tokens, attention_mask=torch.ones_like(tokens))
        clock.mark()
        milliseconds = clock.milliseconds()
    return sum(milliseconds) / 1000


@torch.no_grad()
def vae_decode_seconds(preset: Preset, size: VideoSize, device: torch.device) -> float:
    """Seconds to decode one video, after a warm-up on one latent frame; random weights, float32."""
    vae = build_vae(preset, device)
    latents = torch.randn(size.latent_shape).to(device)
    vae.decode(latents[:, :, :1])
    clock = StepClock(device)
    clock.mark()
    vae.decode(latents)
    clock.mark()
    return sum(clock.milliseconds()) / 1000


def host_microseconds(proxy: str, rounds: int = 8, steps: int = 10) -> dict[str, float]:
    """Microseconds that a method adds to one transformer call without reuse, by method.

    Measured on the CPU in one thread, with a model of 4 blocks so narrow that the host takes all its time, methods in
    turn, as differences of medians to the plain model. On a GPU this time is hidden while the device is busy.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _host_microseconds(proxy, rounds, steps)
    finally:
        torch.set_num_threads(threads)


def _host_microseconds(proxy: str, rounds: int, steps: int) -> dict[str, float]:
    cpu = torch.device("cpu")
    forced = ForcedSteps(50, tuple(range(50)))
    transformer = build_transformer(HOST_PRESET, cpu, torch.float32)
    inputs = build_inputs(HOST_PRESET, HOST_SIZE, cpu, torch.float32)
    names = ("plain", *HOST_METHODS)
    trajectories = {name: TimedTrajectory(name, forced, transformer, inputs, proxy=proxy) for name in names}
    found: dict[str, list[float]] = {method: [] for method in trajectories}
    for round_ in range(rounds + 1):
        for method, trajectory in trajectories.items():
            timing = trajectory.run(steps)
            if round_ > 0:
                found[method] += timing.milliseconds
    plain = median(found.pop("plain"))
    return {method: 1000 * (median(values) - plain) / 2 for method, values in found.items()}
