"""PSNRs that a profile's calibration measured on held-out prompts, and the largest speedup that reached a PSNR."""

import math

from galaxydit.errors import refusal
from galaxydit.profiles.evidence import Verification
from galaxydit.profiles.schema import Profile
from galaxydit.request import AUTO, PROXY, SCHEDULE


def verified_at(profile: Profile, speedup: float, policy: str) -> Verification | None:
    """The measured verification of exactly this speedup, or None.

    Nothing is interpolated, because PSNR does not fall evenly between two verified speedups.
    """
    word = profile.target_for(speedup).policy if policy == AUTO else policy
    evidence = profile.evidence
    measured = {SCHEDULE: evidence.verifications, PROXY: evidence.proxy_verifications}.get(word, ())
    return next((row for row in measured if row.speedup == speedup and row.psnr_db is not None), None)


def fastest_verified(profile: Profile | None, missing: str, min_psnr: float, policy: str) -> Verification:
    """The verification with the largest speedup whose 95 % interval lies above `min_psnr` dB.

    Raises GalaxyDiTError if there is none; `missing` says why `profile` is None.
    """
    speedups = [] if profile is None else [target.speedup for target in profile.evidence.verifications]
    measured = [row for speedup in speedups if profile and (row := verified_at(profile, speedup, policy))]
    low = {row.speedup: row.psnr_low for row in measured if row.psnr_low is not None}
    if profile is None or not low:
        none = missing if profile is None else f"profile {profile.name} holds none"
        cure = "run `galaxydit calibrate --budget full` and pass its profile, or ask for quality or speedup instead"
        raise refusal("min_psnr", min_psnr, f"a profile with measured PSNRs, and {none}", cure)
    reached = [row for row in measured if low.get(row.speedup, 0.0) >= min_psnr]
    if not reached:
        best = max(low, key=low.__getitem__)
        most = math.floor(10 * low[best]) / 10
        expected = f"at most {most:g}, which profile {profile.name} verified at {best:g}x"
        raise refusal("min_psnr", min_psnr, expected, f'pass for example min_psnr={most:g}, or quality="lossless"')
    return max(reached, key=lambda row: row.speedup)
