"""The profiles that come with the plugin, and which of them belongs to a model."""

import os
from functools import cache
from importlib.resources import files
from pathlib import Path

from torch import nn

from galaxydit.errors import did_you_mean, refusal
from galaxydit.profiles.fingerprint import profile_mismatch
from galaxydit.profiles.hub import PREFIX, read_from_hub
from galaxydit.profiles.schema import Profile, read_profile

FOLDER = Path(str(files("galaxydit") / "profiles"))


@cache
def shipped_profiles() -> tuple[Profile, ...]:
    """All shipped profiles, ordered by file name."""
    return tuple(read_profile(path) for path in sorted(FOLDER.glob("*.json")))


def load_profile(name_or_path: str | Path) -> Profile:
    """A profile by its shipped name or from a file. Raises GalaxyDiTError if it is missing or damaged."""
    shipped = {profile.name: profile for profile in shipped_profiles()}
    if str(name_or_path) in shipped:
        return shipped[str(name_or_path)]
    if isinstance(name_or_path, str) and name_or_path.startswith(PREFIX):
        return read_from_hub(name_or_path)
    if not isinstance(name_or_path, str | Path) or not os.path.isfile(name_or_path):
        shown = str(name_or_path) if isinstance(name_or_path, Path) else name_or_path
        cure = f"leave it out for the general schedule, or run `galaxydit calibrate`{did_you_mean(shown, shipped)}"
        raise refusal("profile", shown, f"a file, or one that is shipped ({', '.join(shipped)})", cure)
    return read_profile(name_or_path)


def find_profile(*transformers: nn.Module) -> tuple[Profile | None, str]:
    """`(profile, "")` with the shipped profile of these transformers, or `(None, reason)`."""
    near = ""
    for profile in shipped_profiles():
        mismatch = profile_mismatch(profile, transformers)
        if mismatch is None:
            return profile, ""
        if mismatch.part in ("adapters", "weights"):
            near = f" (the shipped {profile.name} is not used: {mismatch.text})"
    return None, f"no profile belongs to this model{near}"
