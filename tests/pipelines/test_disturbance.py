"""Which sets of seconds are judged to be disturbed by other work; each way has a compute fraction and an overhead."""

import random

import pytest

from galaxydit.pipelines.disturbance import PLAIN, Timed, disturbance, load_per_core, marked

VALIDATE = ((PLAIN, 1.0, 0.0), ("repeated", 1.0, 0.0), (PLAIN, 0.5, 0.0), ("2x", 0.5, 0.05), ("2.5x", 0.4, 0.08))
DEMO = ((PLAIN, 1.0, 0.0), ("2x", 0.5, 0.08), (PLAIN, 0.5, 0.0))
CALIBRATE = ((PLAIN, 1.0, 0.0), ("2x", 0.5, 0.05), ("2x proxy", 0.52, 0.1), ("3x", 0.34, 0.05))
LAYOUTS = pytest.mark.parametrize("ways", [VALIDATE, DEMO, CALIBRATE], ids=["validate", "demo", "calibrate"])


def timed(ways: tuple, prompts: int, noise: float, seed: int, slower: float = 1.0) -> list[Timed]:
    """The generations of each prompt in each way, the second half of them slowed by other work."""
    rng, made = random.Random(seed), []
    for number in range(prompts * len(ways)):
        way, fraction, overhead = ways[number % len(ways)]
        load = slower if 2 * number >= prompts * len(ways) else 1.0
        made.append(Timed(way, (fraction + (1 - fraction) * overhead) * load * rng.lognormvariate(0, noise), fraction))
    return made


@LAYOUTS
@pytest.mark.parametrize("prompts", [1, 2, 8, 64])
@pytest.mark.parametrize("noise", [0.01, 0.04])
def test_at_most_one_quiet_run_in_twenty_is_flagged(ways: tuple, prompts: int, noise: float) -> None:
    flagged = sum(bool(disturbance(timed(ways, prompts, noise, seed))) for seed in range(100))
    assert flagged <= 5


@LAYOUTS
@pytest.mark.parametrize("prompts", [2, 8, 64])
@pytest.mark.parametrize("slower", [1.5, 3.0])
def test_load_from_the_middle_of_a_run_is_flagged(ways: tuple, prompts: int, slower: float) -> None:
    assert all(disturbance(timed(ways, prompts, 0.03, seed, slower)) for seed in range(100))


@pytest.mark.parametrize("ways", [VALIDATE, DEMO], ids=["validate", "demo"])
def test_load_from_the_middle_of_one_prompt_is_flagged(ways: tuple) -> None:
    assert all(disturbance(timed(ways, 1, 0.03, seed, 1.6)) for seed in range(100))


def test_machines_of_different_speed_are_judged_each_for_itself() -> None:
    seconds = {"fast": (1.0, 1.02), "slow": (3.0, 3.06)}
    made = [Timed(way, each, 1.0, place=place) for way in (PLAIN, "a") for place in seconds for each in seconds[place]]
    assert not disturbance(made)
    assert disturbance([Timed(each.way, each.seconds, 1.0) for each in made])


@pytest.mark.parametrize("evidence", [{"load": 2.0}, {"shared": True}])
def test_other_work_that_is_known_is_evidence_without_a_difference_in_seconds(evidence: dict) -> None:
    assert disturbance([Timed(PLAIN, 1.0, 1.0), Timed(PLAIN, 1.0, 1.0, **evidence)])
    assert not disturbance([Timed(PLAIN, 1.0, 1.0, load=1.0), Timed(PLAIN, 1.0, 1.0)])


def test_without_seconds_or_fractions_nothing_is_claimed() -> None:
    assert disturbance([]) == ""
    assert disturbance([Timed(PLAIN, 1.0, 1.0), Timed("a", 0.1, None), Timed("b", 0.0, 0.5)]) == ""


def test_a_disturbed_speedup_stands_in_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [marked("1.27x", why) for why in ("", "load")] == ["1.27x", "(1.27x, disturbed)"]
    assert marked("-", "load") == "-"
    monkeypatch.delattr("os.getloadavg")
    assert load_per_core() is None
