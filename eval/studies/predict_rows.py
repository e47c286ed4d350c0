"""Predict the published step lists for independent directions of the latent, before any training.

`python -m galaxydit.eval.studies.predict_rows` needs latents of the stage `latents`. Each direction (a
Fourier mode, rotated over the channels) is denoised by itself with the exact prediction for its distribution: Gaussian,
or one of four separated values. This says how a world, an autoencoder and a flow shift will answer to reuse.
"""

import argparse
import logging
import math
from functools import cache
from pathlib import Path

import numpy as np
import torch
from diffusers import UniPCMultistepScheduler
from numpy.typing import NDArray
from scipy.stats import norm
from torch import Tensor

from galaxydit.calibration.published import StepList, load_published
from galaxydit.eval.realism import SHIFT_FACTOR
from galaxydit.pipelines.wan_tiny.tools.train import load_latents

logger = logging.getLogger(__name__)
VARIANCES = np.logspace(-3, 5, 17)
SAMPLES = 500
CLIPS = 1024
STEPS = 50
VALUES = (-3.0, -1.0, 1.0, 3.0)


def energy_by_variance(latents: Tensor) -> NDArray[np.float64]:
    """Share of the latents' energy `(17,)` in directions whose variance is nearest to each of `VARIANCES`.

    `latents` are `(clips, channels, frames, height, width)` with unit variance in each channel.
    """
    modes = torch.fft.fftn(latents - latents.mean(0), dim=(2, 3, 4), norm="ortho").permute(2, 3, 4, 0, 1)
    modes = modes.reshape(-1, *modes.shape[3:])
    covariance = torch.einsum("kbi,kbj->kij", modes.conj(), modes) / len(latents)
    found = torch.linalg.eigvalsh(covariance).real.clamp(min=1e-9).flatten().numpy()
    bins = np.abs(np.log(found)[:, None] - np.log(VARIANCES)).argmin(axis=1)
    energy = np.bincount(bins, weights=found, minlength=len(VARIANCES))
    return np.asarray(energy / energy.sum())


def predict_clean(x: Tensor, sigma: float, scale: Tensor, *, is_gaussian: bool) -> Tensor:
    """Posterior mean of directions with standard deviation `scale`, given (1 - sigma) clean + sigma noise."""
    share = 1 - sigma
    if is_gaussian:
        return share * scale**2 * x / (share**2 * scale**2 + sigma**2)
    values = scale[..., None] * torch.tensor(VALUES, dtype=x.dtype) / math.sqrt(np.mean(np.square(VALUES)))
    weights = torch.softmax(-((x[..., None] - share * values) ** 2) / (2 * sigma**2), dim=-1)
    return (weights * values).sum(-1)


@cache
def sample(flow_shift: float, steps: int, computed: frozenset[int], *, is_gaussian: bool) -> Tensor:
    """Final values `(variances, samples)`; at a step outside `computed` the last prediction is reused."""
    scheduler = UniPCMultistepScheduler(
        prediction_type="flow_prediction", use_flow_sigmas=True, num_train_timesteps=1000, flow_shift=flow_shift
    )
    scheduler.set_timesteps(steps)
    scale = torch.tensor(VARIANCES).sqrt()[:, None]
    noise = torch.tensor(norm.ppf((np.arange(SAMPLES) + 0.5) / SAMPLES))
    x = noise.expand(len(VARIANCES), -1).clone()[None]
    velocity = torch.zeros_like(x)
    for step, timestep in enumerate(scheduler.timesteps):
        if step in computed:
            sigma = float(scheduler.sigmas[step])
            velocity = (x - predict_clean(x, sigma, scale, is_gaussian=is_gaussian)) / sigma
        x = scheduler.step(velocity, timestep, x, return_dict=False)[0]
    return x[0]


def row_psnr(row: StepList, factor: float, energy: NDArray[np.float64], contrast: float, *, is_gaussian: bool) -> float:
    """PSNR in dB of a row for a video whose standard deviation is `contrast`."""
    plain = sample(row.flow_shift * factor, STEPS, frozenset(range(STEPS)), is_gaussian=is_gaussian)
    steps = row.plain_steps or STEPS
    other = sample(row.flow_shift * factor, steps, frozenset(row.steps or range(steps)), is_gaussian=is_gaussian)
    relative = ((other - plain) ** 2).mean(1).numpy() / VARIANCES
    return float(-10 * np.log10((energy * relative).sum() * contrast**2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("runs/wan-tiny"), help="folder of the latents")
    parser.add_argument("--shift-factor", type=float, default=SHIFT_FACTOR)
    parser.add_argument("--contrast", type=float, default=0.34, help="standard deviation of the video in [0, 1]")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    latents = load_latents(arguments.work)[0][:CLIPS].float()
    mean, std = latents.mean((0, 2, 3, 4), keepdim=True), latents.std((0, 2, 3, 4), keepdim=True)
    energy = energy_by_variance((latents - mean) / std)
    logger.info("%-28s %9s %9s %9s", "row", "published", "Gaussian", "four")
    for row in load_published().step_lists:
        if row.method is None:
            found = [
                row_psnr(row, arguments.shift_factor, energy, arguments.contrast, is_gaussian=kind)
                for kind in (True, False)
            ]
            logger.info("%-28s %9.1f %9.1f %9.1f", row.name, row.psnr, *found)


if __name__ == "__main__":
    main()
