"""What the transformer's training computes: noisy latents of a step, and the velocity for them."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from galaxydit.pipelines.wan_tiny.tools import build
from galaxydit.pipelines.wan_tiny.tools.text_padding import pad_counted, prepare_for_training

CAPTION_DROPOUT = 0.1
TRAINING_SHIFT = 2.0  # more noise than uniform: that is where captions and large leaves are decided


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
        return self.transformer(latents, timestep, self.encode(tokens, padding), return_dict=False)[0]

    def encode(self, tokens: Tensor, padding: Tensor) -> Tensor:
        """Text embeddings of `tokens`, `(batch, tokens + 1, dim)`, for the next call of the transformer."""
        mask = tokens.ne(0)
        text = self.text_encoder(tokens, mask.long()).last_hidden_state * mask[..., None]
        return pad_counted(self.transformer, text, mask, padding)


@dataclass
class Batch:
    """One step's clips `(batch, ...)` with their noise; all of it is fixed by the step and the clips."""

    clean: Tensor
    noise: Tensor
    sigma: Tensor
    rows: Tensor  # of the clips among all
    is_dropped: Tensor  # whether the caption is left out
    padding: Tensor  # number of padding tokens, `(batch, 1)`

    @property
    def noisy(self) -> Tensor:
        level = self.sigma.view(-1, 1, 1, 1, 1)
        return (1 - level) * self.clean + level * self.noise


def draw_batch(
    latents: Tensor, mean: Tensor, std: Tensor, weights: Tensor, batch: int, step: int, shift: float
) -> Batch:
    """The clips, noise levels and noise of a step; a higher `shift` draws more of the high noise levels.

    A clip is drawn with a probability proportional to its entry of `weights`, `(clips,)`.
    """
    generator = torch.Generator().manual_seed(step)
    rows = torch.multinomial(weights, batch, replacement=True, generator=generator)
    clean = (latents[rows].float() - mean) / std
    is_dropped = torch.rand(batch, generator=generator) < CAPTION_DROPOUT
    uniform = (torch.arange(batch) + torch.rand(batch, generator=generator)) / batch
    sigma = shift * uniform / (1 + (shift - 1) * uniform)
    noise = torch.randn(clean.shape, generator=generator)
    # From 1 to as many as WanPipeline adds. If it were always 500, they would drown the text from the start.
    padding = build.MAX_TEXT_TOKENS ** torch.rand(batch, 1, generator=generator)
    return Batch(clean, noise, sigma, rows, is_dropped, padding)
