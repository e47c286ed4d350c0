"""Train wan-tiny from nothing: `python -m galaxydit.pipelines.wan_tiny.tools.train STAGE`.

The stages are vae, latents, transformer, cooldown and export, in this order. Each is seeded, and goes on from its last
checkpoint if it was killed. If the checkpoints are gone, run `resume` first, to go on from an exported folder;
optimizers begin anew. Stages use a GPU where PyTorch finds one, and bfloat16 where it is fast.
"""

import math
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from diffusers import AutoencoderKLWan, WanPipeline
from safetensors.torch import load_file
from torch import Tensor
from transformers import UMT5EncoderModel

from galaxydit.pipelines.wan_tiny.tools import build, transformer
from galaxydit.pipelines.wan_tiny.tools.checkpoints import optimizer_states, save_checkpoint, training_steps
from galaxydit.pipelines.wan_tiny.tools.denoiser import TRAINING_SHIFT, Denoiser
from galaxydit.pipelines.wan_tiny.tools.held_out_loss import held_out_loss
from galaxydit.pipelines.wan_tiny.tools.machine import fast_dtype, training_device
from galaxydit.pipelines.wan_tiny.tools.muon import optimizers_for
from galaxydit.pipelines.wan_tiny.tools.training_latents import (
    CLIP_SEED,
    World,
    as_video,
    draw_training_clip,
    load_trained_vae,
    write_latents,
)
from galaxydit.pipelines.wan_tiny.tools.transformer import TransformerSettings, trained_checkpoint, transformer_weights
from galaxydit.pipelines.wan_tiny.tools.word_attention import transplant

Work = Annotated[Path, typer.Option(help="Folder of checkpoints and latents.")]
Steps = Annotated[int, typer.Option(help="Training steps.")]
Batch = Annotated[int, typer.Option(help="Clips a step.")]
Rate = Annotated[float, typer.Option("--learning-rate", help="Its peak.")]
Minutes = Annotated[float, typer.Option(help="Stop with a checkpoint after so many minutes.")]
Shift = Annotated[float, typer.Option(help="Of the noise levels: a higher one trains more on what is decided early.")]
Orbits = Annotated[float, typer.Option(help="Weight of clips with an orbit, the motion that is learned last.")]
Penalty = Annotated[float, typer.Option(help="Weight of the penalty on attention to padding.")]
Clips = Annotated[World, typer.Option(help="Which clips to draw.")]
WORK = Path("runs/wan-tiny")

app = typer.Typer(help=__doc__)


def rate_share(steps: int, step: int, warmup: int = 100) -> float:
    """Share of the peak learning rate: linear warm-up, 1 until half of the steps, then linear down to 0.02."""
    return min(1.0, (step + 1) / warmup, 0.02 + 0.98 * 2 * (1 - step / steps))


def draw_vae_batch(step: int, steps: int, batch: int, world: World) -> Tensor:
    """Crops of 5 frames of 32x32 pixels in [-1, 1], and an eighth as many whole clips in the last fifth of the steps.

    Crops show more leaves and objects for the same work; half are tinted, because colour is learned last where it is
    confined to the objects.
    """
    if step >= steps * 4 / 5:
        whole = max(1, batch // 8)
        indices = range(step * whole, (step + 1) * whole)
        return torch.stack([as_video(draw_training_clip(index, world)[1]) for index in indices])
    rng = np.random.default_rng([CLIP_SEED, step, 1])
    crops = []
    for index in range(step * batch // 4, step * batch // 4 + (batch + 3) // 4):
        _, clip = draw_training_clip(index, world)
        for _ in range(4):
            frame, row, column = rng.integers(0, 5), rng.integers(0, 33), rng.integers(0, 33)
            crop = clip[frame : frame + 5, row : row + 32, column : column + 32]
            if rng.random() < 0.5:
                crop = np.clip(crop * rng.uniform(0.3, 1.0, 3) + rng.uniform(-0.3, 0.3, 3), 0, 1)
            crops.append(as_video(crop.astype(np.float32)))
    return torch.stack(crops)


@app.command("vae")
def train_vae(
    work: Work = WORK, steps: Steps = 3000, batch: Batch = 12, peak: Rate = 0.02, world: Clips = World.FIRST
) -> None:
    """Train the autoencoder on clips drawn as it goes; a light KL term beside the error bounds the latents' scale."""
    torch.manual_seed(0)
    device = training_device()
    vae = build.build_vae()
    with torch.no_grad():  # start with little posterior noise: learning what to keep comes before learning what to drop
        vae.quant_conv.bias[build.LATENT_CHANNELS :] = -6.0
    vae.to(device)
    optimizers = optimizers_for(vae, peak, adam_rate=peak / 8)
    for step, bar in training_steps(work / "vae.pt", vae, optimizers, steps, partial(rate_share, steps)):
        torch.manual_seed(step)
        video = draw_vae_batch(step, steps, batch, world).to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=fast_dtype(device) == torch.bfloat16):
            posterior = vae.encode(video).latent_dist
            decoded = vae.decode(posterior.sample()).sample
        error = (decoded.float() - video).square().mean()
        kl = 0.5 * (posterior.mean**2 + posterior.var - 1 - posterior.logvar).mean()
        (error + 1e-5 * kl).backward()
        for optimizer in optimizers:
            optimizer.step()
        if step % 20 == 0:
            bar.set_postfix(psnr=f"{-10 * math.log10(error.item() / 4):.2f}", kl=f"{kl.item():.2f}")


@app.command("latents")
def encode_clips(
    work: Work = WORK,
    clips: Annotated[int, typer.Option(help="Number of clips; more are added to those written before.")] = 10240,
    batch: Batch = 8,
    world: Clips = World.FIRST,
    workers: Annotated[int, typer.Option(help="Processes that draw clips.")] = 0,
) -> None:
    """Write float16 latents and token ids of the transformer's training clips, in shards; old ones are kept."""
    write_latents(work, clips, batch, world, workers)


@app.command("transformer")
def train_transformer(
    work: Work = WORK,
    steps: Steps = 3800,
    batch: Batch = 24,
    peak: Rate = 0.02,
    padding_penalty: Penalty = 0.02,
    shift: Shift = TRAINING_SHIFT,
    orbits: Orbits = 1.0,
    minutes: Minutes = math.inf,
) -> None:
    """Train the transformer at a constant rate after a warm-up; `cooldown` ends the training."""
    transformer.train(
        work, TransformerSettings(steps, batch, peak, padding_penalty, shift=shift, orbits=orbits), minutes
    )


@app.command("cooldown")
def cool_down(
    work: Work = WORK,
    steps: Steps = 1000,
    batch: Batch = 24,
    peak: Rate = 0.02,
    padding_penalty: Penalty = 0.02,
    shift: Shift = TRAINING_SHIFT,
    orbits: Orbits = 1.0,
    minutes: Minutes = math.inf,
) -> None:
    """Train on from the stage `transformer`, with a rate that falls to nearly 0."""
    settings = TransformerSettings(steps, batch, peak, padding_penalty, shift=shift, orbits=orbits, cool_down=True)
    transformer.train(work, settings, minutes)


@app.command("loss")
def show_loss(
    work: Work = WORK,
    folder: Annotated[Path, typer.Option(help="Exported folder to compare with.")] = build.SHIPPED,
    clips: Annotated[int, typer.Option(help="Clips of each world.")] = 48,
) -> None:
    """Compare the loss of the averaged weights on unseen clips with that of an exported folder, for both worlds."""
    trained = transformer_weights(trained_checkpoint(work)["average"])
    exported = load_file(folder / "transformer" / "diffusion_pytorch_model.safetensors")
    for world in World:
        losses = [held_out_loss(weights, world, clips, folder) for weights in (exported, trained)]
        change = losses[1] / losses[0] - 1
        typer.echo(f"{world} world: exported {losses[0]:.4f}, trained {losses[1]:.4f} ({change:+.1%}); {clips} clips")


@app.command()
def export(work: Work = WORK, out: Path = build.SHIPPED) -> None:
    """Write the diffusers folder `out` from the checkpoints, with the moving average of the weights in bfloat16."""
    checkpoint = trained_checkpoint(work)
    model = Denoiser()
    model.load_state_dict(checkpoint["average"])
    vae = load_trained_vae(work)
    vae.register_to_config(latents_mean=checkpoint["mean"].tolist(), latents_std=checkpoint["std"].tolist())
    pipeline = WanPipeline(
        tokenizer=build.build_tokenizer(),
        text_encoder=model.text_encoder.eval(),
        vae=vae,
        transformer=model.transformer.to(torch.bfloat16).eval(),
        scheduler=build.build_scheduler(),
    )
    pipeline.save_pretrained(out, safe_serialization=True)
    typer.echo(f"wrote {out} after {checkpoint['step']} steps")


@app.command()
def resume(
    work: Work = WORK,
    folder: Path = build.SHIPPED,
    vae_rate: float = 0.02,
    rate: Rate = 0.02,
    words: Annotated[bool, typer.Option(help="Let the blocks that read padding alone read the caption.")] = False,
) -> None:
    """Make vae.pt and transformer.pt, checkpoints at step 0, from an exported folder."""
    vae = AutoencoderKLWan.from_pretrained(folder, subfolder="vae")
    model = Denoiser()
    model.transformer.load_state_dict(load_file(folder / "transformer" / "diffusion_pytorch_model.safetensors"))
    if words:
        transplant(model.transformer)
    model.text_encoder = UMT5EncoderModel.from_pretrained(folder, subfolder="text_encoder").requires_grad_(False)
    content = {
        "step": 0,
        "model": vae.state_dict(),
        "optimizers": optimizer_states(optimizers_for(vae, vae_rate, vae_rate / 8)),
    }
    save_checkpoint(work / "vae.pt", content)
    mean, std = torch.tensor(vae.config.latents_mean), torch.tensor(vae.config.latents_std)
    content = {"step": 0, "model": model.state_dict(), "average": model.state_dict(), "mean": mean, "std": std}
    content["optimizers"] = optimizer_states(optimizers_for(model, rate, rate / 10))
    save_checkpoint(work / "transformer.pt", content)


if __name__ == "__main__":
    app()
