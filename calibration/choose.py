"""Choose order, proxy and policy by generated videos, and add to the profile what was measured.

A lead is the mean over prompts of the difference of two PSNRs, in dB.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median

import numpy as np

from galaxydit.calibration.bootstrap import interval, resampled_means
from galaxydit.calibration.build_profile import ProfileBuilder
from galaxydit.calibration.parts import Parts, Tried
from galaxydit.calibration.rank import proxies_to_compare
from galaxydit.calibration.search import Order
from galaxydit.calibration.step_times import predicted_speedup
from galaxydit.calibration.thresholds import follows_schedule
from galaxydit.pipelines.disturbance import PLAIN, Timed, disturbance
from galaxydit.profiles.evidence import ComparedProxy, Seconds, Verification
from galaxydit.profiles.schema import Profile
from galaxydit.request import PROXY, SCHEDULE

CHOICE_SPEEDUPS = (2.0, 3.0)  # or the nearest that are planned; the order is chosen at the first
PSNR_MARGIN = 0.5  # dB, by which a cheaper proxy may be worse than the best proxy


def choose(
    build: ProfileBuilder, parts: Parts, profile: Profile, prompts: Sequence[str]
) -> tuple[Profile, dict[Order, float]]:
    """`profile` with order and proxy chosen by videos of `prompts`, and the mean PSNR of each order in dB.

    Orders are compared by schedules at the planned speedup nearest to 2, proxies by the policy "proxy" at those nearest
    to 2 and 3.
    """
    order_0 = build.again(profile, order=0)
    proxies = proxies_to_compare(build.ranking, profile.recipe.proxy)
    drafts = {proxies[0]: profile} | {proxy: build.again(profile, proxy=proxy) for proxy in proxies[1:]}

    planned = [target.speedup for target in profile.evidence.verifications]
    nearest = (min(planned, key=lambda speedup: abs(speedup - wanted)) for wanted in CHOICE_SPEEDUPS)
    tried_at = list(dict.fromkeys(nearest))
    # A proxy that moves no step of any sample shares the videos of the schedule.
    moving = [
        proxy
        for proxy, draft in drafts.items()
        if not all(follows_schedule(build.recordings, draft, speedup) for speedup in tried_at)
    ]
    tried = [(profile, SCHEDULE, tried_at), (order_0, SCHEDULE, tried_at[:1])]
    tried += [(drafts[proxy], PROXY, tried_at) for proxy in moving]
    by_schedule, at_order_0, *by_moving = parts.trials("choice", tried, prompts)
    measured = dict.fromkeys(drafts, by_schedule) | dict(zip(moving, by_moving, strict=True))

    rows_of_order: dict[Order, list[Tried]] = {1: by_schedule[0], 0: at_order_0[0]}
    psnr_of_order = {order: [row.psnr_db for row in rows] for order, rows in rows_of_order.items()}
    if choose_order(psnr_of_order) == 0:
        profile = order_0
    psnrs = {
        proxy: [fmean(row.psnr_db for row in of_prompt) for of_prompt in zip(*rows, strict=True)]
        for proxy, rows in measured.items()
    }
    proxy = choose_compared_proxy(psnrs, {row.proxy: row.cost for row in build.ranking.rows})
    if proxy != profile.recipe.proxy:
        profile = build.again(profile, proxy=proxy)
    compared = [ComparedProxy(each, tuple(map(verification_of, tried_at, rows))) for each, rows in measured.items()]
    compared.sort(key=lambda of_proxy: of_proxy.proxy != proxy)
    means = {order: fmean(of_prompts) for order, of_prompts in psnr_of_order.items()}
    return _add_compared_proxies(profile, compared), means


def choose_order(psnrs: Mapping[Order, Sequence[float]]) -> Order:
    """Order 0 only if its lead has an interval above 0: the runtime falls back to it where extrapolation is worse."""
    return 0 if lead_of(psnrs[0], psnrs[1]) > 0 else 1


def choose_compared_proxy(psnrs: Mapping[str, Sequence[float]], costs: Mapping[str, float]) -> str:
    """The cheapest proxy whose lead over the best mean PSNR has an interval from -0.5 dB or above.

    `psnrs` are in dB, by proxy and prompt; among equally cheap proxies the best mean counts.
    """
    means = {proxy: fmean(own) for proxy, own in psnrs.items()}
    best = max(means, key=means.__getitem__)
    as_good = [proxy for proxy, own in psnrs.items() if proxy == best or lead_of(own, psnrs[best]) >= -PSNR_MARGIN]
    return min(as_good, key=lambda proxy: (costs[proxy], -means[proxy]))


def _add_compared_proxies(profile: Profile, compared: Sequence[ComparedProxy]) -> Profile:
    """`profile` with the measurements of each compared proxy as evidence and reason; the chosen proxy is first."""
    first, others = compared[0], compared[1:]
    text = ", ".join(f"{row.proxy} {' / '.join(f'{at.psnr_db:.1f}' for at in row.measured)} dB" for row in compared)
    speedups = " / ".join(f"{at.speedup:g}x" for at in first.measured)
    where = f"{speedups} on {first.measured[0].prompts} sample prompts"
    reason = f"{profile.evidence.reason}; generated videos at {where}: {text}" if others else profile.evidence.reason
    counted = 100 * profile.recipe.deviation_weight
    reason += f"; {counted:.0f} % of a sample's deviation from the mean distance of {first.proxy} counts"
    return replace(profile, evidence=replace(profile.evidence, reason=reason, compared_proxies=tuple(compared)))


def add_measurements(profile: Profile, seconds: Seconds, verified: Sequence[Tried]) -> Profile:
    """`profile` with the measurements at each requested speedup and the better policy of each target.

    "proxy" is better where its `lead_of` the schedule is above 0; otherwise the schedule is followed, because its
    compute is known beforehand. A target without measurements follows the nearest measured speedup.
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
            if lead_of(*([row.psnr_db for row in rows[word]] for word in (PROXY, SCHEDULE))) > 0:
                better.add(asked.speedup)
    known = [row.speedup for row in proxy]
    targets = tuple(
        replace(target, policy="proxy")
        if known and min(known, key=lambda speedup: abs(speedup - target.speedup)) in better
        else target
        for target in profile.recipe.targets
    )
    # Each prompt has one plain generation for all its trials.
    plain = {(row.prompt, row.seed): Timed(PLAIN, row.seconds[0], 1.0) for row in verified}
    timings = [Timed("the first timing", seconds.step * steps, 1.0), *plain.values()]
    timings += [row.result.timed(f"{row.policy} {row.speedup:g}x") for row in verified]
    seconds = replace(
        seconds,
        predicted_speedup=tuple(predicted),
        measured_speedup=tuple(measured),
        disturbance=disturbance(timings),
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


def lead_of(psnrs: Sequence[float], others: Sequence[float]) -> float:
    """Lower end of the one-sided 95 % interval of the lead of `psnrs`, by prompt; -inf for fewer than two prompts."""
    if len(psnrs) < 2:
        return -math.inf
    return float(np.quantile(resampled_means(np.subtract(psnrs, others)), 0.05))
