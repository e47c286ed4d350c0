"""Latency outside the trajectories: text encoder, video decoder, and the host's share of each method."""

from statistics import median

import torch
from diffusers import AutoencoderKLWan
from transformers import UMT5Config, UMT5EncoderModel

from galaxydit.eval.latency.device_clock import seconds_of
from galaxydit.eval.latency.forced_steps import ForcedSteps
from galaxydit.eval.latency.latency_settings import Preset, VideoSize
from galaxydit.eval.latency.random_models import build_inputs, build_transformer, default_dtype
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
    """Seconds to encode both prompts, after one warm-up run, with a random UMT5: the XXL encoder of Wan2.1, or a
    two-layer one for a preset with narrow text.
    """
    if preset.text_dim == 4096:
        config = UMT5Config(vocab_size=256384, d_model=4096, d_kv=64, num_heads=64, d_ff=10240, num_layers=24)
    else:
        config = UMT5Config(vocab_size=64, d_model=preset.text_dim, d_kv=16, num_heads=4, d_ff=128, num_layers=2)
    with torch.device(device), default_dtype(dtype):
        encoder = UMT5EncoderModel(config).eval()
    tokens = torch.ones(1, preset.text_tokens, dtype=torch.long, device=device)

    def encode_both() -> None:
        for _ in range(2):
            encoder(input_ids=tokens, attention_mask=torch.ones_like(tokens))

    encode_both()
    return seconds_of(encode_both, device)


@torch.no_grad()
def vae_decode_seconds(preset: Preset, size: VideoSize, device: torch.device) -> float:
    """Seconds to decode one video, after a warm-up on one latent frame, with Wan2.1's random autoencoder in float32,
    as Wan recommends; it is narrow for a preset with narrow text.
    """
    width = {} if preset.text_dim == 4096 else {"base_dim": 8, "num_res_blocks": 1}
    with torch.device(device):
        vae = AutoencoderKLWan(**width).eval()
    latents = torch.randn(size.latent_shape).to(device)
    vae.decode(latents[:, :, :1])
    return seconds_of(lambda: vae.decode(latents), device)


def host_microseconds(proxy: str, rounds: int = 8, steps: int = 10) -> dict[str, float]:
    """Microseconds that a method adds to one transformer call without reuse, by method.

    Measured on the CPU in one thread, with a model of 4 blocks so narrow that the host takes all its time, methods in
    turn, as differences of medians to the plain model. On a GPU this time is hidden while the device is busy.
    """
    cpu = torch.device("cpu")
    forced = ForcedSteps(50, tuple(range(50)))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        transformer = build_transformer(HOST_PRESET, cpu, torch.float32)
        inputs = build_inputs(HOST_PRESET, HOST_SIZE, cpu, torch.float32)
        names = ("plain", *HOST_METHODS)
        trajectories = {name: TimedTrajectory(name, forced, transformer, inputs, proxy=proxy) for name in names}
        found: dict[str, list[float]] = {name: [] for name in names}
        for trajectory in trajectories.values():
            trajectory.run(steps)  # warm-up
        for _ in range(rounds):
            for name, trajectory in trajectories.items():
                found[name] += trajectory.run(steps).milliseconds
    finally:
        torch.set_num_threads(threads)
    plain = median(found.pop("plain"))
    return {name: 1000 * (median(values) - plain) / 2 for name, values in found.items()}
