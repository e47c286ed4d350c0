"""The profile: what a calibration measured on one model, as a versioned JSON file.

`Profile.recipe` is all that the runtime follows. `Profile.evidence` says how it was found and how good it is.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from galaxydit.errors import GalaxyDiTError, check_ascending, refusal
from galaxydit.files import write_json
from galaxydit.profiles.evidence import Count, Evidence
from galaxydit.profiles.recipe import Recipe, Target
from galaxydit.validation import parse

SCHEMA_VERSION = 9
Setting = str | int | float | bool | None


@dataclass(frozen=True)
class Model:
    """Identity of the model that a profile belongs to.

    Attributes:
        class_name: class of the transformer.
        config: the entries of its configuration that must agree; a published profile names only some.
        weights: projections of the weights on a fixed pattern (`galaxydit.profiles.fingerprint`); empty where any
            checkpoint of this architecture will do.
        adapters: names of the adapters that were active.
    """

    class_name: str
    config: Mapping[str, Setting | tuple[int, ...]]
    weights: tuple[float, ...] = ()
    adapters: tuple[str, ...] = ()


@dataclass(frozen=True)
class Served:
    """Settings for which a published profile was planned: the lowest and the highest value of each."""

    steps: tuple[Count, Count]
    flow_shift: tuple[float, float]
    guidance_scale: tuple[float, float]


@dataclass(frozen=True)
class Conditions:
    """Conditions of the calibration.

    `samples` is the number of recorded generations; `prompts_sha256` covers their prompts, seeds and order. `sigmas`
    are the noise levels of the steps, falling. `guidance_scale_2` is for a second transformer, which computes below the
    noise level `boundary`; `boundary` is None without a second transformer. `served` holds the settings for which a
    published profile was planned; None for a measured profile.
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
    served: Served | None = None

    def __post_init__(self) -> None:
        check_ascending("sigmas", tuple(reversed(self.sigmas)), strictly=True)
        if self.sigmas and self.sigmas[0] > 1:
            raise refusal("sigmas", self.sigmas, "numbers of at most 1", "calibrate again")


@dataclass(frozen=True)
class Profile:
    """Settings of the plugin for one model, with the evidence for them.

    `kind` is "measured" for a calibration, "published" for a plan from published measurements that was never run here.
    Pipelines with a `transformer_2` need a profile with its `second_model`. Models `shared_with` have no measurements
    of their own, so the profile is a guess for them.
    """

    schema_version: int
    name: str
    kind: Literal["measured", "published"]
    source: str
    model: Model
    conditions: Conditions
    recipe: Recipe
    evidence: Evidence
    second_model: Model | None = None
    shared_with: tuple[Model, ...] = ()

    @property
    def fastest(self) -> float:
        """The largest speedup that was verified or, without verifications, planned."""
        asked = self.evidence.verifications or self.recipe.targets
        return asked[-1].speedup

    def target_for(self, speedup: float) -> Target:
        """The target whose number of full steps is nearest to that of a speedup. Of equally near targets, the one with
        the nearest speedup is taken; if these are equally near as well, a verified one.
        """
        steps, verified = self.conditions.steps, {row.speedup for row in self.evidence.verifications}
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
        """SHA-256 of everything but the measured seconds: equal for two runs of the same calibration."""
        data = asdict(self)
        del data["evidence"]["seconds"]
        return _digest(data)

    def save(self, path: str | Path) -> None:
        """Write the JSON file atomically. Raises GalaxyDiTError for values that `read_profile` would refuse."""
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
