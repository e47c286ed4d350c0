"""Train wan-tiny from nothing: `python -m galaxydit.pipelines.wan_tiny.tools.train STAGE`.

The stages are vae, latents, transformer and export, in this order. Each is seeded, and goes on from its last checkpoint
if it was killed. If the checkpoints are gone, run `resume` first, to go on from an exported folder; optimizers begin
anew.
"""

import math
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from diffusers import AutoencoderKLWan, WanPipeline
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from tqdm import tqdm
from transformers import UMT5EncoderModel

from galaxydit.pipelines.wan_tiny.tools import build, drawing
from galaxydit.pipelines.wan_tiny.tools.muon import optimizers_for
from galaxydit.pipelines.wan_tiny.tools.text_padding import pad_counted, prepare_for_training

Work = Annotated[Path, typer.Option(help="Folder of checkpoints and latents.")]
Steps = Annotated[int, typer.Option(help="Training steps.")]
Batch = Annotated[int, typer.Option(help="Clips a step.")]
Rate = Annotated[float, typer.Option("--learning-rate", help="Its peak.")]
WORK = Path("runs/wan-tiny")

CLIP_SEED = 1
TEXT_TOKENS = 24  # the longest caption of the grammar has 22 tokens
CAPTION_DROPOUT = 0.1
TRAINING_SHIFT = 2.0  # more noise than uniform: that is where captions and large leaves are decided
EMA_DECAY = 0.998
CHECKPOINT_STEPS = 50
SHARD_CLIPS = 512

app = typer.Typer(help=__doc__)


def rate_share(steps: int, step: int, warmup: int = 100) -> float:
    """Share of the peak learning rate: linear warm-up, 1 until half of the steps, then linear down to 0.02."""
    return min(1.0, (step + 1) / warmup, 0.02 + 0.98 * 2 * (1 - step / steps))


def save_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Write `content` to `path`, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    torch.save(content, temporary)
    os.replace(temporary, path)


def load_checkpoint(path: Path) -> dict[str, Any] | None:
    return torch.load(path, weights_only=True) if path.exists() else None


def training_steps(
    path: Path, model: nn.Module, optimizers: list[torch.optim.Optimizer], steps: int, **content: Any
) -> Iterator[tuple[int, tqdm]]:
    """Yield each step left of `steps`, from 0, with the progress bar; the caller trains the model.

    Starts from the checkpoint at `path`, sets rates, clears gradients, and saves a checkpoint with `content` every
    `CHECKPOINT_STEPS` steps and after the last.
    """
    first = 0
    if checkpoint := load_checkpoint(path):
        first = checkpoint["step"]
        model.load_state_dict(checkpoint["model"])
        for optimizer, state in zip(optimizers, checkpoint["optimizers"], strict=True):
            optimizer.load_state_dict(state)
    rates = [LambdaLR(optimizer, partial(rate_share, steps), first - 1) for optimizer in optimizers]
    with tqdm(total=steps, initial=first, desc=path.stem, mininterval=10) as bar:
        for step in range(first, steps):
            model.zero_grad(set_to_none=True)
            yield step, bar
            bar.update()
            if (step + 1) % CHECKPOINT_STEPS == 0 or step + 1 == steps:
                states = {"model": model.state_dict(), "optimizers": _states(optimizers)}
                save_checkpoint(path, {"step": step + 1, **states, **content})
            for rate in rates:
                rate.step()


def draw_clips(indices: range) -> tuple[list[str], Tensor]:
    """The training clips with these numbers: captions, and videos `(batch, 3, frames, height, width)` in [-1, 1]."""
    captions, frames = zip(*(drawing.draw_clip(index, CLIP_SEED) for index in indices), strict=True)
    return list(captions), torch.from_numpy(np.stack(frames)).permute(0, 4, 1, 2, 3).contiguous() * 2 - 1


def draw_vae_batch(step: int, steps: int, batch: int) -> Tensor:
    """Crops of 5 frames of 32x32 pixels in [-1, 1], and an eighth as many whole clips in the last fifth of the steps.

    Crops show more leaves and objects for the same work; half are tinted, because colour is learned last where it is
    confined to the objects.
    """
    if step >= steps * 4 / 5:
        whole = max(1, batch // 8)
        return draw_clips(range(step * whole, (step + 1) * whole))[1]
    rng = np.random.default_rng([CLIP_SEED, step, 1])
    crops = []
    for index in range(step * batch // 4, step * batch // 4 + (batch + 3) // 4):
        _, clip = drawing.draw_clip(index, CLIP_SEED)
        for _ in range(4):
            frame, row, column = rng.integers(0, 5), rng.integers(0, 33), rng.integers(0, 33)
            crop = clip[frame : frame + 5, row : row + 32, column : column + 32]
            if rng.random() < 0.5:
                crop = np.clip(crop * rng.uniform(0.3, 1.0, 3) + rng.uniform(-0.3, 0.3, 3), 0, 1)
            crops.append(crop.astype(np.float32))
    return torch.from_numpy(np.stack(crops)).permute(0, 4, 1, 2, 3).contiguous() * 2 - 1


@app.command("vae")
def train_vae(work: Work = WORK, steps: Steps = 3000, batch: Batch = 12, peak: Rate = 0.02) -> None:
    """Train the autoencoder on clips drawn as it goes; a light KL term beside the error bounds the latents' scale."""
    torch.manual_seed(0)
    vae = build.build_vae()
    with torch.no_grad():  # start with little posterior noise: learning what to keep comes before learning what to drop
        vae.quant_conv.bias[build.LATENT_CHANNELS :] = -6.0
    optimizers = optimizers_for(vae, peak, adam_rate=peak / 8)
    for step, bar in training_steps(work / "vae.pt", vae, optimizers, steps):
        torch.manual_seed(step)
        video = draw_vae_batch(step, steps, batch)
        with torch.autocast("cpu", torch.bfloat16):
            posterior = vae.encode(video).latent_dist
            decoded = vae.decode(posterior.sample()).sample
        error = (decoded.float() - video).square().mean()
        kl = 0.5 * (posterior.mean**2 + posterior.var - 1 - posterior.logvar).mean()
        (error + 1e-5 * kl).backward()
        for optimizer in optimizers:
            optimizer.step()
        if step % 20 == 0:
            bar.set_postfix(psnr=f"{-10 * math.log10(error.item() / 4):.2f}", kl=f"{kl.item():.2f}")


def load_trained_vae(work: Path) -> AutoencoderKLWan:
    if (checkpoint := load_checkpoint(work / "vae.pt")) is None:
        raise FileNotFoundError(f"{work / 'vae.pt'} does not exist: run the stage 'vae' first")
    vae = build.build_vae()
    vae.load_state_dict(checkpoint["model"])
    return vae.eval()


@app.command("latents")
@torch.no_grad()
def encode_clips(work: Work = WORK, clips: int = 10240, batch: Batch = 8) -> None:
    """Write float16 latents and token ids of the transformer's training clips, in shards; old ones are kept."""
    vae = load_trained_vae(work)
    tokenizer = build.build_tokenizer()
    folder = work / "latents"
    folder.mkdir(parents=True, exist_ok=True)
    for start in tqdm(range(0, clips, SHARD_CLIPS), desc="latents"):
        path = folder / f"{start:06d}.safetensors"
        if path.exists():
            continue
        captions: list[str] = []
        latents = []
        for index in range(start, start + SHARD_CLIPS, batch):
            names, clips_shown = draw_clips(range(index, index + batch))
            captions += names
            latents.append(vae.encode(clips_shown).latent_dist.mode().half())
        tokens = tokenizer(captions, padding="max_length", max_length=TEXT_TOKENS, return_tensors="pt").input_ids
        save_file({"latents": torch.cat(latents), "tokens": tokens}, path.with_suffix(".tmp"))
        os.replace(path.with_suffix(".tmp"), path)


def load_latents(work: Path) -> tuple[Tensor, Tensor]:
    shards = [load_file(path) for path in sorted((work / "latents").glob("*.safetensors"))]
    if not shards:
        raise FileNotFoundError(f"{work / 'latents'} holds no shards: run the stage 'latents' first")
    return torch.cat([shard["latents"] for shard in shards]), torch.cat([shard["tokens"] for shard in shards])


class Denoiser(nn.Module):
    """Transformer and text encoder as one module; the transformer alone is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.transformer = build.build_transformer()
        prepare_for_training(self.transformer)
        self.text_encoder = build.build_text_encoder()

    def forward(self, latents: Tensor, timestep: Tensor, tokens: Tensor, padding: Tensor) -> Tensor:
        """noise - latent, for latents `(batch, 16, frames, height, width)` and a timestep `(batch,)` in [0, 1000].

        `tokens` `(batch, tokens)` are 0 where padded; cross-attention sees `padding` `(batch, 1)` tokens instead
        (text_padding.py).
        """
        mask = tokens.ne(0)
        text = self.text_encoder(tokens, mask.long()).last_hidden_state * mask[..., None]
        text = pad_counted(self.transformer, text, mask, padding)
        return self.transformer(latents, timestep, text, return_dict=False)[0]


@app.command("transformer")
def train_transformer(work: Work = WORK, steps: Steps = 3800, batch: Batch = 24, peak: Rate = 0.02) -> None:
    """Train by flow matching: noise - latent at x = (1 - sigma) latent + sigma noise; average the weights."""
    torch.manual_seed(0)
    latents, tokens = load_latents(work)
    mean = latents.float().mean(dim=(0, 2, 3, 4), keepdim=True)
    std = latents.float().std(dim=(0, 2, 3, 4), keepdim=True)
    empty = build.build_tokenizer()([""], padding="max_length", max_length=TEXT_TOKENS, return_tensors="pt").input_ids
    model = Denoiser()
    optimizers = optimizers_for(model, peak, adam_rate=peak / 10)
    path = work / "transformer.pt"
    start = (load_checkpoint(path) or {"average": model.state_dict()})["average"]
    average = {name: value.detach().clone() for name, value in start.items()}
    for block in model.transformer.blocks:
        block.compile()
    smooth, content = math.nan, {"average": average, "mean": mean.flatten(), "std": std.flatten()}
    for step, bar in training_steps(path, model, optimizers, steps, **content):
        generator = torch.Generator().manual_seed(step)
        rows = torch.randint(len(latents), (batch,), generator=generator)
        clean = (latents[rows].float() - mean) / std
        dropped = torch.rand(batch, 1, generator=generator) < CAPTION_DROPOUT
        uniform = (torch.arange(batch) + torch.rand(batch, generator=generator)) / batch
        sigma = TRAINING_SHIFT * uniform / (1 + (TRAINING_SHIFT - 1) * uniform)
        noise = torch.randn(clean.shape, generator=generator)
        level = sigma.view(-1, 1, 1, 1, 1)
        # From 1 to as many as WanPipeline adds. If it were always 500, they would drown the text from the start.
        padding = build.MAX_TEXT_TOKENS ** torch.rand(batch, 1, generator=generator)
        with torch.autocast("cpu", torch.bfloat16):
            text = torch.where(dropped, empty, tokens[rows])
            velocity = model((1 - level) * clean + level * noise, sigma * 1000, text, padding)
        loss = (velocity.float() - (noise - clean)).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        decay = min(EMA_DECAY, (step + 1) / (step + 10))
        with torch.no_grad():
            current = model.state_dict()
            torch._foreach_lerp_(list(average.values()), [current[name] for name in average], 1 - decay)
        value = loss.item()
        smooth = value if math.isnan(smooth) else 0.98 * smooth + 0.02 * value
        if step % 20 == 0:
            bar.set_postfix(loss=f"{smooth:.4f}")


@app.command()
def export(work: Work = WORK, out: Path = build.SHIPPED) -> None:
    """Write the diffusers folder `out` from the checkpoints, with the moving average of the weights in bfloat16."""
    if (checkpoint := load_checkpoint(work / "transformer.pt")) is None:
        raise FileNotFoundError(f"{work / 'transformer.pt'} does not exist: run the stage 'transformer' first")
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
def resume(work: Work = WORK, folder: Path = build.SHIPPED, vae_rate: float = 0.02, rate: Rate = 0.02) -> None:
    """Make vae.pt and transformer.pt, checkpoints at step 0, from an exported folder."""
    vae = AutoencoderKLWan.from_pretrained(folder, subfolder="vae")
    model = Denoiser()
    model.transformer.load_state_dict(load_file(folder / "transformer" / "diffusion_pytorch_model.safetensors"))
    model.text_encoder = UMT5EncoderModel.from_pretrained(folder, subfolder="text_encoder").requires_grad_(False)
    content = {"step": 0, "model": vae.state_dict(), "optimizers": _states(optimizers_for(vae, vae_rate, vae_rate / 8))}
    save_checkpoint(work / "vae.pt", content)
    mean, std = torch.tensor(vae.config.latents_mean), torch.tensor(vae.config.latents_std)
    content = {"step": 0, "model": model.state_dict(), "average": model.state_dict(), "mean": mean, "std": std}
    content["optimizers"] = _states(optimizers_for(model, rate, rate / 10))
    save_checkpoint(work / "transformer.pt", content)


def _states(optimizers: list[torch.optim.Optimizer]) -> list[dict[str, Any]]:
    return [optimizer.state_dict() for optimizer in optimizers]


if __name__ == "__main__":
    app()
