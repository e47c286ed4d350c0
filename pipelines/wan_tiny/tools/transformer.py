"""The stages that train the transformer by flow matching: at a constant rate, and a cool-down that ends the training.

The rate of the first stage does not depend on its number of steps, so it can be interrupted and prolonged at will.
"""

import json
import math
import os
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from galaxydit.pipelines.wan_tiny.tools import build
from galaxydit.pipelines.wan_tiny.tools.checkpoints import (
    load_checkpoint,
    save_checkpoint,
    training_steps,
)
from galaxydit.pipelines.wan_tiny.tools.denoiser import TRAINING_SHIFT, Denoiser, draw_batch
from galaxydit.pipelines.wan_tiny.tools.machine import fast_dtype, training_device
from galaxydit.pipelines.wan_tiny.tools.muon import optimizers_for
from galaxydit.pipelines.wan_tiny.tools.training_latents import TEXT_TOKENS, load_latents
from galaxydit.pipelines.wan_tiny.tools.word_attention import DONORS, FirstBlock, PaddingAttention

EMA_DECAY = 0.998
WARMUP_STEPS = 50
COOLED_SHARE = 0.02  # of the peak rate, at which the cool-down ends
LOG_STEPS = 10
RELOAD_STEPS = 10  # between looks for new latents, which the stage `latents` may write at the same time
BRANCH_CLIPS = 4  # for the difference of the branches


@dataclass(frozen=True)
class TransformerSettings:
    """Settings of the training of the transformer, logged at each start."""

    steps: int
    batch: int
    peak: float  # rate of Muon; AdamW has a tenth
    padding_penalty: float
    branch_penalty: float = 0.02  # weight of `FirstBlock.floor_penalty`
    shift: float = TRAINING_SHIFT  # of the noise levels
    orbits: float = 1.0  # how often a clip with an orbit is drawn, against another one
    cool_down: bool = False

    def rate_share(self, step: int) -> float:
        """Share of the peak rate: a linear warm-up to 1, or a linear cool-down from 1."""
        if self.cool_down:
            return max(COOLED_SHARE, 1 - step / self.steps)
        return min(1.0, (step + 1) / WARMUP_STEPS)


def train(work: Path, settings: TransformerSettings, minutes: float = math.inf) -> None:
    """Train work / transformer.pt, or work / cooldown.pt that starts from it, and average the weights.

    Every `LOG_STEPS` steps a line is added to a file of JSON lines beside the checkpoint.
    """
    torch.manual_seed(0)
    device = training_device()
    dtype = fast_dtype(device)
    path = _checkpoint_path(work, settings)
    latents, tokens = load_latents(work)
    tokenizer = build.build_tokenizer()
    empty = tokenizer([""], padding="max_length", max_length=TEXT_TOKENS, return_tensors="pt").input_ids
    orbits = tokenizer.convert_tokens_to_ids("orbits")
    model = Denoiser().to(device)
    checkpoint = load_checkpoint(path)
    if checkpoint is None:
        mean, std = _statistics(latents)
        average = {name: value.detach().clone() for name, value in model.state_dict().items()}
    else:
        mean, std = checkpoint["mean"], checkpoint["std"]
        average = {name: value.to(device) for name, value in checkpoint["average"].items()}
    autocast = partial(torch.autocast, device.type, torch.bfloat16, enabled=dtype == torch.bfloat16)
    shape = (1, -1, 1, 1, 1)
    attention = PaddingAttention(model.transformer)
    first_block = FirstBlock(model)
    for index, block in enumerate(model.transformer.blocks):
        if index not in DONORS:  # their attention has hooks
            block.compile()
    log = TrainingLog(path.with_suffix(".jsonl"))
    log.write(
        start=checkpoint["step"] if checkpoint else 0,
        clips=len(latents),
        device=device.type,
        dtype=str(dtype).removeprefix("torch."),
        torch=torch.__version__,
        **asdict(settings),
    )
    optimizers = optimizers_for(model, settings.peak, settings.peak / 10)
    # The cool-down does not see the noise of the first steps again.
    earlier_steps = checkpoint.get("earlier_steps", 0) if checkpoint else 0
    content = {"average": average, "mean": mean, "std": std, "earlier_steps": earlier_steps}
    steps = training_steps(
        path,
        model,
        optimizers,
        settings.steps,
        settings.rate_share,
        minutes=minutes,
        on_save=partial(write_weights, average, path),
        **content,
    )
    for step, bar in steps:
        if step % RELOAD_STEPS == 0:
            latents, tokens = load_latents(work)
        weights = torch.where((tokens == orbits).any(dim=1), settings.orbits, 1.0)
        batch = draw_batch(
            latents, mean.view(shape), std.view(shape), weights, settings.batch, earlier_steps + step, settings.shift
        )
        text = torch.where(batch.is_dropped[:, None], empty, tokens[batch.rows]).to(device)
        has_caption = ~batch.is_dropped.to(device)
        with autocast():
            velocity = model(batch.noisy.to(device), (batch.sigma * 1000).to(device), text, batch.padding.to(device))
        loss = (velocity.float() - (batch.noise - batch.clean).to(device)).square().mean()
        penalty = attention.penalty(has_caption)
        words = attention.word_shares(has_caption)  # before the first block runs again
        shown = has_caption.nonzero().flatten()[:BRANCH_CLIPS]
        with autocast():
            floor = first_block.floor_penalty(text, empty.to(device), shown)
        (loss + settings.padding_penalty * penalty + settings.branch_penalty * floor).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        decay = min(EMA_DECAY, (step + 1) / (step + 10))
        with torch.no_grad():
            current = model.state_dict()
            torch._foreach_lerp_(list(average.values()), [current[name] for name in average], 1 - decay)
        log.add(loss.item())
        if (step + 1) % LOG_STEPS == 0:
            with autocast():
                branch_difference = first_block.branch_difference(text, empty.to(device), shown)
            log.write(
                step=step + 1,
                clips=len(latents),
                loss=log.mean_loss(),
                penalty=round(penalty.item(), 4),
                floor_penalty=round(floor.item(), 4),
                word_shares={block: round(share, 3) for block, share in words.items()},
                branch_difference=branch_difference,
            )
            bar.set_postfix(loss=f"{loss.item():.4f}")


def transformer_weights(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The part of a `Denoiser`'s state that is the transformer's."""
    prefix = "transformer."
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def write_weights(average: dict[str, Tensor], path: Path) -> None:
    """Write the transformer's averaged weights in bfloat16 beside the checkpoint at `path`, whole or not at all."""
    temporary = path.with_suffix(".weights.tmp")
    save_file({name: value.bfloat16().cpu() for name, value in transformer_weights(average).items()}, temporary)
    os.replace(temporary, path.with_suffix(".safetensors"))


def _checkpoint_path(work: Path, settings: TransformerSettings) -> Path:
    """Path of the stage's checkpoint; that of the cool-down is made from the first stage's if it does not exist."""
    trained = work / "transformer.pt"
    if not settings.cool_down:
        return trained
    path = work / "cooldown.pt"
    if not path.exists():
        checkpoint = load_checkpoint(trained)
        if checkpoint is None:
            raise FileNotFoundError(f"{trained} does not exist: run the stage 'transformer' first")
        save_checkpoint(path, checkpoint | {"step": 0, "earlier_steps": checkpoint["step"]})
    return path


def _statistics(latents: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel, `(16,)`."""
    dims = (0, 2, 3, 4)
    return latents.float().mean(dim=dims), latents.float().std(dim=dims)


class TrainingLog:
    """A file of JSON lines with the seconds since the last start."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begin = time.monotonic()
        self._losses: list[float] = []

    def add(self, loss: float) -> None:
        self._losses.append(loss)

    def mean_loss(self) -> float:
        """Mean loss since the last call."""
        mean = sum(self._losses) / len(self._losses)
        self._losses.clear()
        return round(mean, 5)

    def write(self, **values: Any) -> None:
        line = json.dumps({"seconds": round(time.monotonic() - self._begin), **values})
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def trained_checkpoint(work: Path) -> dict[str, Any]:
    """The checkpoint of the last stage that was run."""
    for name in ("cooldown.pt", "transformer.pt"):
        if (checkpoint := load_checkpoint(work / name)) is not None:
            return checkpoint
    raise FileNotFoundError(f"{work / 'transformer.pt'} does not exist: run the stage 'transformer' first")
