"""Add to a profile what was measured with it on generated videos, and which policy is better at which speedup.

A paired lead is the mean over prompts of the difference of two PSNRs, in dB.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median

import numpy as np

from galaxydit.calibration.bootstrap import draws_of, interval
from galaxydit.calibration.costs import predicted_speedup
from galaxydit.calibration.schedule_error import Order
from galaxydit.calibration.verify import VerifiedPrompt, timings_of
from galaxydit.pipelines.disturbance import Timed, disturbance
from galaxydit.profiles.evidence import ComparedProxy, Seconds, Verification
from galaxydit.profiles.schema import Profile
from galaxydit.request import PROXY, SCHEDULE

PSNR_MARGIN = 0.5  # dB, by which a cheaper proxy may be worse than the best proxy


def choose_order(psnrs: Mapping[Order, Sequence[float]]) -> Order:
    """Order 0 only if the one-sided 95 % interval of its paired lead lies above 0, because the runtime falls back to it
    where it measures that extrapolation is worse.
    """
    return 0 if lead_of([zero - first for zero, first in zip(psnrs[0], psnrs[1], strict=True)]) > 0 else 1


def choose_compared_proxy(psnrs: Sequence[Sequence[float]], costs: Sequence[float]) -> int:
    """Index of the cheapest proxy whose paired lead over the best mean PSNR has an interval from -0.5 dB or above.

    `psnrs`, `(proxies, prompts)`, are in dB; among equally cheap proxies the best mean counts.
    """
    means = list(map(fmean, psnrs))
    best = means.index(max(means))

    def is_not_worse(index: int) -> bool:
        leads = [own - of_best for own, of_best in zip(psnrs[index], psnrs[best], strict=True)]
        return index == best or lead_of(leads) >= -PSNR_MARGIN

    return min(filter(is_not_worse, range(len(psnrs))), key=lambda index: (costs[index], -means[index]))


def add_compared_proxies(profile: Profile, compared: Sequence[ComparedProxy]) -> Profile:
    """`profile` with the measurements of each compared proxy as evidence and reason; the chosen proxy is first."""
    first, others = compared[0], compared[1:]
    text = ", ".join(f"{row.proxy} {' / '.join(f'{at.psnr_db:.1f}' for at in row.measured)} dB" for row in compared)
    speedups = " / ".join(f"{at.speedup:g}x" for at in first.measured)
    where = f"{speedups} on {first.measured[0].prompts} sample prompts"
    reason = f"{profile.evidence.reason}; generated videos at {where}: {text}" if others else profile.evidence.reason
    counted = 100 * profile.recipe.deviation_weight
    reason += f"; {counted:.0f} % of a sample's deviation from the mean distance of {first.proxy} counts"
    return replace(profile, evidence=replace(profile.evidence, reason=reason, compared_proxies=tuple(compared)))


def add_measurements(profile: Profile, seconds: Seconds, verified: Sequence[VerifiedPrompt]) -> Profile:
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
            ratios = [row.plain_seconds / row.denoise_seconds for row in rows[SCHEDULE]]
            measured.append(round(median(ratios), 4))
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


def verification_of(
    speedup: float, rows: Sequence[VerifiedPrompt], expected_error: float | None = None
) -> Verification:
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
