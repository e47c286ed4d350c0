"""The flow matching loss on clips of both worlds that training never showed, under WanPipeline's padding."""

from pathlib import Path

import torch
from diffusers import AutoencoderKLWan
from torch import Tensor
from transformers import UMT5EncoderModel

from galaxydit.pipelines.wan_tiny.tools import build, drawing, varied_drawing
from galaxydit.pipelines.wan_tiny.tools.denoiser import TRAINING_SHIFT, Denoiser
from galaxydit.pipelines.wan_tiny.tools.machine import training_device
from galaxydit.pipelines.wan_tiny.tools.training_latents import TEXT_TOKENS, World, as_video

CLIP_SEED = 5
BATCH = 8


@torch.no_grad()
def held_out_loss(weights: dict[str, Tensor], world: World, clips: int, folder: Path = build.SHIPPED) -> float:
    """Loss of the transformer's `weights` in float32; autoencoder and text encoder are those of `folder`.

    Clips, noise levels and noise are the same for all weights.
    """
    device = training_device()
    draw = drawing.draw_clip if world is World.FIRST else varied_drawing.draw_clip
    vae = AutoencoderKLWan.from_pretrained(folder, subfolder="vae").eval().to(device)
    mean, std = (torch.tensor(vae.config[name]).view(-1, 1, 1, 1) for name in ("latents_mean", "latents_std"))
    model = Denoiser()
    model.text_encoder = UMT5EncoderModel.from_pretrained(folder, subfolder="text_encoder")
    model.transformer.load_state_dict(weights)
    model.float().eval().to(device)
    tokenizer = build.build_tokenizer()
    generator = torch.Generator().manual_seed(0)
    uniform = (torch.randperm(clips, generator=generator) + 0.5) / clips
    sigma = TRAINING_SHIFT * uniform / (1 + (TRAINING_SHIFT - 1) * uniform)
    total = 0.0
    for start in range(0, clips, BATCH):
        drawn = [draw(index, CLIP_SEED, held_out=True) for index in range(start, min(start + BATCH, clips))]
        video = torch.stack([as_video(frames) for _, frames in drawn]).to(device)
        clean = (vae.encode(video).latent_dist.mode().cpu() - mean) / std
        captions = [caption for caption, _ in drawn]
        tokens = tokenizer(captions, padding="max_length", max_length=TEXT_TOKENS, return_tensors="pt").input_ids
        padding = build.MAX_TEXT_TOKENS - tokens.ne(0).sum(1, keepdim=True)
        noise = torch.randn(clean.shape, generator=generator)
        levels = sigma[start : start + BATCH]
        level = levels.view(-1, 1, 1, 1, 1)
        noisy = (1 - level) * clean + level * noise
        velocity = model(noisy.to(device), (levels * 1000).to(device), tokens.to(device), padding.to(device))
        error = (velocity.cpu() - (noise - clean)).square()
        total += error.flatten(1).mean(dim=1).sum().item()
    return total / clips
