from dataclasses import replace

import pytest
from trials import tried

from galaxydit.calibration.choose import add_measurements, choose_compared_proxy, choose_order
from galaxydit.calibration.parts import Tried
from galaxydit.profiles.evidence import Seconds
from galaxydit.profiles.schema import Profile

SECONDS = Seconds(1.0, 0.1, 0.1, 0.0, (), ())


def rows(policy: str, speedup: float, psnrs: list[float]) -> list[Tried]:
    return [tried(policy, speedup, f"prompt {index}", index, 1 / speedup, psnr) for index, psnr in enumerate(psnrs)]


def test_the_cheapest_proxy_that_is_not_worse_than_the_best_is_used() -> None:
    best, near, unsure = [31.0, 32.0, 33.1, 34.0], [30.9, 31.8, 33.0, 33.9], [34.0, 29.0, 35.0, 31.0]
    assert choose_compared_proxy({"best": best, "other": near}, {"best": 0.05, "other": 0.01}) == "other"
    assert choose_compared_proxy({"best": best, "other": near}, {"best": 0.01, "other": 0.05}) == "best"
    assert choose_compared_proxy({"best": best, "other": unsure}, {"best": 0.05, "other": 0.01}) == "best"


@pytest.mark.parametrize(
    ("leads", "order"),
    [([0.5, 1.0, 0.7, 0.8], 0), ([2.0, -1.5, 0.6, -0.3], 1), ([-0.5, -1.0, -0.7, -0.8], 1)],
    ids=["order 0 is ahead beyond chance", "a coin's toss", "order 0 is behind"],
)
def test_order_0_is_chosen_only_if_it_is_ahead_beyond_chance(leads: list[float], order: int) -> None:
    ones = [31.0, 32.0, 33.0, 34.0]
    assert choose_order({1: ones, 0: [one + lead for one, lead in zip(ones, leads, strict=True)]}) == order


@pytest.mark.parametrize(("lead", "policy"), [(1.0, "proxy"), (0.0, "schedule"), (-1.0, "schedule")])
def test_auto_takes_the_proxy_only_where_it_is_better_beyond_chance(drafted: Profile, lead: float, policy: str) -> None:
    asked = [one.speedup for one in drafted.evidence.verifications]
    schedule, noise = [29.0, 30.0, 31.0, 32.0, 33.0, 34.0], [0.1, -0.1, 0.2, -0.2, 0.3, -0.3]
    proxy = [psnr + lead + extra for psnr, extra in zip(schedule, noise, strict=True)]
    verified = [
        row
        for speedup in asked
        for word, psnrs in (("schedule", schedule), ("proxy", proxy))
        for row in rows(word, speedup, psnrs)
    ]
    measured = add_measurements(drafted, SECONDS, verified)
    assert {target.policy for target in measured.recipe.targets} == {policy}
    assert [one.psnr_db for one in measured.evidence.verifications] == [31.5] * len(asked)
    for one in measured.evidence.proxy_verifications:
        assert one.psnr_low <= one.psnr_db <= one.psnr_high
        assert one.prompts == 6


def test_without_proxy_results_the_schedule_serves(drafted: Profile) -> None:
    asked = [one.speedup for one in drafted.evidence.verifications]
    verified = [row for speedup in asked for row in rows("schedule", speedup, [30.0, 31.0])]
    targets = add_measurements(drafted, SECONDS, verified).recipe.targets
    assert targets == tuple(replace(target, policy="schedule") for target in drafted.recipe.targets)
