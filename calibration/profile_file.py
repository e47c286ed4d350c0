"""The file of a measured profile, in which a lesser profile never replaces a better one."""

import warnings
from pathlib import Path

from diffusers import DiffusionPipeline

from galaxydit.errors import GalaxyDiTError, ProfileWarning
from galaxydit.profiles.fingerprint import Mismatch, profile_mismatch
from galaxydit.profiles.schema import Profile, read_profile
from galaxydit.runtime.recognition import transformers_of


def keep(profile: Profile, path: Path, pipe: DiffusionPipeline) -> bool:
    """Save a profile unless the file holds a better one of the pipeline; whether it was saved."""
    before, mismatch = stored(path, pipe)
    if before is not None and mismatch is None and worth(before) > worth(profile):
        return False
    profile.save(path)
    return True


def worth(profile: Profile) -> tuple[int, int]:
    """Prompts by which the profile was verified, then its recordings."""
    return profile.evidence.verified_prompts, profile.conditions.samples


def stored(path: Path, pipe: DiffusionPipeline) -> tuple[Profile | None, Mismatch | None]:
    """The profile in a file, and why it does not belong to the pipeline; a damaged one is warned of and None."""
    if not path.exists():
        return None, None
    try:
        profile = read_profile(path)
    except GalaxyDiTError as error:
        warnings.warn(f"galaxydit: {error}, so it is made again", ProfileWarning, stacklevel=3)
        return None, None
    return profile, profile_mismatch(profile, list(transformers_of(pipe).values()))
