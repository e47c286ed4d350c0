"""The profile: settings of the plugin for one model, with the evidence for them, as a versioned JSON file."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Le

from galaxydit.errors import GalaxyDiTError, check_ascending, refusal
from galaxydit.files import DIGEST, check_file_kind, digest_of, split_digest, write_json
from galaxydit.policies.names import AUTO, PROXY, SCHEDULE
from galaxydit.profiles.evidence import Count, Evidence, Verification
from galaxydit.profiles.recipe import Recipe, Target
from galaxydit.validation import MOST_VALUES, check_lengths, parse

SCHEMA_VERSION = 11
Value = str | int | float | bool | None | tuple[int, ...]


@dataclass(frozen=True)
class Model:
    """Identity of the transformer that a profile belongs to."""

    class_name: str
    config: Mapping[str, Value]
    weights: tuple[float, ...] = ()  # of `fingerprint.project_weights`; empty where any checkpoint will do
    adapters: tuple[str, ...] = ()  # the active ones, sorted


@dataclass(frozen=True)
class Conditions:
    scheduler: str
    steps: Annotated[int, Ge(0), Le(MOST_VALUES)]
    flow_shift: float | None
    guidance_scale: float | None
    latent_shape: tuple[int, ...]
    dtype: str
    device: str
    samples: Count  # recorded generations
    seed: int  # of the first recorded generation
    prompts_sha256: str  # of prompts and seeds, in order
    versions: Mapping[str, str]
    sigmas: tuple[Annotated[float, Le(1)], ...]  # of the steps, falling
    guidance_scale_2: float | None = None
    boundary: float | None = None  # noise level below which the second transformer computes
    # others that count, by `generation_settings.settings_of`; what is not listed had the default of its class
    settings: Mapping[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_ascending("sigmas", tuple(reversed(self.sigmas)), strictly=True)


@dataclass(frozen=True)
class Profile:
    """Settings of the plugin for one model, with the evidence for them."""

    schema_version: int
    name: str
    source: str
    model: Model
    conditions: Conditions
    recipe: Recipe
    evidence: Evidence
    second_model: Model | None = None  # the pipeline's `transformer_2`

    def __repr__(self) -> str:
        return f"<Profile {self.name!r}: {self.basis}>"

    @property
    def fastest(self) -> float:
        """The largest speedup that was verified or, without verifications, planned."""
        asked = self.evidence.verifications or self.recipe.targets
        return asked[-1].speedup

    @property
    def basis(self) -> str:
        """What the profile rests on, such as "4 recordings in float32, not checked at full size, unverified"."""
        made = f"{self.conditions.samples} recordings"
        if self.conditions.samples == 1:
            made = "1 recording"
        recorded = self.evidence.recorded
        if recorded is not None:
            checked = "not checked" if recorded.excess_db is None else "checked"
            made += f" in {recorded.dtype}, {checked} at full size"
        prompts = self.evidence.verified_prompts
        if not prompts:
            return f"{made}, unverified"
        return f"{made}, verified by videos of {prompts} prompts"

    def target_for(self, speedup: float) -> Target:
        """The target with the nearest number of full steps; among equals the nearest speedup, then a verified one."""
        steps = self.conditions.steps
        verified = [row.speedup for row in self.evidence.verifications]

        def distance(target: Target) -> tuple[int, float, bool]:
            full_steps = round(steps / target.speedup) - round(steps / speedup)
            return abs(full_steps), abs(target.speedup - speedup), target.speedup not in verified

        return min(self.recipe.targets, key=distance)

    def verified_at(self, speedup: float, policy: str) -> Verification | None:
        """The measured verification of exactly this speedup, because PSNR does not fall evenly between two, or None."""
        if policy == AUTO:
            policy = self.target_for(speedup).policy
        measured: tuple[Verification, ...] = ()
        if policy == SCHEDULE:
            measured = self.evidence.verifications
        elif policy == PROXY:
            measured = self.evidence.proxy_verifications
        for row in measured:
            if row.speedup == speedup and row.psnr_db is not None:
                return row
        return None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, with its SHA-256 as "digest"."""
        data = asdict(self)
        return data | {DIGEST: digest_of(data)}

    @property
    def identity(self) -> str:
        """SHA-256 of everything but `evidence.seconds`: equal for two runs of the same calibration."""
        data = asdict(self)
        del data["evidence"]["seconds"]
        return digest_of(data)

    def save(self, path: str | Path) -> None:
        """Write the JSON file atomically. Raises GalaxyDiTError for values that `read_profile` would refuse."""
        data = self.to_dict()
        parse_profile(data)
        write_json(Path(path), data)


def fastest_verified(profile: Profile | None, missing: str, min_psnr: float, policy: str) -> Verification:
    """The verification with the largest speedup whose 95 % interval lies above `min_psnr` dB.

    Raises GalaxyDiTError if there is none; `missing` says why `profile` is None.
    """
    measured: dict[float, Verification] = {}
    if profile is not None:
        for asked in profile.evidence.verifications:
            row = profile.verified_at(asked.speedup, policy)
            if row is not None and row.psnr_low is not None:
                measured[row.speedup] = row
    if profile is None or not measured:
        none = missing if profile is None else f"profile {profile.name} holds none"
        cure = "run `galaxydit calibrate --budget full` and pass its profile, or ask for quality or speedup instead"
        raise refusal("min_psnr", min_psnr, f"a profile with measured PSNRs, and {none}", cure)
    best = max(measured.values(), key=_lowest_psnr)
    if _lowest_psnr(best) < min_psnr:
        most = math.floor(10 * _lowest_psnr(best)) / 10
        expected = f"at most {most:g}, which profile {profile.name} verified at {best.speedup:g}x"
        raise refusal("min_psnr", min_psnr, expected, f'pass for example min_psnr={most:g}, or quality="lossless"')
    fastest = max(speedup for speedup, row in measured.items() if _lowest_psnr(row) >= min_psnr)
    return measured[fastest]


def _lowest_psnr(row: Verification) -> float:
    """The lower end of a measured PSNR's 95 % interval, in dB."""
    return row.psnr_low or 0.0


def read_profile(path: str | Path) -> Profile:
    """Read a profile file. Raises GalaxyDiTError, with the place, for anything this version did not write."""
    check_file_kind("profile", path)
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
    """The profile from `Profile.to_dict`. Raises GalaxyDiTError for other or changed data."""
    if not isinstance(data, dict):
        raise GalaxyDiTError(f"the file holds {type(data).__name__}: expected an object; calibrate again")
    version = data.get("schema_version")
    if type(version) is not int or version != SCHEMA_VERSION:
        cure = "calibrate again with this version of galaxydit, or install the one that wrote the profile"
        raise refusal("schema_version", version, str(SCHEMA_VERSION), cure)
    content, is_unchanged = split_digest(data)
    check_lengths(content, "profile")
    profile: Profile = parse(Profile, content)
    if not is_unchanged:
        raise GalaxyDiTError(
            f"digest={data.get(DIGEST)!r} does not belong to the content: the file was changed after it was saved; "
            "restore it, calibrate again, or load it, change it in Python and save it"
        )
    return profile
