"""Choose the order of prediction and the proxy by generated videos of recorded prompts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from galaxydit.calibration.build_profile import ProfileBuilder
from galaxydit.calibration.evidence import Tried, lead_of, verification_of
from galaxydit.calibration.parts import Parts
from galaxydit.calibration.rank import Ranking, proxies_to_compare
from galaxydit.calibration.schedule_error import Order
from galaxydit.calibration.thresholds import follows_schedule
from galaxydit.profiles.evidence import ComparedProxy
from galaxydit.profiles.schema import Profile
from galaxydit.request import PROXY, SCHEDULE

CHOICE_SPEEDUPS = (2.0, 3.0)  # or the nearest that are planned; the order is chosen at the first
PSNR_MARGIN = 0.5  # dB, by which a cheaper proxy may be worse than the best proxy


def choose(
    build: ProfileBuilder, parts: Parts, profile: Profile, ranking: Ranking, prompts: Sequence[str]
) -> tuple[Profile, dict[Order, list[float]]]:
    """`profile` with order and proxy chosen by videos of `prompts`, and the PSNRs of each order by prompt, in dB.

    Orders are compared by schedules at the planned speedup nearest to 2, proxies by the policy "proxy" at those nearest
    to 2 and 3.
    """
    orders: dict[Order, Profile] = {1: profile, 0: build.again(profile, order=0)}
    proxies = proxies_to_compare(ranking, profile.recipe.proxy)
    by_proxy = [profile, *(build.again(profile, proxy=proxy) for proxy in proxies[1:])]
    parts.progress("planning", 1, 1)

    planned = [target.speedup for target in profile.evidence.verifications]
    nearest = (min(planned, key=lambda speedup: abs(speedup - wanted)) for wanted in CHOICE_SPEEDUPS)
    tried_at = list(dict.fromkeys(nearest))
    # A proxy that moves no step of any sample shares the videos of the schedule.
    moving = [any(not follows_schedule(build.recordings, draft, at) for at in tried_at) for draft in by_proxy]
    tried = [(orders[1], SCHEDULE, tried_at), (orders[0], SCHEDULE, tried_at[:1])]
    tried += [(draft, PROXY, tried_at) for draft, moves in zip(by_proxy, moving, strict=True) if moves]
    by_schedule, at_order_0, *by_moving = parts.drafts(tried, prompts)
    rows_of_order: dict[Order, list[Tried]] = {1: by_schedule[0], 0: at_order_0[0]}
    psnr_of_order = {order: [row.psnr_db for row in rows] for order, rows in rows_of_order.items()}
    profile = orders[choose_order(psnr_of_order)]
    left = iter(by_moving)
    measured = [next(left) if moves else by_schedule for moves in moving]
    compared = [
        ComparedProxy(proxy, tuple(map(verification_of, tried_at, rows)))
        for proxy, rows in zip(proxies, measured, strict=True)
    ]
    costs = {row.proxy: row.cost for row in ranking.rows}
    psnrs = [[fmean(row.psnr_db for row in of_prompt) for of_prompt in zip(*rows, strict=True)] for rows in measured]
    proxy = proxies[choose_compared_proxy(psnrs, [costs[name] for name in proxies])]
    if proxy != profile.recipe.proxy:
        profile = build.again(profile, proxy=proxy)
    compared.sort(key=lambda of_proxy: of_proxy.proxy != proxy)
    return _add_compared_proxies(profile, compared), psnr_of_order


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
