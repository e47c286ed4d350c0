"""Add to a profile what was measured with it on generated videos, and which policy is better at which speedup.

A paired lead is the mean over prompts of the difference of two PSNRs, in dB.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, median

import numpy as np

from galaxydit.calibration.bootstrap import draws_of, interval
from galaxydit.calibration.costs import predicted_speedup
from galaxydit.calibration.verify import Tried, timings_of
from galaxydit.pipelines.disturbance import Timed, disturbance
from galaxydit.profiles.evidence import Seconds, Verification
from galaxydit.profiles.schema import Profile
from galaxydit.request import PROXY, SCHEDULE


def add_measurements(profile: Profile, seconds: Seconds, verified: Sequence[Tried]) -> Profile:
    """`profile` with the measurements at each requested speedup and the better policy of each target.

    "proxy" is better where the one-sided 95 % interval of its paired lead lies above 0; otherwise the schedule is
    followed, because its compute is known beforehand. A target without measurements follows the nearest measured
    speedup.
    """
    steps, predicted, measured = profile.conditions.steps, [], []
    schedule, proxy, better = [], [], set()
    for asked in profile.evidence.verifications:
        predicted.append(round(predicted_speedup(seconds, steps, len(profile.target_for(asked.speedup).sigmas)), 4))
        at_speedup = [row for row in verified if row.speedup == asked.speedup]
        rows = {word: [row for row in at_speedup if row.policy == word] for word in (SCHEDULE, PROXY)}
        if rows[SCHEDULE]:
            measured.append(round(median(plain / fast for plain, fast in (row.seconds for row in rows[SCHEDULE])), 4))
        schedule.append(verification_of(asked.speedup, rows[SCHEDULE], asked.expected_error))
        if rows[PROXY]:
            proxy.append(verification_of(asked.speedup, rows[PROXY]))
            pairs = zip(rows[PROXY], rows[SCHEDULE], strict=True)
            if lead_of([by_proxy.psnr_db - by_schedule.psnr_db for by_proxy, by_schedule in pairs]) > 0:
                better.add(asked.speedup)
    known = [row.speedup for row in proxy]
    targets = tuple(
        replace(target, policy="proxy")
        if known and min(known, key=lambda speedup: abs(speedup - target.speedup)) in better
        else target
        for target in profile.recipe.targets
    )
    seconds = replace(
        seconds,
        predicted_speedup=tuple(predicted),
        measured_speedup=tuple(measured),
        disturbance=disturbance([Timed("the first timing", seconds.step * steps, 1.0), *timings_of(verified)]),
    )
    evidence = replace(
        profile.evidence, verifications=tuple(schedule), proxy_verifications=tuple(proxy), seconds=seconds
    )
    return replace(profile, recipe=replace(profile.recipe, targets=targets), evidence=evidence)


def verification_of(speedup: float, rows: Sequence[Tried], expected_error: float | None = None) -> Verification:
    """The verification at a speedup from the rows of one policy, one for each prompt; without rows, empty."""
    if not rows:
        return Verification(speedup, expected_error)
    psnrs = [row.psnr_db for row in rows]
    low, high = interval(psnrs)
    return Verification(
        speedup=speedup,
        expected_error=expected_error,
        compute_fraction=round(fmean(row.compute_fraction for row in rows), 6),
        psnr_db=round(fmean(psnrs), 4),
        psnr_low=None if low is None else round(low, 4),
        psnr_high=None if high is None else round(high, 4),
        prompts=len(rows),
    )


def lead_of(differences: Sequence[float]) -> float:
    """Lower end of the one-sided 95 % interval of the mean of `differences`; -inf for fewer than two."""
    if len(differences) < 2:
        return -math.inf
    return float(np.quantile(np.asarray(differences)[draws_of(len(differences))].mean(axis=1), 0.05))
