import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from galaxydit.eval.jobs.claims import Claim, Claims

EXPIRY = 1000.0
UNITS = [f"unit-{index}" for index in range(30)]


def make_old(claim: Claim | Path) -> None:
    """As if no heartbeat had come for years."""
    os.utime(claim.path if isinstance(claim, Claim) else claim, (1, 1))


def test_a_claim_is_for_one_while_it_lives(tmp_path: Path):
    first, second = Claims(tmp_path, "a", EXPIRY), Claims(tmp_path, "b", EXPIRY)
    claim = first.take("u")
    assert claim is not None
    assert second.take("u") is None
    assert first.take("u") is None
    assert not claim.is_lost


def test_a_lost_unit_is_taken_over_once_and_the_sleeper_notices(tmp_path: Path):
    first, second = Claims(tmp_path, "a", EXPIRY), Claims(tmp_path, "b", EXPIRY)
    claim = first.take("u")
    make_old(claim)
    taken = second.take("u")
    assert taken.generation == 1
    assert claim.is_lost
    assert not taken.is_lost
    assert first.take("u") is None


def test_leaving_a_claim_gives_the_unit_back_at_once(tmp_path: Path):
    claims = Claims(tmp_path, "a", EXPIRY)
    with pytest.raises(KeyboardInterrupt), claims.take("u"):
        raise KeyboardInterrupt
    assert claims.take("u").generation == 1


def test_the_heartbeat_keeps_a_claim_young(tmp_path: Path):
    claims = Claims(tmp_path, "a", expiry=0.5)
    claim = claims.take("u")
    make_old(claim)
    with claim:
        deadline = time.monotonic() + 60
        while claim.path.stat().st_mtime < 1000:
            assert time.monotonic() < deadline, "no heartbeat came"
            time.sleep(0.01)


def test_a_heartbeat_does_not_wake_a_claim_that_is_lost(tmp_path: Path):
    claim = Claims(tmp_path, "a", expiry=0.1).take("u")
    make_old(claim)
    Claims(tmp_path, "b", expiry=0.1).take("u")
    with claim:
        time.sleep(0.1)
        assert claim.path.stat().st_mtime == 1


def test_the_clock_of_a_machine_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    claims = Claims(tmp_path, "a", EXPIRY)
    claims.take("u")
    for shift in (-1e6, 1e6):
        monkeypatch.setattr(time, "time", lambda shift=shift: shift)
        assert claims.take("u") is None


def test_forgotten_claims_are_lost_and_leave_nothing(tmp_path: Path):
    claims = Claims(tmp_path, "a", EXPIRY)
    make_old(claims.take("u"))
    claim = claims.take("u")
    claims.forget("u")
    claims.close()
    assert claim.is_lost
    assert list(tmp_path.iterdir()) == []


def _take_all(folder: Path, worker: str, start: Any, won: Any) -> None:
    claims = Claims(folder, worker, EXPIRY)
    start.wait()
    won.put([(unit, claim.generation) for unit in UNITS if (claim := claims.take(unit)) is not None])


@pytest.mark.parametrize("generation", [0, 1, 3])
def test_of_many_processes_at_once_one_wins_each_unit(tmp_path: Path, generation: int):
    """New units (generation 0) as well as units lost a moment ago, once or several times."""
    for unit in UNITS:
        for before in range(generation):
            (tmp_path / f"{unit}.{before}").touch()
            make_old(tmp_path / f"{unit}.{before}")
    context = multiprocessing.get_context("fork")
    start, won = context.Barrier(8), context.Queue()
    processes = [context.Process(target=_take_all, args=(tmp_path, str(i), start, won)) for i in range(8)]
    for process in processes:
        process.start()
    winners = [pair for _ in processes for pair in won.get(timeout=120)]
    for process in processes:
        process.join()
    assert sorted(winners) == sorted((unit, generation) for unit in UNITS)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["take", "sleep", "wake", "return"])), max_size=25))
def test_at_any_time_one_worker_at_most_has_the_unit(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[int, str]]
):
    """Workers take, fall asleep past the expiry, wake, give back, in any order."""
    folder = tmp_path_factory.mktemp("claims")
    workers = [Claims(folder, str(index), EXPIRY) for index in range(3)]
    held: dict[int, Claim] = {}
    for index, event in events:
        if event == "take" and index not in held and (claim := workers[index].take("u")) is not None:
            held[index] = claim
        elif event == "sleep" and index in held:
            make_old(held[index])
        elif event == "wake" and index in held and not held[index].is_lost:
            os.utime(held[index].path)
        elif event == "return" and index in held:
            make_old(held.pop(index))
        owners = [worker for worker, claim in held.items() if not claim.is_lost]
        assert len(owners) <= 1
        generations = sorted(int(path.suffix[1:]) for path in folder.glob("u.*"))
        assert generations == list(range(len(generations)))
