"""The profile: what a calibration learned about one model, as a versioned JSON file that is checked strictly."""

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from galaxydit.config import REUSE_KINDS, Config
from galaxydit.error_map import ErrorMap, check_ascending
from galaxydit.errors import GalaxyDiTError
from galaxydit.plan import check_weights
from galaxydit.propagation import Propagation
from galaxydit.proxies import PROXIES
from galaxydit.strict import decode

SCHEMA_VERSION = 3
KINDS = ("measured", "starter")
Setting = str | int | float | bool | None


@dataclass(frozen=True)
class Model:
    """Which model a profile belongs to.

    Attributes:
        class_name: class of the transformer.
        config: the entries of its configuration that must agree; a starter profile names only some.
        weights: projections of some weights on a fixed pattern (`galaxydit.fingerprint`); empty where any weights of
            this architecture will do.
        adapters: names of the adapters that were active.
    """

    class_name: str
    config: Mapping[str, Setting | tuple[int, ...]]
    weights: tuple[float, ...] = ()
    adapters: tuple[str, ...] = ()


@dataclass(frozen=True)
class Conditions:
    """What the calibration ran under. `prompts_sha256` covers prompts, seeds and their order."""

    scheduler: str
    steps: int
    flow_shift: float | None
    guidance_scale: float | None
    latent_shape: tuple[int, ...]
    dtype: str
    device: str
    samples: int
    seed: int
    prompts_sha256: str
    versions: Mapping[str, str]
    sigmas: tuple[float, ...]

    def __post_init__(self) -> None:
        for name, value in (("steps", self.steps), ("samples", self.samples)):
            if value < 0:
                raise GalaxyDiTError(f"{name}={value!r} is not a whole number of at least 0; calibrate again")
        check_ascending("sigmas", tuple(reversed(self.sigmas)), strictly=True)
        if self.sigmas and self.sigmas[0] > 1:
            raise GalaxyDiTError(f"sigmas starts with {self.sigmas[0]!r}, allowed is at most 1; calibrate again")


@dataclass(frozen=True)
class RankedProxy:
    """One line of the ranking: mean Spearman correlation with the true change and its 95 % interval, by lag too."""

    proxy: str
    cost: float
    rho: float
    low: float
    high: float
    whole_run: float
    by_lag: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.proxy not in PROXIES:
            raise GalaxyDiTError(f"proxy={self.proxy!r} is not one of {', '.join(PROXIES)}; calibrate again")
        for value in (self.rho, self.low, self.high, self.whole_run, *self.by_lag):
            if not -1 <= value <= 1:
                raise GalaxyDiTError(f"a correlation of {self.proxy} is {value!r}, allowed is -1 to 1; calibrate again")


@dataclass(frozen=True)
class Target:
    """What to do for one speedup.

    Attributes:
        speedup: block evaluations without the plugin / with it, at least 1.
        warmup, max_consecutive, decay, follow: settings for it, see `Config` and `Plan`.
        schedule: noise levels of the full steps with the least error on the recordings, falling; empty in a starter.
        weights: for each of them what the line and the parabola weigh in the predictions that follow, see `Plan`.
        expected_error: largest expected relative error of a reused step, in the replay: the threshold that this speedup
            amounts to.
        compute_fraction, psnr_db, fixed_psnr_db: measured on held-out prompts: block evaluations done, PSNR against the
            plain video, and PSNR of one schedule for all prompts at order 1. None in a starter profile.
    """

    speedup: float
    warmup: float
    max_consecutive: int | None
    decay: float = 0.0
    follow: float = 1.0
    schedule: tuple[float, ...] = ()
    weights: tuple[tuple[float, ...], ...] = ()
    expected_error: float | None = None
    compute_fraction: float | None = None
    psnr_db: float | None = None
    fixed_psnr_db: float | None = None

    def __post_init__(self) -> None:
        _check_range("speedup", self.speedup, 1, 100)
        _check_range("warmup", self.warmup, 0, 1)
        _check_range("decay", self.decay, 0, 1)
        _check_range("follow", self.follow, 0, 1)
        if self.max_consecutive is not None:
            _check_range("max_consecutive", self.max_consecutive, 1, 10_000)
        check_ascending("schedule", tuple(reversed(self.schedule)), strictly=True)
        check_weights(self.weights, self.schedule)
        for name in ("expected_error", "psnr_db", "fixed_psnr_db"):
            _check_range(name, getattr(self, name), 0, math.inf)
        _check_range("compute_fraction", self.compute_fraction, 0, 1)


@dataclass(frozen=True)
class Seconds:
    """Times on the calibration's device, seconds; and denoise speedups by target, predicted from them and measured."""

    step: float
    block: float
    outside_blocks: float
    outside_transformer: float
    predicted_speedup: tuple[float, ...]
    measured_speedup: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("step", "block", "outside_blocks", "outside_transformer"):
            _check_range(name, getattr(self, name), 0, math.inf)
        for value in (*self.predicted_speedup, *self.measured_speedup):
            _check_range("speedup in seconds", value, 0, 1000)


@dataclass(frozen=True)
class Fit:
    """Share of the error's variance that the map explains on samples it was not fitted to: one curve, and by sigma."""

    r2_one_curve: float
    r2_by_sigma: float
    spearman: float


@dataclass(frozen=True)
class Profile:
    """Everything `accelerate` needs to know about a model, and where it comes from.

    `targets` are the speedups that were asked for; `unverified` are plans for the numbers of full steps between theirs,
    which nothing was generated with. `seconds` differ between two runs of the same calibration and are left out of
    comparisons and of `identity`.
    """

    schema_version: int
    name: str
    kind: str
    source: str
    model: Model
    conditions: Conditions
    proxy: str
    reason: str
    ranking: tuple[RankedProxy, ...]
    error_map: ErrorMap
    fit: Fit | None
    clock: tuple[float, ...]
    propagation: Propagation
    order: int
    reuse: str
    reused_cost: float
    targets: tuple[Target, ...]
    unverified: tuple[Target, ...] = ()
    seconds: Seconds | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.schema_version != SCHEMA_VERSION:
            raise GalaxyDiTError(
                f"schema_version={self.schema_version!r}, allowed is {SCHEMA_VERSION}; calibrate again with this "
                "version of galaxydit, or install the one that wrote the profile"
            )
        for name, value, allowed in (
            ("kind", self.kind, KINDS),
            ("proxy", self.proxy, tuple(PROXIES)),
            ("reuse", self.reuse, REUSE_KINDS),
            ("order", self.order, (0, 1)),
        ):
            if value not in allowed:
                raise GalaxyDiTError(f"{name}={value!r}, allowed are {', '.join(map(str, allowed))}; calibrate again")
        check_ascending("clock", self.clock, strictly=False)
        if len(self.clock) != len(self.conditions.sigmas):
            raise GalaxyDiTError(
                f"clock has {len(self.clock)} entries, allowed are {len(self.conditions.sigmas)}, one for each of "
                "conditions.sigmas; calibrate again"
            )
        if not 0 <= self.reused_cost < 1:
            raise GalaxyDiTError(f"reused_cost={self.reused_cost!r}, allowed is 0 to less than 1; calibrate again")
        if not self.targets:
            raise GalaxyDiTError("targets is empty, allowed is at least one; calibrate again")
        for name, targets in (("targets", self.targets), ("unverified", self.unverified)):
            check_ascending(f"{name}' speedup", tuple(target.speedup for target in targets), strictly=True)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with `digest`, ready for JSON."""
        data = asdict(self)
        return data | {"digest": _digest(data)}

    @property
    def identity(self) -> str:
        """SHA-256 of everything but `seconds`: equal for two runs of the same calibration."""
        return _digest({name: value for name, value in asdict(self).items() if name != "seconds"})

    def save(self, path: str | Path) -> None:
        """Write the JSON file, at once or not at all."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        partial.write_text(json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n", encoding="utf-8")
        partial.replace(path)

    def target_for(self, speedup: float) -> Target:
        """The target whose number of full steps is nearest to a speedup's, one that was asked for if there is."""
        steps = self.conditions.steps

        def far(target: Target) -> float:
            return abs(round(steps / target.speedup) - round(steps / speedup))

        return min((*self.targets, *self.unverified), key=lambda target: (far(target), abs(target.speedup - speedup)))

    def config_for(self, config: Config, target: Target) -> Config:
        """`config` with the proxy and settings of this profile for one target."""
        return replace(
            config,
            proxy=self.proxy,
            order=self.order,
            reuse=self.reuse,
            warmup=target.warmup,
            max_consecutive=target.max_consecutive,
        )


def load_profile(path: str | Path) -> Profile:
    """Read and check a profile.

    Raises GalaxyDiTError, naming the place, the value, what is allowed and the cure, for anything that this version did
    not write: another schema version, unknown or missing keys, numbers out of range, a file changed after it was saved.
    """
    path = Path(path)
    try:
        data = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except OSError as error:
        raise GalaxyDiTError(
            f"profile={str(path)!r} cannot be read ({error.strerror}); pass an existing file"
        ) from error
    except (ValueError, RecursionError) as error:
        raise GalaxyDiTError(f"profile={str(path)!r} is not JSON ({error}); calibrate again, or restore it") from error
    try:
        return parse_profile(data)
    except GalaxyDiTError as error:
        raise GalaxyDiTError(f"profile={str(path)!r}: {error}") from error


def parse_profile(data: Any) -> Profile:
    """A profile from the plain data of `Profile.to_dict`, checked as by `load_profile`."""
    if not isinstance(data, dict):
        raise GalaxyDiTError(f"the file holds {type(data).__name__}, allowed is an object; calibrate again")
    version = data.get("schema_version")
    if type(version) is not int or version != SCHEMA_VERSION:
        raise GalaxyDiTError(
            f"schema_version={version!r}, allowed is {SCHEMA_VERSION}; calibrate again with this version of galaxydit, "
            "or install the one that wrote the profile"
        )
    content = {name: value for name, value in data.items() if name != "digest"}
    profile: Profile = decode(Profile, content)
    if data.get("digest") != _digest(content):
        raise GalaxyDiTError(
            f"digest={data.get('digest')!r} does not belong to the content: the file was changed after it was saved; "
            "restore it, calibrate again, or load it, change it in Python and save it"
        )
    return profile


def _digest(data: Mapping[str, Any]) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a finite number")


def _check_range(name: str, value: float | None, low: float, high: float) -> None:
    if value is not None and (not low <= value <= high or value == math.inf):
        raise GalaxyDiTError(f"{name}={value!r}, allowed is {low:g} to {high:g}; calibrate again")
