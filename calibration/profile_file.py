"""The file of a measured profile, in which a lesser profile never replaces a better one."""

import os
import warnings
from pathlib import Path

from diffusers import DiffusionPipeline

from galaxydit.errors import GalaxyDiTError, ProfileWarning
from galaxydit.profiles.fingerprint import Mismatch, profile_mismatch
from galaxydit.profiles.schema import Profile, read_profile
from galaxydit.runtime.recognition import transformers_of


def keep(profile: Profile, path: Path, pipe: DiffusionPipeline) -> bool:
    """Save a profile unless the file holds a better one of the pipeline; whether it was saved."""
    before = _read(path)
    # The weights are read last, because that takes long for a large model, and this is asked after each recording.
    if before is not None and worth(before) > worth(profile) and _mismatch(before, pipe) is None:
        return False
    profile.save(path)
    return True


def worth(profile: Profile) -> tuple[int, int]:
    """Prompts by which the profile was verified, then its recordings."""
    return profile.evidence.verified_prompts, profile.conditions.samples


def stored(path: Path, pipe: DiffusionPipeline) -> tuple[Profile | None, Mismatch | None]:
    """The profile in a file, and why it does not belong to the pipeline; a damaged one is warned of and None."""
    profile = _read(path)
    return profile, None if profile is None else _mismatch(profile, pipe)


def _read(path: Path) -> Profile | None:
    if not os.path.exists(path):  # which raises for no name
        return None
    try:
        return read_profile(path)
    except GalaxyDiTError as error:
        warnings.warn(f"galaxydit: {error}, so it is made again", ProfileWarning, stacklevel=4)
        return None


def _mismatch(profile: Profile, pipe: DiffusionPipeline) -> Mismatch | None:
    return profile_mismatch(profile, list(transformers_of(pipe).values()))
