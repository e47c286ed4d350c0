"""Runs published step lists on a model, and sets the measured PSNR beside the published PSNR.

A step list names the steps of a generation that are computed, and how the other steps are predicted. A plain generation
computes every step; PSNRs are against the plain generation of the same prompt and seed.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from diffusers import DiffusionPipeline, UniPCMultistepScheduler
from scipy.stats import spearmanr

from galaxydit.calibration.published import StepList
from galaxydit.eval.compare.every_method import choose_methods
from galaxydit.eval.compare.method import Method
from galaxydit.eval.compare.methods import step_list
from galaxydit.eval.compare.trajectory import Trajectory, record
from galaxydit.eval.realism import STEPS
from galaxydit.pipelines.generate import generate_batch
from galaxydit.pipelines.psnr import psnr
from galaxydit.pipelines.settings import GenerationSettings


@dataclass(frozen=True)
class Cases:
    """Prompts with one seed each, and the number of prompts that share a pipeline call."""

    prompts: tuple[str, ...]
    seeds: tuple[int, ...]
    batch: int

    @property
    def batches(self) -> list[tuple[tuple[str, ...], tuple[int, ...]]]:
        """Prompts and seeds of each pipeline call."""
        starts = range(0, len(self.prompts), self.batch)
        return [(self.prompts[at : at + self.batch], self.seeds[at : at + self.batch]) for at in starts]


@dataclass(frozen=True)
class PublishedRow:
    """A row of a published table with the PSNRs measured beside it.

    Attributes:
        published: published PSNR, dB.
        psnr: PSNR of each prompt measured on the model, dB.
    """

    name: str
    published: float
    psnr: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Measured PSNR, mean over the prompts, dB."""
        return float(np.mean(self.psnr))


class References:
    """Plain generations of prompts, and PSNRs against them.

    The generations are recorded once for each flow shift and guidance scale: latents, predictions and residual changes
    of each step, final latent and frames (`Trajectory`). The methods take the published flow shift and guidance scale.

    Args:
        cases: the prompts, each with its seed, and the number of prompts that share a pipeline call.
        settings: of all generations; flow shift and guidance scale are replaced.
        factor: number by which a published flow shift is multiplied for this model; `SHIFT_FACTOR` for wan-tiny.
    """

    def __init__(self, pipe: DiffusionPipeline, cases: Cases, settings: GenerationSettings, factor: float) -> None:
        self.pipe, self.cases, self.settings, self.factor = pipe, cases, settings, factor
        self.steps = settings.steps or STEPS
        self._known: dict[tuple[float, float], list[Trajectory]] = {}

    def use(self, flow_shift: float, guidance: float) -> GenerationSettings:
        """Set the pipeline's flow shift to the published `flow_shift` times `factor`.

        Returns the generation settings with this guidance scale, and with None as flow shift, which keeps the
        pipeline's.
        """
        config = self.pipe.scheduler.config
        self.pipe.scheduler = UniPCMultistepScheduler.from_config(config, flow_shift=flow_shift * self.factor)
        return replace(self.settings, guidance_scale=float(guidance), flow_shift=None)

    def at(self, flow_shift: float, guidance: float) -> tuple[list[Trajectory], GenerationSettings]:
        """The recorded plain generations, one trajectory for each batch, and the settings that they were made with.

        Leaves the pipeline at their flow shift, see `use`.
        """
        settings = self.use(flow_shift, guidance)
        key = (flow_shift, guidance)
        if key not in self._known:
            self._known[key] = [
                record(self.pipe, prompts, seeds, settings, residuals=True) for prompts, seeds in self.cases.batches
            ]
        return self._known[key], settings

    def psnrs(
        self, flow_shift: float, guidance: float, attach: Callable[[], AbstractContextManager[Any]], steps: int = 0
    ) -> list[float]:
        """PSNR of each prompt against its plain generation, dB.

        `attach` returns a context manager in which one batch is generated. `steps` is the number of steps of these
        generations; 0 takes the number of the plain generations.
        """
        plain, settings = self.at(flow_shift, guidance)
        settings, psnrs = replace(settings, steps=steps or settings.steps), []
        for trajectory, (prompts, seeds) in zip(plain, self.cases.batches, strict=True):
            with attach():
                videos = generate_batch(self.pipe, prompts, seeds, settings)
            psnrs += [psnr(*pair) for pair in zip(videos, trajectory.frames, strict=True)]
        return psnrs


def published_method(name: str) -> Method:
    """The compared method "`name` published": another project's method with its published settings."""
    (method,) = choose_methods([f"{name} published"])
    return method


def measure_row(references: References, row: StepList) -> PublishedRow:
    """Generate with the row's steps, flow shift and guidance scale, and return its published and measured PSNRs.

    `references` has the pipeline, the prompts with a seed each, and their plain generations. The result has the PSNR of
    each of these prompts.
    """
    attach = partial(_attach, references.pipe, row)
    psnrs = references.psnrs(row.flow_shift, row.guidance, attach, row.plain_steps or 0)
    return PublishedRow(row.name, row.psnr, tuple(psnrs))


def _attach(pipe: DiffusionPipeline, row: StepList) -> AbstractContextManager[Any]:
    if row.plain_steps is not None:
        return nullcontext()
    if row.method is None:
        return step_list.attach(pipe, {"full": row.steps, "conditional_only": row.conditional_only}, None)
    method = published_method(row.method)
    return method.attach(pipe, method.settings(STEPS)[0], None)


def compared(rows: Sequence[PublishedRow]) -> dict[str, Any]:
    """JSON data: "rows", the rows as mappings, and "spearman".

    A row has the fields of `PublishedRow` ("name"; "published" and "psnr", the PSNR of each prompt, in dB) and "mean",
    the mean of "psnr". "spearman" is Spearman's rho of the means with the published PSNRs, -1 to 1.
    """
    rho = float(spearmanr([row.mean for row in rows], [row.published for row in rows]).statistic)
    return {"rows": [asdict(row) | {"mean": row.mean} for row in rows], "spearman": rho}
