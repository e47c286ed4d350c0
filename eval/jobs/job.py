"""A job as plain data: which videos to make, and how. Every worker gets the same job.

A variant is a way to generate; the variant that generates without acceleration is the baseline. A unit is one piece of
work: the video of one prompt, seed and variant, or the calibration of a method, which is all that the method measures
before its first video. The compared methods are those of `galaxydit compare`.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, make_dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge, Gt, Interval, Len
from pydantic import AfterValidator, StringConstraints

from galaxydit.errors import GalaxyDiTError, refusal
from galaxydit.eval.jobs.gates import Gates
from galaxydit.eval.jobs.record import BASELINE
from galaxydit.pipelines.runs.unit import Unit, hash_of
from galaxydit.pipelines.settings import DtypeName, Offload

if TYPE_CHECKING:
    from galaxydit.eval.compare.method import Method

SETTINGS = ("steps", "guidance", "guidance_2", "flow_shift", "negative_prompt", "height", "width", "frames", "fps")
RENAMED = {"guidance": "guidance_scale", "guidance_2": "guidance_scale_2", "frames": "num_frames"}
PLUGIN, FEWER_STEPS = "galaxydit", "fewer-steps"
EXAMPLE_STEPS = 50  # steps for which a compared method lists its settings, to find the names and types of its options


def _check_distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if repeated := [value for value, times in Counter(values).items() if times > 1]:
        raise GalaxyDiTError(f"expected a list without repetition, but it has {repeated[0]!r} twice")
    return values


Text = Annotated[str, StringConstraints(pattern=r"\S")]
Count = Annotated[int, Ge(1)]
Seed = Annotated[int, Interval(ge=0, le=2**63 - 1)]
Names = Annotated[tuple[Text, ...], AfterValidator(_check_distinct)]
Texts = Annotated[Names, Len(1)]
Seeds = Annotated[tuple[Seed, ...], Len(1), AfterValidator(_check_distinct)]


@dataclass(frozen=True)
class Variant:
    """A way to generate.

    method: "baseline", "galaxydit", "fewer-steps" or a name in `compared_methods`.
    options: options of the method, by name.
    files: SHA-256 of each file that an option names, by the name of the option.
    """

    name: str
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


PLAIN = Variant(BASELINE, BASELINE)


@dataclass(frozen=True, kw_only=True)
class Job:
    """The content of a job file, whose keys are the fields; `galaxydit eval run --example` prints an example.

    In the file, `prompts`, `calibration` and `variants` are tables, from which `read_job` (jobfile.py) makes the values
    of these fields.

    Attributes:
        model: "wan-tiny", another short name such as "wan2.1-t2v-1.3b", a hub id, or a folder of `save_pretrained`.
        revision: branch, tag or commit of the model on the hub.
        dtype: of the weights; None takes the model's default.
        offload: "none" keeps all weights on the device. With the other values they wait in CPU memory: "model" moves
            one component at a time to the device, "group" a few layers ahead of their use, "sequential" each layer by
            itself.
        steps, guidance, guidance_2, flow_shift, negative_prompt, height, width, frames, fps: settings of every video;
            None takes the value that the model's authors recommend, and the aspect ratio of an image or video.
        seeds: seeds of every prompt. If None, sample j of prompt i has the seed `seed` + i * `samples` + j.
        metrics: names of the metrics to measure; None measures all that are installed and suit the video. Empty only
            without the baseline.
        video: encoding of the mp4 files; "lossless" keeps every RGB level.
        baseline: whether `variants` begins with the baseline, `PLAIN`.
        prompts: texts, or JSON objects that also name images and videos (pipelines/inputs.py).
        variants: ways to generate; each makes a video of every prompt and seed.
        calibration: prompts, other than `prompts`, for methods that measure something before their first video.
        gates: smallest and largest allowed values of figures by name, such as "psnr" (the mean over the videos), and
            the variants that `galaxydit eval check` holds to them (`Gates`). They affect neither videos nor
            measurements.
    """

    model: Text
    revision: Text | None = None
    dtype: DtypeName | None = None
    offload: Offload = "none"
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
    baseline: bool = True
    metrics: Names | None = None
    video: Literal["h264", "lossless"] = "h264"
    prompts: tuple[str, ...]
    variants: tuple[Variant, ...] = (PLAIN,)
    calibration: tuple[str, ...] = ()
    gates: Gates = field(default_factory=Gates)

    @property
    def settings(self) -> dict[str, Any]:
        """The values that the job sets, by field of `GenerationSettings`; the other fields get recommended values."""
        return {RENAMED.get(key, key): value for key in SETTINGS if (value := getattr(self, key)) is not None}

    def units(self) -> tuple[Unit, ...]:
        """The units of all videos, ordered by prompt, then seed, then variant, the baseline first.

        The units of one prompt and seed are a group, which one worker makes. The id of a unit does not depend on later
        prompts, seeds and variants, so a job that is extended keeps the ids of its units.
        """
        names = ("model", "revision", "dtype", "settings", "metrics", "video")
        shared = {name: getattr(self, name) for name in names} | {"calibration": hash_of(self.calibration)}
        if not self.baseline:  # because metrics with a reference are missing
            shared["baseline"] = False
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
        """The unit of the calibration of a method on the job's calibration prompts."""
        data = {name: getattr(self, name) for name in ("model", "revision", "dtype", "settings")}
        return Unit(f"calibration-{method}", {**data, "calibrates": method, "prompts": self.calibration})

    def baseline_of(self, unit: Unit) -> Unit:
        """The baseline's unit of the same prompt and seed, whose video the unit's video is compared with."""
        return Unit(f"{unit.group}-{BASELINE}", {**unit.data, "variant": asdict(PLAIN)}, unit.group)

    def seeds_of(self, prompt_index: int) -> tuple[int, ...]:
        """The seeds of one prompt: `seeds` of the job if it has them.

        Else `samples` consecutive seeds. The first prompt begins at `seed`, each other one where the prompt before it
        ended, so no two prompts share a seed.
        """
        first = self.seed + prompt_index * self.samples
        return self.seeds or tuple(range(first, first + self.samples))


@dataclass(frozen=True)
class PluginOptions:
    """Options of a variant with the method "galaxydit": arguments of `galaxydit.accelerate`; None takes its default.

    Attributes:
        speedup: block evaluations without the plugin / with it.
        policy: "schedule" computes planned steps, "proxy" reuses steps while a cheap tensor (the proxy) changes little,
            "auto" takes the policy that was better on held-out prompts.
        max_error: largest expected relative error of a reused step.
        threshold: steps are reused while the summed change of the proxy is below this number.
        quality: "lossless" computes every step; "high", "balanced" and "fast" stand for a speedup of 1.5, 2 and 3.
        min_psnr: PSNR against the plain video in dB that a speedup has to keep, as a mean over prompts.
        profile: name of a shipped profile, or path of a profile file, which holds a calibration for a model.
    """

    speedup: Annotated[float, Ge(1)] | None = None
    policy: Literal["auto", "schedule", "proxy"] = "auto"
    max_error: Annotated[float, Gt(0)] | None = None
    threshold: Annotated[float, Ge(0)] | None = None
    quality: Literal["lossless", "high", "balanced", "fast"] | None = None
    min_psnr: Annotated[float, Gt(0)] | None = None
    profile: str | None = None


# Methods whose options are listed here, so that wrong ones are refused without torch; all others are compared methods.
OWN: dict[str, type] = {PLUGIN: PluginOptions, FEWER_STEPS: make_dataclass("FewerStepsOptions", [("steps", Count)])}


def compared_methods() -> "dict[str, Method]":
    """The compared methods by the name that a job file uses, such as "uniform-skip-order-0"."""
    from galaxydit.eval.compare.every_method import EVERY_METHOD

    return {method.slug: method for method in EVERY_METHOD}


def needs_calibration(name: str) -> bool:
    """Whether the method with this name has a calibration."""
    return name not in (BASELINE, *OWN) and compared_methods()[name].calibrate is not None


def options_of(name: str) -> type:
    """A dataclass whose fields are the options of a method.

    For a compared method these are the keys of the settings that `galaxydit compare` tries; all are required.
    Raises GalaxyDiTError if the package that the method needs is not installed.
    """
    if name in OWN:
        return OWN[name]
    method = compared_methods()[name]
    if not method.is_available:
        raise refusal("method", name, f"an installed {method.needs}", "pip install 'galaxydit[bench]'")
    kinds: dict[str, Any] = {}
    for example in method.settings(EXAMPLE_STEPS):
        for key, value in example.items():
            kinds[key] = kinds.get(key, type(value)) | type(value)
    return make_dataclass(name.replace("-", "_"), kinds.items())
