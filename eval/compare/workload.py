"""What methods run on: one generation of one case, with its compute counted. For comparisons and for jobs."""

from dataclasses import dataclass
from typing import Any

from diffusers import DiffusionPipeline

from galaxydit.acceleration import transformers_of
from galaxydit.eval.compare.compute_counter import ComputeCounter, Part
from galaxydit.eval.compare.method import Method, Setting
from galaxydit.eval.compare.methods import fewer_steps
from galaxydit.eval.compare.plan import Case
from galaxydit.pipelines.generate import Generation, generate
from galaxydit.pipelines.settings import GenerationSettings


@dataclass(frozen=True)
class Workload:
    """A pipeline, its settings, and the `parts` of its blocks that are counted, from `measure_parts`."""

    pipe: DiffusionPipeline
    settings: GenerationSettings
    parts: tuple[Part, ...] = ()

    def run(self, case: Case, method: Method, setting: Setting, calibration: Any) -> tuple[Generation, ComputeCounter]:
        """One generation with a method, and what it computed."""
        settings = self.settings if method.generation is None else method.generation(self.settings, setting)
        transformer = next(iter(transformers_of(self.pipe).values()))  # the only one, if there are parts
        with (
            method.attach(self.pipe, setting, calibration) as attached,
            ComputeCounter(transformer, self.parts, attached.bytes_held) as counter,
        ):
            return generate(self.pipe, case.prompt, settings, case.seed), counter

    def run_plain(self, case: Case) -> tuple[Generation, ComputeCounter]:
        """One generation without any method."""
        return self.run(case, fewer_steps.METHOD, {"steps": self.settings.steps}, None)
