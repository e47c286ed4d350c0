"""The recording stage of a calibration: samples until they stop moving the schedules, checked on a plain video."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from diffusers import DiffusionPipeline

from galaxydit.calibration.budget import Budget, Costs
from galaxydit.calibration.parts import Parts, Sample
from galaxydit.calibration.planner import Planner
from galaxydit.calibration.recording import Recording, ratios_of_distances
from galaxydit.pipelines.published_models import own_settings
from galaxydit.pipelines.runs import expect
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.pipelines.sizes import prepare_inputs, small_settings
from galaxydit.profiles.schema import Profile
from galaxydit.validation import parse


def settings_of_recording(
    pipe: DiffusionPipeline, prompt: str, settings: GenerationSettings, *, full_size: bool
) -> GenerationSettings:
    """The settings that a prompt is recorded with: those of the videos, by default at a smaller size."""
    _, sized = prepare_inputs(pipe, prompt, settings, own_settings)
    return sized if full_size else small_settings(pipe, sized)


@dataclass(kw_only=True)
class Sampling:
    """Records samples, and hands each profile that they make to `on_profile`.

    `say` is called with sentences. `are_smaller` says whether recordings are smaller than the videos. If a plain video
    shows that smaller ones do not serve, `full_size` becomes true, and they are made again.
    """

    parts: Parts
    planner: Planner
    costs: Costs
    budget: Budget
    on_profile: Callable[[Profile], None]
    say: Callable[[str], None]
    full_size: bool
    are_smaller: bool
    samples: list[Sample] = field(init=False, default_factory=list)

    def record(self, film: Recording | None) -> list[Sample]:
        """All samples; `film` is the recording of a plain video, if there is one that can check them."""
        fewest, most = self.budget.samples
        self._expect_rest(self.budget)
        self._add([0])
        self._offer_profile()
        if fewest > 1:
            self._expect_rest(self.budget)
            self._add(range(1, fewest))
        if self.budget.check or film is not None:
            self._check(film)
        self._offer_profile()
        checked = replace(self.budget, check=False)
        while len(self.samples) < most and not self._stands():
            if not self.full_size:
                self._expect_rest(checked)
            self._add([len(self.samples)])
            self._offer_profile()
        expect(self.parts.progress, None)  # the stages to come are of equal units, whose own rate serves better
        return self.samples

    def _add(self, indices: Sequence[int]) -> None:
        self.samples += self.parts.samples(indices, self._settings_of)

    def _offer_profile(self) -> None:
        self.on_profile(self.planner.profile(self.samples))

    def _stands(self) -> bool:
        """Whether the newest recording hardly moves the schedules."""
        return len(self.samples) > 1 and self.planner.stands(self.samples)

    def _check(self, film: Recording | None) -> None:
        """Compare the recordings with a plain video; if smaller ones do not serve, record again at full size."""
        plain = film or parse(Recording, self.parts.one("check", "checking"), "recording")
        self.say(self.planner.check(self.samples, plain))
        if self.planner.agrees or not self.are_smaller:
            return
        self.say("so the recordings are made again at full size, each at the price of at least 3 plain videos")
        self.full_size = True
        expect(self.parts.progress, None)  # the estimate was of small recordings
        count = len(self.samples)
        self.samples = []
        self._add(range(count))
        self.planner.ratios = ratios_of_distances(plain, self.samples[0].recording)

    def _expect_rest(self, budget: Budget) -> None:
        """Tell how long the stages of `budget` may take, with all samples that are missing."""
        missing = range(len(self.samples), budget.samples[1])
        videos = self.costs.videos(budget, self.parts.unmade(missing, self._settings_of))
        expect(self.parts.progress, self.costs.seconds(videos))

    def _settings_of(self, prompt: str) -> GenerationSettings:
        return settings_of_recording(self.planner.pipe, prompt, self.planner.settings, full_size=self.full_size)
