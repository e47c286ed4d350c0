"""Plan profiles from the samples of a calibration, as they come."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from diffusers import DiffusionPipeline

from galaxydit.calibration.build_profile import ProfileBuilder
from galaxydit.calibration.full_precision import is_rounded
from galaxydit.calibration.parts import Sample
from galaxydit.calibration.perturbation import Perturbation, propagation_of
from galaxydit.calibration.rank import rank_proxies
from galaxydit.calibration.recording import Array, Recording, estimated_rounding, ratios_of_distances
from galaxydit.calibration.search import FullSteps, Order, ScheduleError, planned_schedules
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.policies.schedule import full_step_count
from galaxydit.profiles.changed_conditions import dtype_of
from galaxydit.profiles.evidence import ErrorPropagation, Recorded
from galaxydit.profiles.schema import Profile
from galaxydit.runtime.recognition import transformers_of
from galaxydit.schedulers import draws_noise

MOVED_DB = 0.1  # error over the least, on all samples, that schedules without the newest sample may have
USUAL_DB = 6.0  # the largest error over the least of schedules from other samples, on four to eight of wan-tiny
MUCH_WORSE = 2.0  # times this error is an error that shows another kind of trajectory

Measured = tuple[Sequence[Recording], ErrorPropagation]


@dataclass
class Planner:
    """Plans profiles of `pipe` for `settings`; `check` fills the last four fields."""

    pipe: DiffusionPipeline
    settings: GenerationSettings
    speedups: Sequence[float]
    name: str
    timing: Mapping[str, Any]  # of the part "timing"
    proxy_costs: Mapping[str, float]
    ratios: Mapping[str, Array] = field(default_factory=dict)  # of a video's proxy distances to a recording's
    full_shape: tuple[int, ...] = ()  # of that video's latent
    excess_db: float | None = None  # largest error of the recordings' schedules over the least, on that video
    agrees: bool = True  # whether the recordings serve for videos of full size

    def profile(self, samples: Sequence[Sample]) -> Profile:
        if is_rounded(self.pipe):  # `in_float32` widens such weights
            dtype = "float32"
        else:
            dtype = dtype_of(next(iter(transformers_of(self.pipe).values())))
        recorded = Recorded(samples[0].recording.latent_shape, dtype, self.excess_db)
        where = {
            "latent_shape": self.full_shape,
            "device": self.timing["device"],
            "versions": self.timing["versions"],
        }
        return self.builder(samples).profile(self.name, self.settings, recorded, **where)

    def builder(self, samples: Sequence[Sample]) -> ProfileBuilder:
        ranking = rank_proxies([sample.recording for sample in samples], self.proxy_costs)
        return ProfileBuilder(self.pipe, self.recordings(samples), ranking, _propagation(samples), self.speedups)

    def recordings(self, samples: Sequence[Sample]) -> tuple[Recording, ...]:
        """The recordings, with the rounding of the first one and the proxy distances of the videos."""
        rounding = samples[0].recording.rounding
        return tuple(replace(sample.recording.scaled(self.ratios), rounding=rounding) for sample in samples)

    def check(self, samples: Sequence[Sample], full: Recording) -> str:
        """Compare a plain video with recordings of its rounding, and return the finding as a sentence.

        Schedules agree if they do not err much more on the video than those of other recordings do on each.
        """
        first = samples[0].recording
        # The recordings of weights that cannot be widened have their rounding subtracted, too.
        if first.rounding and not is_rounded(self.pipe):
            full = full.without_rounding(estimated_rounding(full)).rounded
        self.full_shape = full.latent_shape
        self.ratios = ratios_of_distances(full, first)
        rounded = [recording.rounded for recording in self.recordings(samples)]
        growth = _propagation(samples)
        self.excess_db = max(0.0, self._excess((rounded, growth), ([full], growth)))
        # The same for each recording, with schedules from the others.
        usual_db = USUAL_DB
        if len(rounded) > 1:
            usual = []
            for index, recording in enumerate(rounded):
                others = rounded[:index] + rounded[index + 1 :]
                usual.append(self._excess((others, growth), ([recording], growth)))
            usual_db = max(usual)
        self.agrees = self.excess_db <= MUCH_WORSE * usual_db
        serve = "serve" if self.agrees else "do not serve"
        return (
            f"the recordings {serve} for videos of full size: on one plain video "
            f"their schedules have up to {self.excess_db:.1f} dB more error than the best for this video, on each "
            f"recording those of the others up to {usual_db:.1f} dB"
        )

    def stands(self, samples: Sequence[Sample]) -> bool:
        """Whether schedules planned without the last sample err at most `MOVED_DB` more than the best for all."""
        recordings = self.recordings(samples)
        planned = recordings[:-1], _propagation(samples[:-1])
        return self._excess(planned, (recordings, _propagation(samples))) <= MOVED_DB

    def _excess(self, planned: Measured, measured: Measured) -> float:
        """The largest error, over the speedups, of schedules from `planned` on `measured`, over the least, in dB."""
        recordings, growth = measured
        planned_recordings, planned_growth = planned
        corrects = not draws_noise(self.pipe.scheduler)
        order: Order = 1 if corrects else 0
        counts = sorted({full_step_count(recordings[0].steps, speedup) for speedup in self.speedups})
        model = ScheduleError(recordings, corrects)
        best = planned_schedules(model, growth, counts, order)
        tried = planned_schedules(ScheduleError(planned_recordings, corrects), planned_growth, counts, order)

        def decibels(schedule: FullSteps) -> float:
            errors = model.final_error(schedule, growth, order=order, coherence=0.0)
            return float(10 * np.log10(np.maximum(errors, 1e-30)).mean())  # mean over the recordings, like PSNR

        excesses = []
        for count in counts:
            if count in best and count in tried:
                excesses.append(decibels(tried[count]) - decibels(best[count]))
        return max(excesses)


def _propagation(samples: Sequence[Sample]) -> ErrorPropagation:
    perturbations: list[Perturbation] = []
    for sample in samples:
        perturbations.extend(sample.perturbations)
    return propagation_of(perturbations)
