"""How much a learned solver could gain over the damped slope and half of the estimated error.

A schedule with its predictions and corrections is a multistep solver: the latent at each full step is a linear
combination of the initial noise and the outputs of the full steps before. `python -m
galaxydit.eval.studies.learned_solver` fits, by gradient descent through whole generations in float32, a share of the
last two slopes and of the correction for each reuse interval, for the unconditional output and for what guidance adds
to it (the idea of Bespoke non-stationary solvers, arXiv 2403.01329). It logs the error of the final latent with the
default's shares and with the fitted ones, on the fitted captions and on others; none was used in training.
"""

import argparse
import logging
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import chain, pairwise

import torch
from diffusers import WanPipeline
from torch import Tensor

from galaxydit.extrapolation import CORRECTED, DAMPING, missed
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.published_models import recommended_settings
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.wan_tiny.world import draw_prompts
from galaxydit.profiles.registry import load_profile
from galaxydit.runtime.scheduler_response import scheduler_response

logger = logging.getLogger(__name__)
SEED = 900
BATCH = 4  # captions in each step of the descent
RATE = 0.04
TOKENS = 512  # of a text, as WanPipeline pads it
PARTS = 2  # of the guided output: the unconditional one, and what guidance adds to it


@dataclass
class Generation:
    """Initial noise, text embeddings `(2, tokens, dim)` of both branches, and the final latent of the plain run."""

    noise: Tensor
    texts: Tensor
    final: Tensor | None = None


class Solver:
    """The solver that computes the steps `full` of a Wan pipeline with UniPC."""

    def __init__(self, pipe: WanPipeline, settings: GenerationSettings, full: Sequence[int]) -> None:
        self.pipe, self.settings, self.full = pipe, settings, list(full)
        self.scale = settings.guidance_scale or 1.0
        self.scheduler = deepcopy(pipe.scheduler)
        self._restart()
        self.times = self.scheduler.timesteps.clone()
        self.sigmas = [float(sigma) for sigma in self.scheduler.sigmas[:-1]]
        self.response = scheduler_response(self.scheduler, self.sigmas)
        self.ends = {end: index for index, end in enumerate(self._ends())}

    def _restart(self) -> None:
        self.scheduler.set_timesteps(self.settings.steps)

    def _ends(self) -> list[int]:
        """The full steps, or the number of steps, that end an interval of reused ones."""
        bounds = [*self.full, len(self.times)]
        return [end for start, end in pairwise(bounds) if end - start > 1]

    def default_shares(self) -> Tensor:
        """Shares `(3, PARTS, intervals)` of the last slope, of its change from the slope before, and of the correction,
        as the plugin has them at order 1.
        """
        shares = torch.zeros(3, PARTS, len(self.ends), dtype=torch.float64)
        shares[0], shares[2] = DAMPING, CORRECTED[1]
        return shares

    def coefficients(self, shares: Tensor) -> Tensor:
        """The latent at each full step and at the end, `(full + 1, 1 + PARTS * full)`, as a combination of the noise
        and of the two parts of each full step's output.

        The scheduler is linear, so it runs on the combinations themselves.
        """
        count = len(self.full)
        basis = torch.eye(1 + PARTS * count, dtype=torch.float64)
        latent, found, history = basis[0], [], list[tuple[float, tuple[Tensor, ...]]]()
        self._restart()
        for step, time in enumerate(self.times):
            interval = self.ends.get(min([one for one in self.ends if one >= step], default=-1), -1)
            if step in self.full:
                place = self.full.index(step)
                found.append(latent)
                parts = tuple(basis[1 + part * count + place] for part in range(PARTS))
                output = list(parts)
                if step in self.ends and step < len(self.times) - 1:
                    share = missed(self.sigmas, self.response, self.full[place - 1], step)
                    for part in range(PARTS):
                        error = parts[part] - self._predict(history, step, shares[:2, part, interval], part)
                        output[part] = parts[part] + shares[2, part, interval] * share * error
                history = [*history[-2:], (self.sigmas[step], parts)]
            else:
                output = [self._predict(history, step, shares[:2, part, interval], part) for part in range(PARTS)]
            guided = (output[0] + self.scale * output[1]).reshape(-1, 1, 1, 1, 1)
            latent = self.scheduler.step(guided, time, latent.reshape(guided.shape), return_dict=False)[0].reshape(-1)
        return torch.stack([*found, latent])

    def _predict(
        self, history: Sequence[tuple[float, tuple[Tensor, ...]]], step: int, shares: Tensor, part: int
    ) -> Tensor:
        newest, *older = [(sigma, parts[part]) for sigma, parts in reversed(history)]
        ahead, found = self.sigmas[step] - newest[0], newest[1]
        slopes = [(one[1] - two[1]) / (one[0] - two[0]) for one, two in pairwise([newest, *older])]
        if slopes:
            found = found + shares[0] * ahead * slopes[0]
        if len(slopes) > 1:
            found = found + shares[1] * ahead * (slopes[0] - slopes[1])
        return found

    def final(self, coefficients: Tensor, generation: Generation) -> Tensor:
        """The final latent."""
        rows = coefficients.to(generation.noise.dtype)
        kept: list[list[Tensor]] = [[] for _ in range(PARTS)]

        def combined(row: Tensor) -> Tensor:
            weights = [row[:1], *(part[: len(kept[0])] for part in row[1:].chunk(PARTS))]
            terms = [generation.noise, *chain.from_iterable(kept)]
            return torch.stack([weight * term for weight, term in zip(torch.cat(weights), terms, strict=True)]).sum(0)

        for row, step in zip(rows, self.full, strict=False):
            for known, output in zip(kept, self._outputs(combined(row), step, generation), strict=True):
                known.append(output)
        return combined(rows[-1])

    def _outputs(self, latent: Tensor, step: int, generation: Generation) -> tuple[Tensor, Tensor]:
        uncond, cond = self.pipe.transformer(
            hidden_states=torch.cat([latent, latent]),
            timestep=self.times[step].expand(2),
            encoder_hidden_states=generation.texts,
            return_dict=False,
        )[0].chunk(2)
        return uncond, cond - uncond

    @torch.no_grad()
    def generate(self, prompt: str, seed: int) -> Generation:
        """A plain generation."""
        pipe, settings = self.pipe, self.settings
        cond, uncond = pipe.encode_prompt(prompt, settings.negative_prompt, True, max_sequence_length=TOKENS)
        channels, size = pipe.transformer.config.in_channels, (settings.height, settings.width, settings.num_frames)
        noise = pipe.prepare_latents(
            1, channels, *size, torch.float32, torch.device("cpu"), torch.Generator("cpu").manual_seed(seed)
        )
        found = Generation(noise, torch.cat([uncond, cond]))
        latent = noise
        self._restart()
        for step, time in enumerate(self.times):
            uncond, difference = self._outputs(latent, step, found)
            latent = self.scheduler.step(uncond + self.scale * difference, time, latent, return_dict=False)[0]
        return replace(found, final=latent)

    def error(self, coefficients: Tensor, generation: Generation) -> Tensor:
        """Mean square error of the final latent against the plain run's, dB."""
        assert generation.final is not None
        return 10 * torch.log10((self.final(coefficients, generation) - generation.final).square().mean())


def fit(solver: Solver, generations: Sequence[Generation], rounds: int) -> Tensor:
    """The shares with a small mean error in dB."""
    shares = solver.default_shares().requires_grad_()
    optimizer = torch.optim.Adam([shares], RATE, betas=(0.8, 0.95))
    batches = [generations[first : first + BATCH] for first in range(0, len(generations), BATCH)] * rounds
    for step, batch in enumerate(batches):
        optimizer.param_groups[0]["lr"] = RATE * min(1.0, 2 * (1 - step / len(batches)))
        rows = solver.coefficients(shares)
        leaf = rows.detach().requires_grad_()  # so that each generation's graph is freed before the next one
        errors = []
        for generation in batch:
            error = solver.error(leaf, generation) / len(batch)
            error.backward()
            errors.append(error.detach())
        optimizer.zero_grad()
        rows.backward(leaf.grad)
        gradient = float(shares.grad.norm()) if shares.grad is not None else 0.0
        optimizer.step()
        logger.info("step %d  %.2f dB, gradient %.1f dB", step, sum(errors), gradient)
    return shares.detach()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--speedup", type=float, default=3.0)
    parser.add_argument("--fitted", type=int, default=8, help="captions to fit to")
    parser.add_argument("--prompts", type=int, default=8, help="other captions")
    parser.add_argument("--rounds", type=int, default=6, help="times that each caption is fitted to")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    pipe = load_pipeline("wan-tiny", dtype=torch.float32)
    pipe.transformer.requires_grad_(False)
    profile = load_profile("wan-tiny")
    full = [profile.conditions.sigmas.index(sigma) for sigma in profile.target_for(arguments.speedup).sigmas]
    solver = Solver(pipe, recommended_settings(pipe), full)
    prompts = draw_prompts(arguments.fitted + arguments.prompts, SEED)
    generations = [solver.generate(prompt, SEED + place) for place, prompt in enumerate(prompts)]
    fitted, others = generations[: arguments.fitted], generations[arguments.fitted :]
    default, learned = solver.default_shares(), fit(solver, fitted, arguments.rounds)
    for name, row in zip(("last slope", "its change", "correction"), learned, strict=True):
        logger.info("%s: %s", name, [[round(float(share), 2) for share in part] for part in row])
    for name, shown in (("fitted", fitted), ("other", others)):
        with torch.no_grad():
            before, after = (
                torch.stack([solver.error(solver.coefficients(shares), one) for one in shown])
                for shares in (default, learned)
            )
        logger.info(
            "%s captions: default %.2f dB, learned %.2f dB, lower by %.2f dB (standard error %.2f)",
            name,
            before.mean(),
            after.mean(),
            (before - after).mean(),
            (before - after).std() / len(shown) ** 0.5,
        )


if __name__ == "__main__":
    main()
