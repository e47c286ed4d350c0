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
    drafts = {profile.recipe.proxy: profile}
    for proxy in proxies_to_compare(build.ranking, profile.recipe.proxy):
        if proxy not in drafts:
            drafts[proxy] = build.again(profile, proxy=proxy)
    tried_at = _nearest_planned(profile)

    # A proxy that moves no step of any sample shares the videos of the schedule.
    moving = []
    for proxy, draft in drafts.items():
        if _moves_a_step(build, draft, tried_at):
            moving.append(proxy)
    tried = [(profile, SCHEDULE, tried_at), (order_0, SCHEDULE, tried_at[:1])]
    for proxy in moving:
        tried.append((drafts[proxy], PROXY, tried_at))
    by_schedule, at_order_0, *by_moving = parts.trials("choice", tried, prompts)
    rows_of_proxy = dict.fromkeys(drafts, by_schedule)
    rows_of_proxy.update(zip(moving, by_moving, strict=True))

    psnrs_of_order: dict[Order, list[float]] = {1: _psnrs(by_schedule[0]), 0: _psnrs(at_order_0[0])}
    if choose_order(psnrs_of_order) == 0:
        profile = order_0
    psnrs_of_proxy = {proxy: _means_of_prompts(rows) for proxy, rows in rows_of_proxy.items()}
    costs = {row.proxy: row.cost for row in build.ranking.rows}
    chosen = choose_compared_proxy(psnrs_of_proxy, costs)
    if chosen != profile.recipe.proxy:
        profile = build.again(profile, proxy=chosen)

    compared = []
    for proxy, rows in rows_of_proxy.items():
        measured = tuple(map(verification_of, tried_at, rows))
        compared.append(ComparedProxy(proxy, measured))
    compared.sort(key=lambda row: row.proxy != chosen)
    means = {order: fmean(psnrs) for order, psnrs in psnrs_of_order.items()}
    return _add_compared_proxies(profile, compared), means


def _nearest_planned(profile: Profile) -> list[float]:
    """The planned speedups nearest to `CHOICE_SPEEDUPS`, each once."""
    planned = [target.speedup for target in profile.evidence.verifications]
    nearest: list[float] = []
    for wanted in CHOICE_SPEEDUPS:
        speedup = _nearest(planned, wanted)
        if speedup not in nearest:
            nearest.append(speedup)
    return nearest


def _nearest(speedups: Sequence[float], wanted: float) -> float:
    return min(speedups, key=lambda speedup: abs(speedup - wanted))


def _moves_a_step(build: ProfileBuilder, draft: Profile, speedups: Sequence[float]) -> bool:
    """Whether the policy "proxy" leaves the schedule at one of the speedups in one of the recordings."""
    return not all(follows_schedule(build.recordings, draft, speedup) for speedup in speedups)


def _psnrs(rows: Sequence[Tried]) -> list[float]:
    return [row.psnr_db for row in rows]


def _means_of_prompts(rows_of_speedup: Sequence[Sequence[Tried]]) -> list[float]:
    """The mean PSNR of each prompt over the speedups."""
    psnrs_of_speedup = [_psnrs(rows) for rows in rows_of_speedup]
    return list(map(fmean, zip(*psnrs_of_speedup, strict=True)))


def choose_order(psnrs: Mapping[Order, Sequence[float]]) -> Order:
    """Order 0 only if its lead has an interval above 0: the runtime falls back to it where extrapolation is worse."""
    return 0 if lead_of(psnrs[0], psnrs[1]) > 0 else 1


def choose_compared_proxy(psnrs: Mapping[str, Sequence[float]], costs: Mapping[str, float]) -> str:
    """The cheapest proxy whose lead over the best mean PSNR has an interval from -0.5 dB or above.

    `psnrs` are in dB, by proxy and prompt; among equally cheap proxies the best mean counts.
    """
    means = {proxy: fmean(of_prompts) for proxy, of_prompts in psnrs.items()}
    best = max(means, key=means.__getitem__)
    as_good = [best]
    for proxy, of_prompts in psnrs.items():
        if proxy != best and lead_of(of_prompts, psnrs[best]) >= -PSNR_MARGIN:
            as_good.append(proxy)
    return min(as_good, key=lambda proxy: (costs[proxy], -means[proxy]))


def _add_compared_proxies(profile: Profile, compared: Sequence[ComparedProxy]) -> Profile:
    """`profile` with the measurements of each compared proxy as evidence and reason; the chosen proxy is first."""
    first = compared[0]
    reason = profile.evidence.reason
    if len(compared) > 1:
        speedups = " / ".join(f"{at.speedup:g}x" for at in first.measured)
        psnrs = ", ".join(map(_text_of, compared))
        reason += f"; generated videos at {speedups} on {first.measured[0].prompts} sample prompts: {psnrs}"
    counted = 100 * profile.recipe.deviation_weight
    reason += f"; {counted:.0f} % of a sample's deviation from the mean distance of {first.proxy} counts"
    return replace(profile, evidence=replace(profile.evidence, reason=reason, compared_proxies=tuple(compared)))


def _text_of(compared: ComparedProxy) -> str:
    """The proxy's name, and its PSNR at each speedup with slashes between them, in dB."""
    psnrs = " / ".join(f"{at.psnr_db:.1f}" for at in compared.measured)
    return f"{compared.proxy} {psnrs} dB"


def add_measurements(profile: Profile, seconds: Seconds, verified: Sequence[Tried]) -> Profile:
    """`profile` with the measurements at each requested speedup and the better policy of each target.

    "proxy" is better where its `lead_of` the schedule is above 0; otherwise the schedule is followed, because its
    compute is known beforehand. A target without measurements follows the nearest measured speedup.
    """
    steps = profile.conditions.steps
    predicted: list[float] = []
    measured: list[float] = []
    by_schedule: list[Verification] = []
    by_proxy: list[Verification] = []
    better_by_proxy = set()
    for asked in profile.evidence.verifications:
        full_steps = len(profile.target_for(asked.speedup).sigmas)
        predicted.append(round(predicted_speedup(seconds, steps, full_steps), 4))
        rows_of_policy: dict[str, list[Tried]] = {SCHEDULE: [], PROXY: []}
        for row in verified:
            if row.speedup == asked.speedup:
                rows_of_policy[row.policy].append(row)
        schedule_rows = rows_of_policy[SCHEDULE]
        proxy_rows = rows_of_policy[PROXY]
        if schedule_rows:
            measured.append(round(median(row.seconds[0] / row.seconds[1] for row in schedule_rows), 4))
        by_schedule.append(verification_of(asked.speedup, schedule_rows, asked.expected_error))
        if proxy_rows:
            by_proxy.append(verification_of(asked.speedup, proxy_rows))
            if lead_of(_psnrs(proxy_rows), _psnrs(schedule_rows)) > 0:
                better_by_proxy.add(asked.speedup)

    known = [row.speedup for row in by_proxy]
    targets = []
    for target in profile.recipe.targets:
        if known and _nearest(known, target.speedup) in better_by_proxy:
            target = replace(target, policy="proxy")
        targets.append(target)
    seconds = replace(
        seconds,
        predicted_speedup=tuple(predicted),
        measured_speedup=tuple(measured),
        disturbance=_disturbance_of(seconds, steps, verified),
    )
    evidence = replace(
        profile.evidence,
        verifications=tuple(by_schedule),
        proxy_verifications=tuple(by_proxy),
        seconds=seconds,
    )
    return replace(profile, recipe=replace(profile.recipe, targets=tuple(targets)), evidence=evidence)


def _disturbance_of(seconds: Seconds, steps: int, verified: Sequence[Tried]) -> str:
    """Why the timings of the first generation and of the verification must not be compared, or an empty string."""
    timings = [Timed("the first timing", seconds.step * steps, 1.0)]
    plain = {}
    for row in verified:
        # Each prompt has one plain generation for all its trials.
        plain[row.prompt, row.seed] = Timed(PLAIN, row.seconds[0], 1.0)
        timings.append(row.result.timed(f"{row.policy} {row.speedup:g}x"))
    return disturbance([*timings, *plain.values()])


def verification_of(speedup: float, rows: Sequence[Tried], expected_error: float | None = None) -> Verification:
    """The verification at a speedup from the rows of one policy, one for each prompt; without rows, empty."""
    if not rows:
        return Verification(speedup, expected_error)
    psnrs = _psnrs(rows)
    low, high = interval(psnrs)
    if low is not None and high is not None:
        low = round(low, 4)
        high = round(high, 4)
    fractions = [row.compute_fraction for row in rows]
    return Verification(
        speedup=speedup,
        expected_error=expected_error,
        compute_fraction=round(fmean(fractions), 6),
        psnr_db=round(fmean(psnrs), 4),
        psnr_low=low,
        psnr_high=high,
        prompts=len(rows),
    )


def lead_of(psnrs: Sequence[float], others: Sequence[float]) -> float:
    """Lower end of the one-sided 95 % interval of the lead of `psnrs`, by prompt; -inf for fewer than two prompts."""
    if len(psnrs) < 2:
        return -math.inf
    return float(np.quantile(resampled_means(np.subtract(psnrs, others)), 0.05))
