"""The profile: settings of the plugin for one model, with the evidence for them, as a versioned JSON file.

A profile comes from a calibration on the model ("measured") or from published measurements ("published"). The runtime
follows `Profile.recipe`. `Profile.evidence` says how the recipe was found and how good it is.
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
    """Identity of the transformer that a profile belongs to.

    Attributes:
        class_name: class of the transformer.
        config: the entries of the transformer's configuration that must agree; a published profile names only some.
        weights: eight numbers for the whole transformer, sums of projections of its weight matrices on a fixed pattern
            (`galaxydit.profiles.fingerprint.project_weights`); empty where any checkpoint of this architecture will do.
        adapters: names of the adapters that must be active, sorted; no others may be active.
    """

    class_name: str
    config: Mapping[str, Setting | tuple[int, ...]]
    weights: tuple[float, ...] = ()
    adapters: tuple[str, ...] = ()


@dataclass(frozen=True)
class Served:
    """Settings of the generations for which a published profile was planned: lowest and highest value of each."""

    steps: tuple[Count, Count]
    flow_shift: tuple[float, float]
    guidance_scale: tuple[float, float]


@dataclass(frozen=True)
class Conditions:
    """Conditions under which a profile was calibrated, or for which a published profile was planned.

    Attributes:
        scheduler: class of the scheduler.
        steps, flow_shift, guidance_scale: settings of the recorded generations; in a published profile, those of the
            published measurement of the trajectory's curvature. `flow_shift` is None if the scheduler has none.
        latent_shape, dtype, device: of the recorded generations; empty in a published profile.
        samples: number of recorded generations; 0 in a published profile.
        seed: seed of the first recorded generation; 0 in a published profile.
        prompts_sha256: hash of the prompts and seeds of the recorded generations, in order; "" in a published profile.
        versions: package versions by name of the package; empty in a published profile.
        sigmas: noise levels of the steps with these settings, falling.
        guidance_scale_2: guidance scale of the second transformer.
        boundary: noise level below which the second transformer computes; None without a second transformer.
        served: ranges of the number of steps, the flow shift and the guidance scale for which a published profile was
            planned (`Served`); None for a measured profile.
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

    Attributes:
        schema_version: version of the file format, `SCHEMA_VERSION`.
        name: shown in reports; a shipped profile is loaded by it.
        kind: "measured" for a calibration, "published" for a plan from published measurements that was never run here.
        source: origin of the profile, as a text for people.
        model: the transformer that the profile belongs to.
        conditions: settings of the generations from which, or for which, the recipe was made.
        recipe: the settings that the plugin follows.
        evidence: how the recipe was chosen, and its measured quality.
        second_model: the pipeline's `transformer_2`; None for a pipeline with one transformer.
        shared_with: other transformers that may use the profile. Nothing was measured on them, so it is a guess there.
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
        """The target of the recipe whose number of full steps, `conditions.steps` divided by its speedup, is nearest to
        that of `speedup`. Among equally near targets, the nearest speedup wins; then a speedup that was verified.
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
        """The profile as plain data for JSON, plus `digest`, the SHA-256 of this data."""
        data = asdict(self)
        return data | {"digest": _digest(data)}

    @property
    def identity(self) -> str:
        """SHA-256 of everything but `evidence.seconds`: equal for two runs of the same calibration."""
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

    Raises GalaxyDiTError for a file that cannot be read, and for anything that this version of the plugin did not
    write: another schema version, unknown or missing keys, numbers out of range, a file changed after saving. The
    message names the place in the file, the value, what is expected and the cure.
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
    """The profile from the plain data of `Profile.to_dict`.

    Raises GalaxyDiTError for data that this version of the plugin did not write, or that were changed since.
    """
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
