"""Checkpoints of training: written whole or not at all, and the loop that goes on from the last one."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from tqdm import tqdm

CHECKPOINT_SECONDS = 240.0


def save_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Write `content` to `path`, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    torch.save(content, temporary)
    os.replace(temporary, path)


def load_checkpoint(path: Path) -> dict[str, Any] | None:
    return torch.load(path, weights_only=True, map_location="cpu") if path.exists() else None


def optimizer_states(optimizers: list[torch.optim.Optimizer]) -> list[dict[str, Any]]:
    return [optimizer.state_dict() for optimizer in optimizers]


def training_steps(
    path: Path,
    model: nn.Module,
    optimizers: list[torch.optim.Optimizer],
    steps: int,
    rate_share: Callable[[int], float],
    *,
    minutes: float = float("inf"),
    on_save: Callable[[], None] | None = None,
    **content: Any,
) -> Iterator[tuple[int, tqdm]]:
    """Yield each step left of `steps`, from 0, with the progress bar; the caller trains the model.

    Starts from the checkpoint at `path`, sets each rate to its peak times `rate_share(step)`, clears gradients, and
    saves a checkpoint with `content` every `CHECKPOINT_SECONDS`, after the last step, and when `minutes` are over;
    `on_save` is called after each.
    """
    begin = saved = time.monotonic()
    first = 0
    peaks = [optimizer.param_groups[0]["lr"] for optimizer in optimizers]
    if checkpoint := load_checkpoint(path):
        first = checkpoint["step"]
        model.load_state_dict(checkpoint["model"])
        for optimizer, state in zip(optimizers, checkpoint["optimizers"], strict=True):
            optimizer.load_state_dict(state)
    with tqdm(total=steps, initial=first, desc=path.stem, mininterval=10) as bar:
        for step in range(first, steps):
            for optimizer, peak in zip(optimizers, peaks, strict=True):
                optimizer.param_groups[0]["lr"] = peak * rate_share(step)
            model.zero_grad(set_to_none=True)
            yield step, bar
            bar.update()
            now = time.monotonic()
            is_last = step + 1 == steps or now - begin >= 60 * minutes
            if is_last or now - saved >= CHECKPOINT_SECONDS:
                states = {"model": model.state_dict(), "optimizers": optimizer_states(optimizers)}
                save_checkpoint(path, {"step": step + 1, **states, **content})
                saved = now
                if on_save is not None:
                    on_save()
            if is_last:
                return
