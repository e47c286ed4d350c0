"""No call of a random loop is predicted from another latent's full steps, and each declared loop is accelerated."""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

import galaxydit
from tests.galaxydit.random_loops import GUIDED, NOISY, PLAIN, SIBLINGS, Plan, Tally, run, run_for

WINDOWS = ((0, 2), (1, 3), (2, 4))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_random_loops_are_never_mixed() -> None:
    tally = run_for(600.0, 3, most=400)
    assert not tally.foreign, tally.foreign[:3]
    assert tally.predicted > 1000
    assert tally.reused == tally.expected > 0, str(tally)
    assert not tally.silent, tally.silent[:3]
    assert not tally.repeated, tally.repeated[:3]


def tally_of(plans: list[Plan], turns: int) -> Tally:
    """The same loops, which take other turns each time."""
    tally = Tally()
    for turn in range(turns):
        tally.add(plans, random.Random(turn))
    return tally


@pytest.mark.parametrize("names_windows", [False, True])
@pytest.mark.parametrize("guided", ["never", "every second step"])
def test_windows_of_a_loop_whose_scheduler_nobody_named_leave_nothing_to_the_observed_one(
    guided: str, *, names_windows: bool
) -> None:
    """They have fewer frames than the latent of the observed loop, so they cannot be compared with it."""
    observed = Plan("Euler", 12, 3.0, 1, guided, seed=1)
    other = replace(observed, seed=2, windows=WINDOWS, names_windows=names_windows, is_observed=False, stops_at=9)
    tally = tally_of([observed, other], 8)
    assert not tally.foreign, tally.foreign[:3]


@pytest.mark.parametrize("sibling", SIBLINGS)
@pytest.mark.parametrize("guided", ["always", "every second step"])
def test_two_loops_that_take_turns_in_one_thread_are_not_mixed_and_not_silent(guided: str, sibling: float) -> None:
    first = Plan("Heun", 12, 1.5, 1, guided, seed=1, sibling=sibling, copies=True)
    for is_observed in (True, False):
        tally = tally_of([first, replace(first, seed=2, is_observed=is_observed)], 4)
        assert not tally.foreign, tally.foreign[:3]
        assert not tally.silent


@pytest.mark.parametrize("sibling", SIBLINGS)
def test_loops_in_threads_of_their_own_are_accelerated_as_if_each_were_alone(sibling: float) -> None:
    first = Plan("UniPC", 12, 2.0, 1, seed=1, sibling=sibling, thread="own")
    plans = [first, replace(first, seed=2), replace(first, seed=3, thread="main")]
    alone = run([replace(first, thread="main")], random.Random(0)).predicted[0]
    for turn in range(3):
        watch = run(plans, random.Random(turn))
        assert not watch.foreign
        assert [watch.predicted[index] for index in range(3)] == [alone] * 3


@pytest.mark.parametrize("one_batch", [False, True])
def test_named_windows_are_accelerated_as_the_whole_latent(*, one_batch: bool) -> None:
    whole = Plan("UniPC", 12, 2.0, 1, one_batch=one_batch)
    alone = run([whole], random.Random(0)).predicted[0]
    watch = run([replace(whole, windows=WINDOWS, names_windows=True)], random.Random(0))
    assert watch.predicted[0] == len(WINDOWS) * alone > 0
    assert not watch.foreign


def test_windows_without_names_are_computed_in_full_with_a_warning() -> None:
    with pytest.warns(galaxydit.FullComputeWarning, match="was called twice in one step"):
        watch = run([Plan("UniPC", 12, 2.0, 1, named=True, windows=WINDOWS)], random.Random(0))
    assert not watch.predicted


def test_a_loop_without_a_scheduler_that_contexts_tell_is_accelerated_as_one_with_a_scheduler() -> None:
    observed = Plan("Euler", 12, 2.0, 1)
    told = replace(observed, named=True, is_observed=False)
    expected = run([observed], random.Random(0)).predicted[0]
    assert run([told], random.Random(0)).predicted[0] == expected > 0


def test_a_loop_that_nothing_tells_is_computed_in_full_with_a_warning() -> None:
    with pytest.warns(galaxydit.FullComputeWarning, match=r"pass scheduler=\.\.\. or schedulers="):
        assert not run([Plan("Euler", 12, 2.0, 1, is_observed=False)], random.Random(0)).predicted


@pytest.mark.parametrize("scheduler", [*PLAIN, *NOISY])
def test_latents_that_are_rolled_in_each_step_are_computed_in_full_with_a_warning(scheduler: str) -> None:
    for seed in range(4):
        plan = Plan(scheduler, 12, 2.0, 1, seed=seed, texts=seed % 3, edits="roll each step")
        with pytest.warns(galaxydit.FullComputeWarning, match="the latent of a step does|no value of the transformer"):
            assert not run([plan], random.Random(0)).predicted


@pytest.mark.parametrize("edits", ["roll", "replace", "region"])
@pytest.mark.parametrize("scheduler", [*PLAIN, *NOISY])
def test_a_latent_that_is_edited_once_is_predicted_from_what_came_after(scheduler: str, edits: str) -> None:
    with pytest.warns(galaxydit.FullComputeWarning, match="the latent of a step"):
        watch = run([Plan(scheduler, 20, 2.0, 1, edits=edits)], random.Random(0))
    assert not watch.foreign
    assert watch.predicted


@pytest.mark.filterwarnings("error:galaxydit. the latent of a step")
@pytest.mark.filterwarnings("error:galaxydit. no value of the transformer")
@pytest.mark.matrix(scheduler=[*PLAIN, *NOISY], guided=GUIDED, one_batch=[False, True], steps=[12, 20])
def test_a_loop_that_nothing_disturbs_is_accelerated(
    scheduler: str, guided: str, *, one_batch: bool, steps: int
) -> None:
    plan = Plan(scheduler, steps, 3.0, 1, guided, one_batch=one_batch)
    assert run([plan], random.Random(0)).predicted or (one_batch and guided == "every second step")


@pytest.mark.parametrize("scheduler", PLAIN)
def test_a_batch_whose_size_changes_in_every_step_is_computed_in_full_with_a_warning(scheduler: str) -> None:
    with pytest.warns(galaxydit.FullComputeWarning, match="the batch changed its size in several steps"):
        assert not run([Plan(scheduler, 20, 3.0, 1, "every second step", one_batch=True)], random.Random(0)).predicted
