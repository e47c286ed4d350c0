"""The stage `latents`: training clips, drawn by workers and encoded by the trained autoencoder."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import AutoencoderKLWan
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from galaxydit.errors import refusal
from galaxydit.pipelines.wan_tiny.tools import build, drawing, varied_drawing
from galaxydit.pipelines.wan_tiny.tools.checkpoints import load_checkpoint
from galaxydit.pipelines.wan_tiny.tools.machine import training_device

CLIP_SEED = 1
TEXT_TOKENS = 24  # the longest caption of the grammar has 22 tokens
SHARD_CLIPS = 64
FIRST_WORLD_PERIOD = 3  # with World.VARIED, one clip of so many is of the first world


class World(StrEnum):
    """The first world (drawing.py), or the varied one (varied_drawing.py) with a third of clips of the first."""

    FIRST = "first"
    VARIED = "varied"


def draw_training_clip(index: int, world: World) -> tuple[str, NDArray[np.float32]]:
    """Caption and frames `(frames, height, width, 3)` in [0, 1] of training clip `index`."""
    if world is World.FIRST or index % FIRST_WORLD_PERIOD == 0:
        return drawing.draw_clip(index, CLIP_SEED)
    return varied_drawing.draw_clip(index, CLIP_SEED)


def as_video(frames: NDArray[np.float32]) -> Tensor:
    """Frames in [0, 1] as `(3, frames, height, width)` in [-1, 1], as the autoencoder takes them."""
    return torch.from_numpy(frames).permute(3, 0, 1, 2).contiguous() * 2 - 1


class Clips(Dataset[tuple[str, Tensor]]):
    """Captions and videos of the training clips from `start` on."""

    def __init__(self, start: int, count: int, world: World) -> None:
        self.start, self.count, self.world = start, count, world

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[str, Tensor]:
        caption, frames = draw_training_clip(self.start + index, self.world)
        return caption, as_video(frames)


def load_trained_vae(work: Path) -> AutoencoderKLWan:
    if (checkpoint := load_checkpoint(work / "vae.pt")) is None:
        raise FileNotFoundError(f"{work / 'vae.pt'} does not exist: run the stage 'vae' first")
    vae = build.build_vae()
    vae.load_state_dict(checkpoint["model"])
    return vae.eval()


@torch.no_grad()
def write_latents(work: Path, clips: int, batch: int, world: World, workers: int) -> None:
    """Write float16 latents and token ids of `clips` training clips, in shards; existing shards are kept.

    The folder remembers its world, because a shard does not tell.
    """
    device = training_device()
    vae = load_trained_vae(work).to(device)
    tokenizer = build.build_tokenizer()
    folder = work / "latents"
    folder.mkdir(parents=True, exist_ok=True)
    _remember_world(folder / "world.txt", world)
    for start in tqdm(range(0, clips, SHARD_CLIPS), desc="latents", mininterval=10):
        path = folder / f"{start:06d}.safetensors"
        if path.exists():
            continue
        captions: list[str] = []
        latents = []
        loader: Any = DataLoader(Clips(start, SHARD_CLIPS, world), batch, num_workers=workers)
        for names, videos in loader:
            captions += names
            latents.append(vae.encode(videos.to(device)).latent_dist.mode().half().cpu())
        tokens = tokenizer(captions, padding="max_length", max_length=TEXT_TOKENS, return_tensors="pt").input_ids
        save_file({"latents": torch.cat(latents), "tokens": tokens}, path.with_suffix(".tmp"))
        os.replace(path.with_suffix(".tmp"), path)


def _remember_world(path: Path, world: World) -> None:
    """Write the world beside the shards; refuse a folder whose shards are of another world or of an earlier version."""
    if path.exists():
        expected = path.read_text()
    else:
        has_shards = any(path.parent.glob("*.safetensors"))
        expected = "a folder without shards of an earlier version" if has_shards else world.value
    if expected != world.value:
        raise refusal("world", world.value, expected, f"pass another --work: {path.parent} holds other clips")
    path.write_text(world)


def load_latents(work: Path) -> tuple[Tensor, Tensor]:
    """All latents `(clips, 16, frames, height, width)` in float16 and token ids `(clips, tokens)` written so far."""
    shards = [load_file(path) for path in sorted((work / "latents").glob("*.safetensors"))]
    if not shards:
        raise FileNotFoundError(f"{work / 'latents'} holds no shards: run the stage 'latents' first")
    return torch.cat([shard["latents"] for shard in shards]), torch.cat([shard["tokens"] for shard in shards])
