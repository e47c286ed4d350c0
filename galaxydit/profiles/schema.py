"""The profile: what a calibration measured on one model, as a versioned JSON file.

`Profile.recipe` is all that the runtime follows. `Profile.evidence` says how it was found and how good it is.
"""

import hashlib
import json
import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, MinLen

from galaxydit.errors import GalaxyDiTError, check_ascending, check_choice, refusal
from galaxydit.files import write_json
from galaxydit.policies.error_map import CumulativeDistance, ErrorMap
from galaxydit.proxies import PROXIES
from galaxydit.validation import parse

SCHEMA_VERSION = 7
Setting = str | int | float | bool | None
Positive = Annotated[float, Ge(0)]
Share = Annotated[float, Ge(0), Le(1)]
Correlation = Annotated[float, Ge(-1), Le(1)]
Count = Annotated[int, Ge(0), Le(2**64)]


@dataclass(frozen=True)
class Model:
    """Which model a profile belongs to.

    Attributes:
        class_name: class of the transformer.
        config: the entries of its configuration that must agree; a starter profile names only some.
        weights: projections of the weights on a fixed pattern (`galaxydit.profiles.fingerprint`); empty where any
            checkpoint of this architecture will do.
        adapters: names of the adapters that were active.
    """

    class_name: str
    config: Mapping[str, Setting | tuple[int, ...]]
    weights: tuple[float, ...] = ()
    adapters: tuple[str, ...] = ()


@dataclass(frozen=True)
class Conditions:
    """What the calibration ran under. `prompts_sha256` covers prompts, seeds and their order.

    Below the noise level `boundary` a second transformer computes, with `guidance_scale_2` if it is not the first
    one's.
    """

    scheduler: str
    steps: Count
    flow_shift: float | None
    guidance_scale: float | None
    latent_shape: tuple[int, ...]
    dtype: str
    device: str
    samples: Count
    seed: int
    prompts_sha256: str
    versions: Mapping[str, str]
    sigmas: tuple[float, ...]
    guidance_scale_2: float | None = None
    boundary: float | None = None

    def __post_init__(self) -> None:
        check_ascending("sigmas", tuple(reversed(self.sigmas)), strictly=True)
        if self.sigmas and self.sigmas[0] > 1:
            raise refusal("sigmas", self.sigmas, "numbers of at most 1", "calibrate again")


@dataclass(frozen=True)
class Target:
    """The settings for one speedup.

    Attributes:
        speedup: block evaluations without the plugin / with it.
        warmup, max_consecutive: limits, see `GalaxyDiTConfig`.
        sigmas: noise levels of the steps to compute, falling.
    """

    speedup: Annotated[float, Ge(1), Le(100)]
    warmup: Share
    max_consecutive: Annotated[int, Ge(1), Le(10_000)] | None
    sigmas: Annotated[tuple[float, ...], MinLen(2)]

    def __post_init__(self) -> None:
        check_ascending("sigmas", tuple(reversed(self.sigmas)), strictly=True)


@dataclass(frozen=True)
class Recipe:
    """All that the runtime follows.

    Attributes:
        proxy, reuse, order: see `GalaxyDiTConfig`.
        error_map: expected error of the guided prediction by proxy distance and sigma; None in a starter.
        cumulative_distance: mean proxy distance by sigma; None in a starter.
        targets: settings by rising speedup.
    """

    proxy: str
    reuse: Literal["output", "residual"]
    order: Literal[0, 1]
    error_map: ErrorMap | None
    cumulative_distance: CumulativeDistance | None
    targets: tuple[Target, ...]

    def __post_init__(self) -> None:
        check_choice("proxy", self.proxy, tuple(PROXIES))
        if not self.targets:
            raise GalaxyDiTError("targets is empty: expected at least one; calibrate again")
        check_ascending("targets' speedup", tuple(target.speedup for target in self.targets), strictly=True)


@dataclass(frozen=True)
class RankedProxy:
    """Mean Spearman correlation of a proxy with the true change, its 95 % interval, and its value by lag."""

    proxy: str
    cost: Share
    rho: Correlation
    low: Correlation
    high: Correlation
    whole_run: Correlation
    by_lag: tuple[Correlation, ...]

    def __post_init__(self) -> None:
        check_choice("proxy", self.proxy, tuple(PROXIES))


@dataclass(frozen=True)
class Fit:
    """Share of the error's variance explained on held-out samples, by one curve for all sigmas and by one per sigma."""

    r2_one_curve: float
    r2_by_sigma: float
    spearman: float


@dataclass(frozen=True)
class ErrorPropagation:
    """How errors of the latent grow or fade until the end of a generation.

    Attributes:
        sigmas: noise levels at which it was measured, falling; empty if it was not.
        sensitivities: error of the final latent / error made at that noise level, above 0.
    """

    sigmas: tuple[float, ...] = ()
    sensitivities: tuple[Annotated[float, Gt(0)], ...] = ()

    def __post_init__(self) -> None:
        check_ascending("propagation's sigmas", tuple(reversed(self.sigmas)), strictly=True)
        count = len(self.sigmas)
        if count != len(self.sensitivities) or not all(0 < value < math.inf for value in self.sensitivities):
            expected = f"a number above 0 for each of its {count} sigmas"
            raise refusal("propagation's sensitivities", self.sensitivities, expected, "calibrate again")

    def sensitivity(self, sigma: float) -> float:
        """The sensitivity at a noise level, log-linear between and beyond the measured ones; 1 if unmeasured."""
        if len(self.sigmas) < 2:
            return self.sensitivities[0] if self.sensitivities else 1.0
        right = min(max(1, bisect_left(self.sigmas, -sigma, key=lambda value: -value)), len(self.sigmas) - 1)
        high, low = self.sigmas[right - 1], self.sigmas[right]
        share = (high - sigma) / (high - low)
        left_log, right_log = (math.log(self.sensitivities[index]) for index in (right - 1, right))
        return math.exp((1 - share) * left_log + share * right_log)


@dataclass(frozen=True)
class Verification:
    """One of the speedups that were asked for, as measured on held-out prompts.

    Attributes:
        speedup: of the target.
        expected_error: largest expected relative error of a reused step in the replay of the recordings.
        compute_fraction: block evaluations done / those without the plugin.
        psnr_db: PSNR against the plain video.
    """

    speedup: float
    expected_error: Positive | None = None
    compute_fraction: Share | None = None
    psnr_db: Positive | None = None


@dataclass(frozen=True)
class Seconds:
    """Seconds on the calibration's device: of a step, a block, and what a step does outside the blocks and outside the
    transformer; and denoise speedups by target, predicted from them and measured.
    """

    step: Positive
    block: Positive
    outside_blocks: Positive
    outside_transformer: Positive
    predicted_speedup: tuple[Positive, ...]
    measured_speedup: tuple[Positive, ...]


@dataclass(frozen=True)
class Evidence:
    """How the recipe was found, and how good it is. The runtime reads only the speedups of `verifications`.

    `seconds` differ between two runs of the same calibration, so comparisons and `Profile.identity` leave them out.
    """

    reason: str
    ranking: tuple[RankedProxy, ...] = ()
    fit: Fit | None = None
    propagation: ErrorPropagation = ErrorPropagation()
    verifications: tuple[Verification, ...] = ()
    seconds: Seconds | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Profile:
    """What `accelerate` needs to know about a model, and where it comes from.

    `kind` is "measured" for a calibration, "starter" for a plan from published measurements that was never run here.
    Pipelines with a `transformer_2` need a profile with its `second_model`.
    """

    schema_version: int
    name: str
    kind: Literal["measured", "starter"]
    source: str
    model: Model
    conditions: Conditions
    recipe: Recipe
    evidence: Evidence
    second_model: Model | None = None

    @property
    def fastest(self) -> float:
        """The largest speedup that was asked for."""
        asked = self.evidence.verifications or self.recipe.targets
        return asked[-1].speedup

    def target_for(self, speedup: float) -> Target:
        """The target whose number of full steps is nearest to a speedup's, one that was verified if there is."""
        steps, verified = self.conditions.steps, {found.speedup for found in self.evidence.verifications}
        return min(
            self.recipe.targets,
            key=lambda target: (
                abs(round(steps / target.speedup) - round(steps / speedup)),
                abs(target.speedup - speedup),
                target.speedup not in verified,
            ),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with `digest`, ready for JSON."""
        data = asdict(self)
        return data | {"digest": _digest(data)}

    @property
    def identity(self) -> str:
        """SHA-256 of everything but the seconds: equal for two runs of the same calibration."""
        data = asdict(self)
        del data["evidence"]["seconds"]
        return _digest(data)

    def save(self, path: str | Path) -> None:
        """Write the JSON file, at once or not at all. Raises GalaxyDiTError for values that could not be read back."""
        data = self.to_dict()
        parse_profile(data)
        write_json(Path(path), data)


def read_profile(path: str | Path) -> Profile:
    """Read and check a profile file.

    Raises GalaxyDiTError, naming the place, the value, what is expected and the cure, for anything that this version
    did not write: another schema version, unknown or missing keys, numbers out of range, a file changed after saving.
    """
    shown = f"profile={str(Path(path))!r}"
    try:
        return parse_profile(json.loads(Path(path).read_text(encoding="utf-8")))
    except GalaxyDiTError as error:
        raise GalaxyDiTError(f"{shown}: {error}") from error
    except OSError as error:
        raise GalaxyDiTError(f"{shown} cannot be read ({error.strerror}); pass an existing file") from error
    except (ValueError, RecursionError) as error:
        raise GalaxyDiTError(f"{shown} is not JSON ({error}); calibrate again, or restore it") from error


def parse_profile(data: Any) -> Profile:
    """A profile from the plain data of `Profile.to_dict`, checked as by `read_profile`."""
    if not isinstance(data, dict):
        raise GalaxyDiTError(f"the file holds {type(data).__name__}: expected an object; calibrate again")
    version = data.get("schema_version")
    if type(version) is not int or version != SCHEMA_VERSION:
        cure = "calibrate again with this version of galaxydit, or install the one that wrote the profile"
        raise refusal("schema_version", version, str(SCHEMA_VERSION), cure)
    content = {name: value for name, value in data.items() if name != "digest"}
    profile: Profile = parse(Profile, content)
    if data.get("digest") != _digest(content):
        raise GalaxyDiTError(
            f"digest={data.get('digest')!r} does not belong to the content: the file was changed after it was saved; "
            "restore it, calibrate again, or load it, change it in Python and save it"
        )
    return profile


def _digest(data: Mapping[str, Any]) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
