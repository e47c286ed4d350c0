"""Measures the parts of a calibration: costs, recorded samples, and verifications."""

from collections.abc import Callable
from dataclasses import asdict, dataclass

from diffusers import DiffusionPipeline

from galaxydit.calibration.build_profile import REUSE
from galaxydit.calibration.costs import measure_costs
from galaxydit.calibration.generation_observer import record_sample
from galaxydit.calibration.perturbation import perturb
from galaxydit.calibration.verify import verify_prompt
from galaxydit.pipelines.runs import Maker, Output, Rank, Unit
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.sharing import share_video
from galaxydit.profiles.schema import parse_profile


@dataclass(eq=False)
class CalibrationMaker(Maker):
    """The parts of a calibration on one worker; `load` returns its pipeline."""

    load: Callable[[], DiffusionPipeline]

    def prepare(self, rank: Rank) -> None:
        """Load the pipeline."""
        self.pipe = self.load()
        share_video(self.pipe, rank)

    def make(self, unit: Unit) -> Output:
        """One part."""
        data = unit.data
        settings, prompt, seed = GenerationSettings(**data["settings"]), data["prompt"], data["seed"]
        if data["part"] == "costs":
            return Output(asdict(measure_costs(self.pipe, prompt, settings, seed)))
        if data["part"] == "verification":
            return Output(verify_prompt(self.pipe, parse_profile(data["profile"]), prompt, settings, seed))
        recording, generation = record_sample(self.pipe, prompt, settings, seed)
        perturbations = [perturb(self.pipe, recording, generation, index, REUSE) for index in data["intervals"]]
        return Output({"recording": recording.to_dict(), "perturbations": perturbations})
