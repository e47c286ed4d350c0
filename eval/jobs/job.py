"""A job as plain data: which videos to make, and how. Every worker gets the same job."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, make_dataclass
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Interval, Len
from pydantic import AfterValidator, StringConstraints

from galaxydit.errors import GalaxyDiTError, listed, plain_fields, refusal
from galaxydit.eval.jobs.gates import Gates
from galaxydit.eval.jobs.record import BASELINE
from galaxydit.eval.methods.method_registry import is_installed, load_method
from galaxydit.foreign_text import without_secrets
from galaxydit.pipelines.runs.unit import Unit, hash_of
from galaxydit.pipelines.settings import MOST, DtypeName, Offload

SETTINGS = ("steps", "guidance", "guidance_2", "flow_shift", "negative_prompt", "height", "width", "frames", "fps")
ADDITIONS = ("base", "lora", "lora_2", "compile", "attention")
RENAMED = {"guidance": "guidance_scale", "guidance_2": "guidance_scale_2", "frames": "num_frames"}
PLUGIN, FEWER_STEPS = "galaxydit", "fewer-steps"
MOST_VIDEOS = 1_000_000  # of a job
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
    """A way to generate: "baseline", "galaxydit", "fewer-steps" or the slug of a compared method, with options."""

    name: str
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)  # SHA-256 of each file that an option names


PLAIN = Variant(BASELINE, BASELINE)


@dataclass(frozen=True, kw_only=True)
class Job:
    """The content of a job file; `galaxydit eval run --example` prints an example.

    `load_pipeline` explains the fields from `model` to `attention`, `GenerationSettings` those from `steps` to `fps`,
    of which None takes the recommended value.
    """

    model: Text
    revision: Text | None = None
    dtype: DtypeName | None = None
    offload: Offload = "none"
    base: Text | None = None
    lora: Text | None = None
    lora_2: Text | None = None
    compile: bool = False
    attention: Text | None = None
    steps: Annotated[int, Interval(ge=1, le=MOST["steps"])] | None = None
    guidance: Annotated[float, Ge(0)] | None = None
    guidance_2: Annotated[float, Ge(0)] | None = None
    flow_shift: Annotated[float, Gt(0)] | None = None
    negative_prompt: str | None = None
    height: Annotated[int, Interval(ge=1, le=MOST["height"])] | None = None
    width: Annotated[int, Interval(ge=1, le=MOST["width"])] | None = None
    frames: Annotated[int, Interval(ge=1, le=MOST["num_frames"])] | None = None
    fps: Annotated[float, Gt(0)] | None = None
    seeds: Seeds | None = None  # of every prompt; else sample j of prompt i has the seed `seed` + i * `samples` + j
    samples: Count = 1
    seed: Seed = 0
    baseline: bool = True  # whether `variants` begins with `PLAIN`
    metrics: Names | None = None  # None measures all that are installed and suit the video
    video: Literal["h264", "lossless"] = "h264"  # "lossless" keeps every RGB level
    # of `galaxydit compare`: compute fractions are of operations, only the first prompt's videos are kept, and
    # calibrations start from other seeds
    comparison: bool = False
    prompts: tuple[str, ...]  # texts, or JSON objects (pipelines/inputs.py)
    variants: tuple[Variant, ...] = (PLAIN,)
    calibration: tuple[str, ...] = ()  # other prompts, for methods that measure something before their first video
    gates: Gates = field(default_factory=Gates)  # of `galaxydit eval check`

    def __post_init__(self) -> None:
        plain_fields(self)
        object.__setattr__(self, "prompts", listed("prompts", self.prompts))
        object.__setattr__(self, "calibration", listed("calibration", self.calibration))
        for name, kind in (("metrics", str), ("seeds", int)):  # None leaves the choice to the job
            if (values := getattr(self, name)) is not None:
                object.__setattr__(self, name, listed(name, values, kind))
        videos = len(self.prompts) * len(self.variants) * (len(self.seeds) if self.seeds else self.samples)
        if videos > MOST_VIDEOS:
            raise refusal("videos", videos, f"at most {MOST_VIDEOS}", "take fewer samples, or several jobs")
        for name in ("model", "revision", "base", "lora", "lora_2"):
            text = getattr(self, name)
            if text is not None and text != without_secrets(text):
                expected = "a name or an address without a key, a password or a token, because records keep it"
                raise refusal(name, text, expected, "log in with `hf auth login`, or set the key in the environment")

    @property
    def settings(self) -> dict[str, Any]:
        """The job's own values by field of `GenerationSettings`."""
        return {RENAMED.get(key, key): value for key in SETTINGS if (value := getattr(self, key)) is not None}

    @property
    def additions(self) -> dict[str, Any]:
        """What is loaded beside the model, by argument of `load_pipeline`, without what the job leaves out."""
        return {name: value for name in ADDITIONS if (value := getattr(self, name))}

    def units(self) -> tuple[Unit, ...]:
        """The units of all videos, by prompt, seed and variant, the baseline first; a prompt and seed are a group.

        Ids do not depend on later prompts, seeds and variants, so an extended job keeps them.
        """
        names = ("model", "revision", "dtype", "settings", "metrics", "video")
        shared = {name: getattr(self, name) for name in names} | {"calibration": hash_of(self.calibration)}
        shared |= self.additions
        if not self.baseline:  # because metrics with a reference are missing
            shared["baseline"] = False
        if self.comparison:
            shared["comparison"] = True
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
        data = {name: getattr(self, name) for name in ("model", "revision", "dtype", "settings")} | self.additions
        return Unit(f"calibration-{method}", {**data, "calibrates": method, "prompts": self.calibration})

    def unit_of(self, unit: Unit, variant: Variant = PLAIN) -> Unit:
        """The unit of the same prompt and seed in another variant, by default the baseline."""
        name = f"{unit.data['prompt_index']:05d}-s{unit.data['seed']}-{variant.name}"
        return Unit(name, {**unit.data, "variant": asdict(variant)}, unit.group)

    def seeds_of(self, prompt_index: int) -> tuple[int, ...]:
        """The seeds of one prompt: `seeds`, or `samples` consecutive ones that no other prompt has."""
        first = self.seed + prompt_index * self.samples
        return self.seeds or tuple(range(first, first + self.samples))


_NUMBERS, _WORDS = ("speedup", "max_error", "threshold", "min_psnr"), ("policy", "quality", "profile")
# Types of options that are listed here, so that wrong ones are refused without torch; all others are compared methods.
OWN: dict[str, type] = {
    PLUGIN: make_dataclass(  # whose values `Request` checks
        "PluginOptions",
        [
            *((name, float | None, None) for name in _NUMBERS),
            *((name, str | None, None) for name in _WORDS),
            ("few_steps", int | None, None),
        ],
    ),
    FEWER_STEPS: make_dataclass("FewerStepsOptions", [("steps", Annotated[int, Interval(ge=1, le=MOST["steps"])])]),
}


def calibration_of(name: str) -> str | None:
    """Name of the calibration that a method needs, that of the first method with the same one; None without one."""
    if name in (BASELINE, *OWN):
        return None
    from galaxydit.eval.methods.method import METHODS

    method = load_method(name)
    alike = (each.slug for each in METHODS.values() if each.calibrate is method.calibrate)
    return None if method.calibrate is None else next(alike)


def options_of(name: str) -> type:
    """A dataclass of a method's options, all required for a compared one. Raises GalaxyDiTError if not installed."""
    if name in OWN:
        return OWN[name]
    method = load_method(name)
    if not is_installed(method.needs):
        raise refusal("method", name, f"an installed {method.needs}", "pip install 'galaxydit[bench]'")
    kinds: dict[str, Any] = {}
    for example in method.settings(EXAMPLE_STEPS):
        for key, value in example.items():
            kinds[key] = kinds.get(key, type(value)) | type(value)
    return make_dataclass(name.replace("-", "_"), kinds.items())
