"""A job as understood: which videos to make and how. Plain data, the same for every worker."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Interval, Len
from pydantic import AfterValidator, StringConstraints

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.jobs.record import BASELINE
from galaxydit.pipelines.runs.unit import Unit, hash_of

SETTINGS = ("steps", "guidance", "guidance_2", "flow_shift", "negative_prompt", "height", "width", "frames", "fps")
RENAMED = {"guidance": "guidance_scale", "guidance_2": "guidance_scale_2", "frames": "num_frames"}


def _check_distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if repeated := [value for value, times in Counter(values).items() if times > 1]:
        raise GalaxyDiTError(f"expected a list without repetition, found {repeated[0]!r} twice; ")
    return values


Text = Annotated[str, StringConstraints(pattern=r"\S")]
Count = Annotated[int, Ge(1)]
Seed = Annotated[int, Interval(ge=0, le=2**63 - 1)]
Texts = Annotated[tuple[Text, ...], Len(1), AfterValidator(_check_distinct)]
Seeds = Annotated[tuple[Seed, ...], Len(1), AfterValidator(_check_distinct)]


@dataclass(frozen=True)
class Variant:
    """One way to generate. `options` are the method's own; `files` maps an option that names a file to its SHA-256."""

    name: str
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Job:
    """Everything that results depend on; `galaxydit eval run --example` explains the keys.

    Attributes:
        prompts: what the videos show.
        variants: the first is the baseline.
        calibration: prompts for methods that measure something beforehand, none of them in `prompts`.
    """

    model: Text
    revision: Text | None = None
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    steps: Count | None = None
    guidance: Annotated[float, Ge(0)] | None = None
    guidance_2: Annotated[float, Ge(0)] | None = None
    flow_shift: Annotated[float, Gt(0)] | None = None
    negative_prompt: str | None = None
    height: Count | None = None
    width: Count | None = None
    frames: Count | None = None
    fps: Annotated[float, Gt(0)] | None = None
    seeds: Seeds | None = None
    samples: Count = 1
    seed: Seed = 0
    metrics: Texts | None = None
    video: Literal["h264", "lossless"] = "h264"
    prompts: tuple[str, ...]
    variants: tuple[Variant, ...] = (Variant(BASELINE, BASELINE),)
    calibration: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """The fields of `GenerationSettings` that are given; the others are as recommended for the model."""
        given = {key: getattr(self, key) for key in SETTINGS if getattr(self, key) is not None}
        return {RENAMED.get(key, key): value for key, value in given.items()}

    def units(self) -> tuple[Unit, ...]:
        """All videos: prompt by prompt, seed by seed, the baseline before its variants, which share its group."""
        names = ("model", "revision", "dtype", "settings", "metrics", "video")
        shared = {name: getattr(self, name) for name in names} | {"calibration": hash_of(self.calibration)}
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
        data = {name: getattr(self, name) for name in ("model", "revision", "dtype", "settings")}
        return Unit(f"calibration-{method}", {**data, "calibrates": method, "prompts": self.calibration})

    def baseline_of(self, unit: Unit) -> Unit:
        """The unit that a variant is compared with."""
        name = f"{unit.group}-{BASELINE}"
        return Unit(name, {**unit.data, "variant": asdict(self.variants[0])}, unit.group)

    def seeds_of(self, prompt_index: int) -> tuple[int, ...]:
        """The seeds of one prompt. Counted on, so that no two videos of a job start from the same noise by default."""
        first = self.seed + prompt_index * self.samples
        return self.seeds or tuple(range(first, first + self.samples))
