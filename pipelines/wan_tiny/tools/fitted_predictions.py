"""Whether weights fitted to recordings predict reused steps better than the damped slope, and whether videos gain.

`python -m galaxydit.pipelines.wan_tiny.tools.fitted_predictions --recordings 16 --prompts 8` records full generations
of captions, fits predictions on the schedules of the shipped profile to them, and measures two things on other captions
outside training: the error of the fits beside that of the damped slope, on full generations, and the PSNR of videos.
A fit that lowers the first and not the second has errors that point the same way in every interval and add up.
"""

import argparse
import logging
from collections.abc import Callable, Sequence

import numpy as np
import torch
from diffusers import WanPipeline
from torch import Tensor

from galaxydit.acceleration import Acceleration
from galaxydit.extrapolation import DAMPING
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.psnr import psnr
from galaxydit.pipelines.published_models import recommended_settings
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.wan_tiny.tools.batches import generate_in_batches
from galaxydit.pipelines.wan_tiny.tools.predictions import Prediction, Variant, line
from galaxydit.pipelines.wan_tiny.world import draw_prompts
from galaxydit.policies.config import GalaxyDiTConfig
from galaxydit.profiles.registry import load_profile
from galaxydit.runtime.call import Call
from galaxydit.runtime.observer import Observer

logger = logging.getLogger(__name__)
SEED = 500
RADII = (0.5, 1.5, 2.5, 3.5, 5.0, 6.5, 8.5)  # bounds of the spatial frequency bands, cycles per latent

Interval = tuple[int, int, int, int]
"""The two full steps before a reuse interval, its first full step, and the full step that ends it."""


class Recorder(Observer):
    """Computes every step and keeps the predictions of both branches, by step."""

    decides = True

    def __init__(self) -> None:
        self.kept: dict[tuple[str, int], list[Tensor]] = {}

    def decide(self, call: Call) -> bool:
        return False

    def on_output(self, call: Call, output: Tensor) -> None:
        self.kept.setdefault((call.branch, call.info.step), []).append(output.float())

    def guided(self, steps: int, scale: float) -> Tensor:
        """Guided predictions `(steps, captions, channels, frames, height, width)`."""

        def of(branch: str) -> Tensor:
            return torch.stack([torch.cat(self.kept[branch, step]) for step in range(steps)])

        return of("uncond").lerp(of("cond"), scale)


class TwoShares(Prediction):
    """Predicts the conditional branch by the whole slope, and the difference that guidance amplifies by a share."""

    def __init__(self, steps: Sequence[int], share: float) -> None:
        super().__init__(steps, Variant(line(1)))
        self.difference = line(1, share)

    def predict(self, call: Call) -> Tensor:
        cond, uncond = (self.history[name] for name in ("cond", "uncond"))
        found = self._weighted(cond, call.info.sigma)
        if call.branch == "uncond":
            weights = self.difference([sigma for _, sigma, _ in cond], call.info.sigma)
            pairs = zip(cond[-len(weights) :], uncond[-len(weights) :], weights, strict=True)
            found = found - sum(weight * (one - other) for (*_, one), (*_, other), weight in pairs)
        return found.to(call.latent.dtype)


def reuse_intervals(steps: Sequence[int]) -> list[Interval]:
    """Those with two slopes before them."""
    return [found for found in zip(steps, steps[1:], steps[2:], steps[3:], strict=False) if found[3] - found[2] > 1]


def summed(guided: Tensor, sigmas: Sequence[float], interval: Interval) -> tuple[Tensor, Tensor, Tensor]:
    """By Euler's method over a reuse interval: what repeating the last full step misses, and what the last slope and
    the one before it would add to it.
    """
    eldest, older, newest, end = interval
    levels = [*sigmas, 0.0]
    lengths = {step: levels[step] - levels[step + 1] for step in range(newest + 1, end)}
    missed = torch.stack([length * (guided[step] - guided[newest]) for step, length in lengths.items()]).sum(0)
    ahead = sum(length * (sigmas[step] - sigmas[newest]) for step, length in lengths.items())
    slope = (guided[newest] - guided[older]) / (sigmas[newest] - sigmas[older])
    before = (guided[older] - guided[eldest]) / (sigmas[older] - sigmas[eldest])
    return missed, ahead * slope, ahead * before


def fit(target: Tensor, terms: Sequence[Tensor], groups: Tensor) -> Tensor:
    """Least squares weights `(groups, terms)`; `groups` numbers the elements of a caption that share weights."""
    rows = torch.stack([term.flatten(1) for term in terms], -1)
    found = []
    for group in range(int(groups.max()) + 1):
        inside = groups.flatten() == group
        left, right = rows[:, inside].flatten(0, 1), target.flatten(1)[:, inside].flatten()
        found.append(torch.linalg.pinv((left.mH @ left).real) @ (left.mH @ right).real)
    return torch.stack(found)


def frequencies(values: Tensor) -> Tensor:
    return torch.fft.fftn(values, dim=(-3, -2, -1), norm="ortho")


def bands(shape: Sequence[int]) -> Tensor:
    """A number for each channel, temporal frequency and spatial band, in the shape of a caption's latent."""
    channels, frames, height, width = shape
    across, down, time = (torch.fft.fftfreq(size).abs() * size for size in (width, height, frames))
    radius = torch.bucketize((down[:, None] ** 2 + across**2).sqrt(), torch.tensor(RADII))
    inside = time.long()[:, None, None] * (len(RADII) + 1) + radius
    return (torch.arange(channels)[:, None, None, None] * 1000 + inside).unique(return_inverse=True)[1]


def compare_errors(fitted_to: Tensor, shown: Tensor, sigmas: Sequence[float], full: Sequence[int]) -> dict[str, float]:
    """The error of each fit / that of the damped slope, averaged over the reuse intervals of `shown`."""
    shape = shown.shape[2:]
    one, each = torch.zeros(shape, dtype=torch.long), bands(shape)
    plans: dict[str, tuple[Callable[[Tensor], Tensor], int, Tensor]] = {
        "a share of the last slope for each interval": (lambda values: values, 1, one),
        "the last two slopes": (lambda values: values, 2, one),
        "the last two slopes, by channel and frequency": (frequencies, 2, each),
    }
    ratios: dict[str, list[float]] = {name: [] for name in plans}
    for interval in reuse_intervals(full):
        known, new = summed(fitted_to, sigmas, interval), summed(shown, sigmas, interval)
        damped = (DAMPING * new[1] - new[0]).square().mean().sqrt()
        for name, (transform, count, groups) in plans.items():
            target, *terms = map(transform, known)
            weights = fit(target, terms[:count], groups)[groups]
            target, *terms = map(transform, new)
            predicted = (weights * torch.stack(terms[:count], -1)).sum(-1)
            ratios[name].append(float((predicted - target).abs().square().mean().sqrt() / damped))
    return {name: float(np.mean(found)) for name, found in ratios.items()}


def fitted_shares(guided: Tensor, sigmas: Sequence[float], full: Sequence[int]) -> Variant:
    """The damped slope with a share of its own for each interval."""
    shares = {}
    for interval in reuse_intervals(full):
        missed, slope, _ = summed(guided, sigmas, interval)
        shares[round(sigmas[interval[2]], 4)] = float((slope * missed).sum() / slope.square().sum())
    logger.info("shares %s", " ".join(f"{share:.2f}" for share in shares.values()))
    return Variant(lambda places, place: line(1, shares.get(round(places[-1], 4), DAMPING))(places, place))


def measure(pipe: WanPipeline, recordings: int, prompts: int, speedups: Sequence[float]) -> None:
    """Log both comparisons at each speedup."""
    profile, settings = load_profile("wan-tiny"), recommended_settings(pipe)
    every = draw_prompts(recordings + prompts, SEED)
    recorder = Recorder()
    videos = _videos(pipe, every, SEED, settings, recorder)
    sigmas = profile.conditions.sigmas
    guided = recorder.guided(len(sigmas), settings.guidance_scale or 1.0)
    for speedup in speedups:
        full = [sigmas.index(sigma) for sigma in profile.target_for(speedup).sigmas]
        for name, ratio in compare_errors(guided[:, :recordings], guided[:, recordings:], sigmas, full).items():
            logger.info("%gx  error of a fit, %-50s %.2f of the damped slope's", speedup, name, ratio)
        observers = {
            "0.85 of the last slope (the default)": Prediction(full, Variant(line(1, DAMPING))),
            "a fitted share for each interval": Prediction(full, fitted_shares(guided[:, :recordings], sigmas, full)),
            "0.7 of the slope of what guidance amplifies, else all": TwoShares(full, 0.7),
            "0.4 of the slope of what guidance amplifies, else all": TwoShares(full, 0.4),
        }
        for name, observer in observers.items():
            made = _videos(pipe, every[recordings:], SEED + recordings, settings, observer)
            found = [psnr(video, before) for video, before in zip(made, videos[recordings:], strict=True)]
            logger.info("%gx  %-60s %.1f dB, worst %.1f", speedup, name, np.mean(found), min(found))


def _videos(
    pipe: WanPipeline, prompts: Sequence[str], seed: int, settings: GenerationSettings, observer: Observer
) -> np.ndarray:
    with Acceleration(pipe, GalaxyDiTConfig(), observer=observer):
        return generate_in_batches(pipe, prompts, seed, settings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recordings", type=int, default=16)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--speedups", type=float, nargs="+", default=[2.0, 2.5, 3.0])
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    pipe = load_pipeline("wan-tiny", dtype=getattr(torch, arguments.dtype))
    pipe.set_progress_bar_config(disable=True)
    measure(pipe, arguments.recordings, arguments.prompts, arguments.speedups)


if __name__ == "__main__":
    main()
