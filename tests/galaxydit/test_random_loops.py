"""No call of a random loop is predicted from another trajectory or branch, and loops that alternate are reused."""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

import galaxydit
from tests.galaxydit.random_loops import GUIDED, NOISY, PLAIN, Plan, Tally, Undisturbed, run, run_for


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_random_loops_are_never_mixed() -> None:
    tally = run_for(600.0, 3, Undisturbed(), most=400)
    assert tally.predicted > 1000
    assert tally.mixed == 0, str(tally.worst[:3])
    assert tally.reused > 0.8 * tally.expected, str(tally)


def test_a_loop_whose_steps_are_mostly_unknown_is_not_taken_for_the_known_one() -> None:
    tally, undisturbed = Tally(), Undisturbed()
    for turn in (35, 53, 109, 139, 142):  # all were mixed while latents at unknown steps were not remembered
        known = Plan("Heun", 12, 1.5, 1, "every second step", 2 * turn, texts=1, copies=True)
        plans = [known, replace(known, seed=2 * turn + 1)]
        tally.add(plans, run(plans, random.Random(turn)), undisturbed)
    assert tally.predicted > 0
    assert tally.mixed == 0, str(tally.worst)


@pytest.mark.parametrize("scheduler", NOISY)
def test_latents_that_are_rolled_while_noise_is_drawn_are_computed_in_full_with_a_warning(scheduler: str) -> None:
    for seed in range(20):
        plan = Plan(scheduler, 12, 2.0, 1, seed=seed, texts=seed % 3, rolls="every step")
        with pytest.warns(galaxydit.FullComputeWarning, match="the scheduler draws noise in every step, and"):
            assert not run([plan], random.Random(0)).predicted


@pytest.mark.filterwarnings("error:galaxydit. the latent of a step does not continue")
@pytest.mark.parametrize("guided", GUIDED)
@pytest.mark.parametrize("scheduler", [*PLAIN, *NOISY])
def test_a_loop_that_nothing_disturbs_is_one_trajectory(scheduler: str, guided: str) -> None:
    for one_batch in (False, True):
        for steps in (12, 20):
            plan = Plan(scheduler, steps, 3.0, 1, guided, one_batch=one_batch)
            assert run([plan], random.Random(0)).predicted or (one_batch and guided == "every second step")


@pytest.mark.parametrize("scheduler", PLAIN)
def test_a_batch_whose_size_changes_in_every_step_is_computed_in_full_with_a_warning(scheduler: str) -> None:
    with pytest.warns(galaxydit.FullComputeWarning, match="the batch changed its size in several steps"):
        assert not run([Plan(scheduler, 20, 3.0, 1, "every second step", one_batch=True)], random.Random(0)).predicted
