"""A job as understood: which videos to make and how. Plain data, the same for every worker."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from galaxydit.eval.jobs.record import BASELINE
from galaxydit.pipelines.runs import Unit, hash_of


@dataclass(frozen=True)
class Variant:
    """One way to generate. `options` are the method's own; `files` maps an option that names a file to its SHA-256."""

    name: str
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """Everything that results depend on.

    Attributes:
        model, revision: as `load_pipeline` takes them.
        dtype: name of a torch dtype, None for the model's own.
        settings: the fields of `GenerationSettings` that are given; the others are as recommended for the model.
        prompts: what the videos show.
        suite: where the prompts come from: name, count, seed, dimensions; empty for a file or a list.
        seeds: of every prompt; None where `samples` and `seed` make them.
        samples: seeds per prompt.
        seed: sample j of prompt i starts from the noise of seed + i * samples + j.
        variants: the first is the baseline.
        metrics: by name; None takes all that are installed and suit the video.
        lossless: whether mp4 files keep every RGB level.
        calibration: prompts for methods that measure something beforehand, none of them in `prompts`.
    """

    model: str
    revision: str | None
    dtype: str | None
    settings: Mapping[str, Any]
    prompts: tuple[str, ...]
    suite: Mapping[str, Any]
    seeds: tuple[int, ...] | None
    samples: int
    seed: int
    variants: tuple[Variant, ...]
    metrics: tuple[str, ...] | None
    lossless: bool
    calibration: tuple[str, ...] = ()

    def units(self) -> tuple[Unit, ...]:
        """All videos: prompt by prompt, seed by seed, the baseline before its variants, which share its group."""
        shared = {
            **self._model(),
            "metrics": self.metrics,
            "lossless": self.lossless,
            "calibration": hash_of(self.calibration),
        }
        variants = {variant.name: asdict(variant) for variant in self.variants}
        return tuple(
            Unit(
                f"{index:05d}-s{seed}-{name}",
                {**shared, "variant": variant, "prompt": prompt, "seed": seed, "prompt_index": index, "sample": sample},
                f"{index:05d}-s{seed}",
            )
            for index, prompt in enumerate(self.prompts)
            for sample, seed in enumerate(self.seeds_of(index))
            for name, variant in variants.items()
        )

    def calibration_unit(self, method: str) -> Unit:
        """The measurement that a method makes before its first video."""
        return Unit(f"calibration-{method}", {**self._model(), "calibrates": method, "prompts": self.calibration})

    def baseline_of(self, unit: Unit) -> Unit:
        """The unit that a variant is compared with."""
        name = f"{unit.group}-{BASELINE}"
        return Unit(name, {**unit.data, "variant": asdict(self.variants[0])}, unit.group)

    def seeds_of(self, prompt_index: int) -> tuple[int, ...]:
        """The seeds of one prompt. Counted on, so that no two videos of a job start from the same noise by default."""
        if self.seeds is not None:
            return self.seeds
        first = self.seed + prompt_index * self.samples
        return tuple(range(first, first + self.samples))

    def _model(self) -> dict[str, Any]:
        return {"model": self.model, "revision": self.revision, "dtype": self.dtype, "settings": self.settings}
